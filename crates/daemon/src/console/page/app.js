// The page: who is signed in, which view is shown, and looking again every few seconds.

import { Refused, act, look, rested, signIn, signOut, signedIn } from "./api.js";
import { button, el, patch, shownHost } from "./dom.js";
import { VIEWS, events, overview, servers, volumes } from "./views.js";
import { remember, volumePage } from "./volume.js";

const PAUSE = 5000, DOCTOR = 30000;
const main = document.getElementById("main"), notice = document.getElementById("notice");
const ask = document.getElementById("confirm");

const state = { pool: null, volumes: null, info: null, events: null, doctor: null, seen: new Map() };
let looked = 0, timer = 0, round = 0;

let fading = 0;
function tell(text, level) {
  clearTimeout(fading);
  // What went well needs nobody to close it.
  if (level === "good") fading = setTimeout(() => tell(""), 12000);
  notice.hidden = !text;
  notice.className = level ?? "";
  notice.replaceChildren(text, text ? button("Close", () => tell("")) : "");
}

const here = () => decodeURIComponent(location.hash.slice(1) || "overview").split("/");

function show(...parts) {
  const next = main.cloneNode(false);
  next.append(...parts.flat(Infinity).filter((part) => part));
  patch(main, next);
}

function shownView() {
  const [view, name] = here(), width = Math.max(320, Math.min(main.clientWidth - 40, 1000));
  if (view === "volumes" && name) return volumePage(state, name, acts, width);
  if (view === "volumes") return volumes(state, acts);
  if (view === "servers") return servers(state, acts);
  if (view === "events") return events(state);
  return overview(state);
}

function draw() {
  const name = signedIn(), nav = document.getElementById("views"), who = document.getElementById("who");
  nav.hidden = who.hidden = !name;
  if (!name) return signInForm();
  nav.replaceChildren(...VIEWS.map(([view, title]) =>
    el("a", { href: `#${view}`, "aria-current": here()[0] === view ? "page" : null }, title)));
  const host = state.pool?.peers.find((p) => p.id === state.pool.me)?.host;
  document.title = host ? `Mortar ${shownHost(host)}` : "Mortar";
  who.replaceChildren(el("span", {}, name, host ? ` on ${shownHost(host)}` : ""), button("Sign out", leave));
  show(state.pool && state.volumes ? shownView() : el("p", { class: "lead" }, "Looking..."));
}

function signInForm() {
  if (main.querySelector("form")) return;
  const text = el("textarea", { id: "key", rows: 8, spellcheck: "false", autocomplete: "off", placeholder: "mortar key 1" });
  const file = el("input", { type: "file", id: "file" });
  const send = el("button", { type: "submit", class: "main" }, "Sign in");
  const form = el("form", { class: "card sign-in", autocomplete: "off" },
    el("h1", {}, "Sign in"),
    el("p", {}, "With an administrator's key file. It is sent to this server once, and not kept. ",
      "On a server, as root: ", el("code", {}, "mortar pool key NAME --out FILE")),
    el("label", { for: "file" }, "The key file"), file,
    el("label", { for: "key" }, "or what is in it"), text, send);
  form.onsubmit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      await signIn(file.files[0] ? await file.files[0].text() : text.value);
      tell("");
      form.remove();
      again();
    } catch (e) {
      tell(e.message, "bad");
    } finally {
      // The secret does not stay in the page.
      text.value = file.value = "";
      send.disabled = false;
    }
  };
  main.replaceChildren(form);
}

async function leave() {
  await signOut().catch(() => {});
  Object.assign(state, { pool: null, volumes: null, info: null, events: null, doctor: null, seen: new Map() });
  tell("");
  draw();
}

// What the view needs, beside what all need.
async function lookAt() {
  const [view, name] = here(), now = Date.now();
  const into = async (key, path) => (state[key] = await look(path));
  const all = [into("pool", "pool"), into("volumes", "volumes")];
  if (view === "overview" || view === "events") all.push(into("events", "events"));
  if (view === "overview" && now - looked > DOCTOR) {
    looked = now;
    all.push(into("doctor", "doctor"));
  }
  if (view === "volumes") all.push(into("info", "info"));
  if (view === "volumes" && name) all.push(lookAtVolume(encodeURIComponent(name), name));
  await Promise.all(all);
}

async function lookAtVolume(path, name) {
  const seen = state.seen.get(name) ?? { history: [] };
  // Some of it is refused while the volume is not started, or nobody measures.
  const or = (wanted) => wanted.catch((e) => {
    if (e instanceof Refused && e.status !== 401) return null;
    throw e;
  });
  const [rebalance, clients, profile] = await Promise.all(
    ["rebalance", "clients", "profile"].map((what) => or(look(`volumes/${path}/${what}`))));
  Object.assign(seen, { rebalance, clients, profile });
  if (profile) remember(seen.history, profile, Date.now());
  else seen.history.length = 0;
  state.seen.set(name, seen);
}

async function again() {
  clearTimeout(timer);
  const mine = ++round;
  draw();
  if (!signedIn()) return;
  try {
    await lookAt();
    rested();
    if (notice.className === "lost") tell("");
  } catch (e) {
    const over = e instanceof Refused && e.status === 401;
    if (over) tell("The session is over: sign in again.", "warn");
    else tell(e instanceof Refused ? e.message : "The server does not answer. The page tries again.", e instanceof Refused ? "bad" : "lost");
  }
  // Another round has begun meanwhile.
  if (mine !== round) return;
  draw();
  if (signedIn() && !document.hidden) timer = setTimeout(again, PAUSE);
}

const DONE = {
  "volume-start": (a) => `${a.name} is started${a.serving ? "" : ", and not all of it serves yet"}.`,
  "volume-stop": (a) => `${a.name} is stopped.`,
  "volume-heal": (a) => (a.bricks.length ? `Not in sync: ${a.bricks.map((b) => `${shownHost(b.server)}:${b.path}`).join(", ")}.` : `All bricks of ${a.name} are in sync.`),
  "volume-rebalance": (a) => (a.state === "on" ? `Files of ${a.name} move.` : `Files of ${a.name} stay where they are.`),
  "volume-profile": (a) => (a.running ? `Requests of ${a.name} are measured from now on.` : `Requests of ${a.name} are not measured any more.`),
  "peer-drain": (a) => [`${a.bricks.length} bricks on ${shownHost(a.host)} move.`, ...a.notes].join(" "),
};

const acts = {
  async now(name, fields) {
    try {
      tell("Under way...");
      tell(DONE[name](await act(name, fields)), "good");
    } catch (e) {
      tell(e.message, "bad");
    }
    again();
  },

  // Asks first; what is hard to take back has to be typed.
  confirm({ title, text, word, type, danger }, name, fields) {
    const typed = type && el("input", { id: "typed", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
    const yes = el("button", { type: "submit", class: danger ? "danger" : "main", disabled: Boolean(type) }, word);
    if (typed) typed.oninput = () => (yes.disabled = typed.value !== type);
    const form = el("form", { method: "dialog" }, el("h2", { id: "confirm-title" }, title), el("p", {}, text),
      typed && el("label", { for: "typed" }, "Type ", el("b", {}, type), " to confirm"), typed,
      el("div", { class: "acts" }, button("Cancel", () => ask.close()), yes));
    form.onsubmit = () => acts.now(name, fields);
    ask.replaceChildren(form);
    ask.showModal();
  },
};

addEventListener("hashchange", () => {
  scrollTo(0, 0);
  again();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => !document.hidden && again());
again();
