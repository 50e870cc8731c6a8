"""What programs do with locks: `compare`, `waits` and `hold`, for the tests in locks.rs."""

import errno, fcntl, os, random, signal, struct, sys, time

OFD_GETLK, OFD_SETLK = 36, 37
KINDS = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}


def lock(fd, command, kind, start, length):
    """fcntl(2) with a struct flock; its answer as text."""
    asked = struct.pack("hhqqi4x", KINDS[kind], os.SEEK_SET, start, length, 0)
    try:
        told = struct.unpack("hhqqi4x", fcntl.fcntl(fd, command, asked))
    except OSError as e:
        return errno.errorcode[e.errno]
    getting = command in (fcntl.F_GETLK, OFD_GETLK)
    return ("free" if told[0] == fcntl.F_UNLCK else "taken") if getting else "ok"


def flock(fd, how):
    try:
        fcntl.flock(fd, how)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]


def worker(paths, orders, answers):
    """A process that has the same file open in several places, and does to all of them what it is told."""
    orders, answers = os.fdopen(orders, "r"), os.fdopen(answers, "w")
    files = []
    for line in orders:
        what, args = line.split()[0], line.split()[1:]
        if what == "open":
            files.append([os.open(p, os.O_RDWR) for p in paths])
            told = ["ok"] * len(paths)
        elif not files:
            told = ["none"] * len(paths)
        elif what == "close":
            fds = files.pop(int(args[0]) % len(files))
            told = [str(os.close(fd)) for fd in fds]
        elif what == "dup":
            files.append([os.dup(fd) for fd in files[int(args[0]) % len(files)]])
            told = ["ok"] * len(paths)
        else:
            fds = files[int(args[0]) % len(files)]
            told = []
            for place, fd in enumerate(fds):
                again = time.monotonic() + 2
                while True:
                    if what == "flock":
                        how = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}[args[1]]
                        now = flock(fd, how | fcntl.LOCK_NB)
                    else:
                        command = {"set": fcntl.F_SETLK, "get": fcntl.F_GETLK, "oset": OFD_SETLK, "oget": OFD_GETLK}[what]
                        now = lock(fd, command, args[1], int(args[2]), int(args[3]))
                    # The kernel tells a FUSE mount of a last close a moment later.
                    if place == 0 or now == told[0] or now not in ("EAGAIN", "taken") or time.monotonic() > again:
                        break
                    time.sleep(0.001)
                told.append(now)
        print(" ".join(told), file=answers, flush=True)
    os._exit(0)


class Process:
    def __init__(self, paths, others):
        (his_orders, self.orders), (self.answers, his_answers) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for fd in [self.orders, self.answers] + [fd for o in others for fd in (o.orders, o.answers.fileno())]:
                os.close(fd)
            worker(paths, his_orders, his_answers)
        os.close(his_orders)
        os.close(his_answers)
        self.answers = os.fdopen(self.answers, "r")

    def tell(self, order):
        os.write(self.orders, (order + "\n").encode())
        return self.answers.readline().split()

    def end(self, by_signal):
        if by_signal:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.orders)
        os.waitpid(self.pid, 0)
        self.answers.close()


def compare(seed, steps, *paths):
    """Random locks of several processes on the same file in several places: the answers are the same everywhere."""
    rng, processes, said = random.Random(int(seed)), [], {}
    for step in range(int(steps)):
        if len(processes) < 4:
            processes.append(Process(paths, processes))
            processes[-1].tell("open")
        which = rng.randrange(len(processes))
        what = rng.choices(["set", "get", "flock", "oset", "oget", "open", "close", "dup", "end"], [40, 10, 20, 10, 4, 6, 6, 2, 2])[0]
        if what == "end":
            processes.pop(which).end(rng.random() < 0.5)
            continue
        kind = rng.choice("rwwu" if what in ("set", "flock", "oset") else "rw")
        start, length = rng.randrange(12), rng.choice([0, 1, 1, 2, 3, 5, 8])
        order = f"{what} {rng.randrange(4)} {kind} {start} {length}"
        told = processes[which].tell(order)
        assert len(set(told)) == 1 and len(told) == len(paths), f"seed {seed} step {step}: process {which} {order}: {told}"
        said[told[0]] = said.get(told[0], 0) + 1
    for p in processes:
        p.end(False)
    assert all(said.get(answer, 0) > int(steps) // 50 for answer in ("ok", "EAGAIN", "free", "taken")), said


def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def ends_well(pid, what):
    assert os.waitpid(pid, 0)[1] == 0, what


def waits(path):
    """Those that wait: in turn, interrupted, more of them than the mount has threads, and in a circle."""
    mine = os.open(path, os.O_RDWR)
    fcntl.lockf(mine, fcntl.LOCK_EX, 1, 0)
    fcntl.flock(mine, fcntl.LOCK_EX)

    def wait_for_both():
        fd = os.open(path, os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_SH, 1, 0)
        fcntl.flock(fd, fcntl.LOCK_SH)

    many = [child(wait_for_both) for _ in range(150)]

    def interrupted():
        def on_alarm(*_):
            raise InterruptedError

        signal.signal(signal.SIGALRM, on_alarm)
        fd = os.open(path, os.O_RDWR)
        for ask in (lambda: fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0), lambda: fcntl.flock(fd, fcntl.LOCK_EX)):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                ask()
            except InterruptedError:
                continue
            raise AssertionError("not interrupted")

    ends_well(child(interrupted), "a signal ends a wait")
    killed = child(wait_for_both)
    time.sleep(0.3)
    os.kill(killed, signal.SIGKILL)
    assert os.waitpid(killed, 0)[1] == signal.SIGKILL
    assert os.waitpid(-1, os.WNOHANG) == (0, 0), "nobody got a lock"
    # The mount serves all the while.
    os.write(mine, b"x")
    os.close(os.open(path, os.O_RDONLY))  # Ends the fcntl lock, and not the other one.
    time.sleep(0.3)
    assert os.waitpid(-1, os.WNOHANG) == (0, 0), "nobody got the second lock"
    fcntl.flock(mine, fcntl.LOCK_UN)
    for pid in many:
        ends_well(pid, "who waited gets the lock")

    fcntl.lockf(mine, fcntl.LOCK_EX, 1, 0)

    def circle():
        fd = os.open(path, os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 1)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)

    other = child(circle)
    until = time.monotonic() + 10
    told = None
    while told is None and time.monotonic() < until:
        if lock(mine, fcntl.F_GETLK, "w", 1, 1) == "taken":
            time.sleep(0.3)
            try:
                fcntl.lockf(mine, fcntl.LOCK_EX, 1, 1)
                told = "granted"
            except OSError as e:
                told = errno.errorcode[e.errno]
        time.sleep(0.01)
    assert told in ("EDEADLK", "EDEADLOCK"), told
    os.close(mine)
    ends_well(other, "the other one goes on")


def hold(path, how):
    """Takes a lock, says how it went, and then does what it is told by lines, until there are no more."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for line in lines(how):
        if line == "fcntl":
            told = lock(fd, fcntl.F_SETLK, "w", 0, 0)
        elif line == "flock":
            told = flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif line == "unlock":
            told = lock(fd, fcntl.F_SETLK, "u", 0, 0)
        else:
            try:
                os.pwrite(fd, line.encode(), 0)
                told = "ok"
            except OSError as e:
                told = errno.errorcode[e.errno]
        print(told, flush=True)


def lines(first):
    yield first
    for line in sys.stdin:
        yield line.strip()


if __name__ == "__main__":
    {"compare": compare, "waits": waits, "hold": hold}[sys.argv[1]](*sys.argv[2:])
