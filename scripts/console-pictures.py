#!/usr/bin/env python3
"""Signs in to the web console in headless Chromium and takes pictures: console-pictures.py URL KEY-FILE FOLDER

Each view at the width of a desk and of a phone. Fails if a page is wider than the screen, or the browser says an error.
"""
import base64, json, os, subprocess, sys, time

url, key, folder = sys.argv[1:]
SCREENS = {"desk": (1280, 900), "phone": (375, 812)}


class Browser:
    """Chromium, by the pipe that it reads orders from: messages of JSON with a zero byte behind each."""

    def __init__(self):
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        # Chromium reads orders from descriptor 3 and answers on 4.
        shell = f"exec 3<&{from_us} 4>&{to_us}; exec \"$@\""
        words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 "--ignore-certificate-errors", f"--user-data-dir={folder}/profile", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *words], pass_fds=(from_us, to_us),
                                        stderr=subprocess.DEVNULL)
        os.close(from_us), os.close(to_us)
        self.orders, self.answers = os.fdopen(to_browser, "wb", 0), os.fdopen(from_browser, "rb", 0)
        self.number, self.rest, self.session, self.errors = 0, b"", None, []

    def ask(self, method, **params):
        self.number += 1
        order = {"id": self.number, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        self.orders.write(json.dumps(order).encode() + b"\0")
        while True:
            message = self.next()
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]

    def next(self):
        while b"\0" not in self.rest:
            more = self.answers.read(65536)
            if not more:
                sys.exit("chromium ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return answer["result"].get("value")

    def wait(self, expression):
        for _ in range(200):
            if self.value(expression):
                return
            time.sleep(0.05)
        sys.exit(f"the page does not show: {expression}\n{self.value('document.body.innerText')}")


def picture(browser, name, screen):
    wide, high = SCREENS[screen]
    browser.ask("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=screen == "phone")
    time.sleep(0.5)
    page = browser.value("document.documentElement.scrollWidth")
    shot = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=False)
    path = f"{folder}/{name}-{screen}.png"
    with open(path, "wb") as file:
        file.write(base64.b64decode(shot["data"]))
    print(f"{path}: the page is {page} wide")
    if page > wide:
        sys.exit(f"{name} is {page} wide on a screen of {wide}")


browser = Browser()
try:
    target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    browser.ask("Runtime.enable"), browser.ask("Page.enable")
    browser.ask("Page.navigate", url=url)
    browser.wait("!!document.querySelector('#key')")
    for screen in SCREENS:
        picture(browser, "sign-in", screen)
    text = json.dumps(open(key).read())
    browser.value(f"document.querySelector('#key').value = {text}; document.querySelector('form').requestSubmit()")
    browser.wait("!document.querySelector('#key') && /home/.test(document.body.innerText)")
    for name in ["overview", *sys.stdin.read().split()]:
        if name != "overview":
            browser.value(f"location.hash = {json.dumps('#' + name)}")
            time.sleep(1)
        for screen in SCREENS:
            picture(browser, name.strip("/").replace("/", "-"), screen)
    if browser.errors:
        sys.exit(f"errors in the page: {browser.errors}")
finally:
    browser.process.kill()
