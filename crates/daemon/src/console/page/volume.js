// One volume: its sets and bricks, what it does, and what can be done with it.

import { chart } from "./chart.js";
import { bar, button, bytes, chip, count, el, micros, plural, shownHost, span, table } from "./dom.js";

const KINDS = [["reads", ["read"]], ["writes", ["write"]], ["syncs", ["fsync"]]];
const OTHERS = "names and attributes";
// What a chart shows.
export const SECONDS = 600;

// The bricks of a volume by set.
export function sets(volume) {
  const all = new Map();
  for (const brick of volume.bricks) all.set(brick.set, [...(all.get(brick.set) ?? []), brick]);
  return all;
}

// Room of a volume: each set has as much as its smallest brick with data.
export function room(volume) {
  let free = 0, total = 0;
  for (const bricks of sets(volume).values()) {
    const known = bricks.filter((b) => b.total_bytes > 0 && b.role !== "arbiter");
    if (known.length === 0) continue;
    free += Math.min(...known.map((b) => b.free_bytes));
    total += Math.min(...known.map((b) => b.total_bytes));
  }
  return { free, total, used: Math.max(total - free, 0) };
}

// How a volume does: a colour and words.
export function health(volume) {
  if (volume.status !== "started") return ["", volume.status === "created" ? "never started" : "stopped"];
  const all = [...sets(volume).values()];
  const dead = all.filter((bricks) => !bricks.some((b) => b.online && b.role === "primary")).length;
  if (dead > 0) return ["bad", `${dead} of ${plural(all.length, "set")} offline`];
  const late = volume.bricks.filter((b) => !b.in_sync).length;
  if (late > 0) return ["warn", `${plural(late, "brick")} not in sync`];
  return volume.bricks.some((b) => !b.online) ? ["warn", "a brick is offline"] : ["good", "in sync"];
}

export function roomBar(volume) {
  const { total, used } = room(volume);
  if (total === 0) return el("p", { class: "faint" }, "Its room is not known while it is not started.");
  return el("div", { class: "room" }, bar(used / total, "Room used"),
    el("span", {}, `${bytes(used)} of ${bytes(total)} used`));
}

// How far healing is, in words.
export function healing(brick) {
  const heal = brick.heal;
  if (!heal) return null;
  const known = heal.mode === "journal" || heal.total_known;
  const words = `${count(heal.done)} of ${known ? "" : "at least "}${count(heal.total)} objects, ${bytes(heal.bytes_per_second)}/s`;
  return el("div", { class: "heal" }, bar(heal.total ? heal.done / heal.total : 0, "Healed", ""), el("small", {}, words));
}

function brickState(brick) {
  if (brick.error) return [chip("bad", "error"), " ", el("small", {}, brick.error)];
  if (!brick.online) return chip("bad", "offline");
  if (!brick.in_sync) return [chip("warn", brick.role === "healing" ? "healing" : "not in sync"), healing(brick)];
  return chip("good", "in sync");
}

function brickRoom(brick) {
  if (!brick.total_bytes) return "-";
  const used = 1 - brick.free_bytes / brick.total_bytes;
  return el("div", { class: "room" }, bar(used, "Room used"), el("span", {}, `${bytes(brick.free_bytes)} free`));
}

// A set as users know it: by its number in the volume; by its id if its server has not told that.
function setName(of) {
  return of.set_number ? `${of.set_number}` : `#${of.set}`;
}

function setTable(bricks) {
  const rows = bricks.map((b) => [
    el("span", { class: "path" }, `${shownHost(b.server)}:${b.path}`), b.role, brickState(b), brickRoom(b),
  ]);
  return [el("h3", {}, `Set ${setName(bricks[0])}`), table(["Brick", "Role", "State", "Room"], rows, "no bricks")];
}

export function actions(volume, acts, info) {
  const { name } = volume, started = volume.status === "started";
  const all = [started
    ? button("Stop", () => acts.confirm({
      title: `Stop ${name}?`, type: name, word: "Stop the volume", danger: true,
      text: "Programs on all its mounts wait, or fail if they are mounted soft, until it is started again. Nothing is lost.",
    }, "volume-stop", { name }), "danger")
    : button("Start", () => acts.confirm({
      title: `Start ${name}?`, word: "Start the volume", text: "Its servers open its bricks, and it can be mounted.",
    }, "volume-start", { name }), "main")];
  if (!started) return el("div", { class: "acts" }, all);
  all.push(button("Heal", () => acts.confirm({
    title: `Heal ${name}?`, word: "Look now",
    text: "Bricks heal by themselves; this looks again for bricks that are not in sync, and tells which they are.",
  }, "volume-heal", { name })));
  if (sets(volume).size > 1) {
    const on = info?.options["cluster.rebalance"] === "on";
    all.push(button(on ? "Stop rebalance" : "Rebalance", () => acts.confirm(on
      ? { title: `Stop the rebalance of ${name}?`, word: "Stop it", text: "Files stay where they are by then." }
      : { title: `Rebalance ${name}?`, word: "Move files", text: "Files of fuller sets move to emptier ones while the volume is in use." },
    "volume-rebalance", { name, action: on ? "stop" : "start" })));
  }
  return el("div", { class: "acts" }, all);
}

function rebalanced(report) {
  if (!report || report.sets.length < 2) return null;
  const { moved } = report, left = report.remaining_seconds;
  const words = [`${plural(moved.files, "file")} (${bytes(moved.bytes)}) moved`, `${bytes(report.remaining_bytes)} to move`];
  if (moved.directories) words.push(`${moved.directories === 1 ? "1 directory" : `${count(moved.directories)} directories`} went to other sets`);
  if (report.state === "on" && left !== null) words.push(`about ${span(left)} left`);
  const rows = report.sets.map((s) => [setName(s), s.total_bytes ? bar(1 - s.free_bytes / s.total_bytes, "Room used") : "-",
    bytes(s.free_bytes), count(s.moved.files), bytes(s.moved.bytes)]);
  return el("section", { class: "card" },
    el("h2", {}, "Rebalance ", chip(report.state === "on" ? "good" : "", report.state)),
    el("p", {}, words.join(", ")),
    table(["Set", "Used", "#Free", "#Files moved", "#Bytes moved"], rows, "", true),
    report.notes.map((note) => el("p", { class: "faint" }, note)));
}

// Calls of all sets by kind: how many took how long.
function byKind(total) {
  const all = new Map();
  for (const o of total.sets.flatMap((s) => s.operations)) {
    const kind = KINDS.find(([, names]) => names.includes(o.operation))?.[0] ?? OTHERS;
    const known = all.get(kind) ?? o.classes.map((c) => ({ ...c, calls: 0 }));
    o.classes.forEach((c, i) => (known[i].calls += c.calls));
    all.set(kind, known);
  }
  return all;
}

const callsOf = (classes) => classes.reduce((sum, c) => sum + c.calls, 0);

// Within how many microseconds that part of the calls was done, evenly spread within a class.
function within(classes, part) {
  let wanted = callsOf(classes) * part, from = 0;
  for (const { at_most_us: end, calls } of classes) {
    if (calls > 0 && wanted <= calls) return end === null ? from : from + ((end - from) * wanted) / calls;
    [wanted, from] = [wanted - calls, end ?? from];
  }
  return from;
}

// The end of the class in which that part of the calls was done.
function atMost(classes, part) {
  let wanted = callsOf(classes) * part;
  for (const [i, { at_most_us: end, calls }] of classes.entries()) {
    if (calls > 0 && wanted <= calls) return end === null ? `> ${micros(classes[i - 1].at_most_us)}` : micros(end);
    wanted -= calls;
  }
  return "-";
}

// Adds what was counted since the last look to what is known.
export function remember(history, profile, at) {
  const now = byKind(profile.total), last = history.at(-1);
  const fresh = !last || profile.total.milliseconds < last.milliseconds;
  const seconds = fresh ? 0 : (profile.total.milliseconds - last.milliseconds) / 1000;
  if (!fresh && seconds < 1) return;
  const kinds = {};
  for (const [kind, classes] of now) {
    const before = fresh ? classes : last.now.get(kind);
    const since = classes.map((c, i) => ({ ...c, calls: Math.max(c.calls - (before?.[i].calls ?? 0), 0) }));
    const calls = callsOf(since);
    kinds[kind] = seconds ? { rate: calls / seconds, p99: calls ? within(since, 0.99) : null } : null;
  }
  if (fresh) history.length = 0;
  history.push({ at, milliseconds: profile.total.milliseconds, now, kinds, first: fresh });
  if (last) last.now = null;
  while (history.length > 0 && history[0].at < at - SECONDS * 1000) history.shift();
}

function latencies(volume, seen, acts, width) {
  const { name } = volume, { profile, history } = seen;
  if (!profile) {
    return el("section", { class: "card" }, el("h2", {}, "Latency"),
      el("p", {}, "Nobody measures how long its requests take."),
      el("div", { class: "acts" }, button("Measure", () => acts.now("volume-profile", { name, action: "start" }), "main")));
  }
  const kinds = [...KINDS.map(([kind]) => kind), OTHERS];
  const lines = (what) => kinds.map((kind) => ({
    name: kind, points: history.map((h) => [h.at, h.kinds[kind]?.[what] ?? (what === "rate" && !h.first ? 0 : null)]),
  }));
  const all = new Map();
  for (const o of profile.total.sets.flatMap((s) => s.operations)) {
    const known = all.get(o.operation) ?? { calls: 0, us: 0, classes: o.classes.map((c) => ({ ...c, calls: 0 })) };
    [known.calls, known.us] = [known.calls + o.calls, known.us + o.total_us];
    o.classes.forEach((c, i) => (known.classes[i].calls += c.calls));
    all.set(o.operation, known);
  }
  const rows = [...all].filter(([, o]) => o.calls > 0).sort((a, b) => b[1].us - a[1].us).map(([operation, o]) => [
    operation, count(o.calls), micros(o.us / o.calls), atMost(o.classes, 0.5), atMost(o.classes, 0.99),
  ]);
  const length = (history.at(-1).at - history[0].at) / 1000, seconds = [120, 300].find((s) => s >= length) ?? SECONDS;
  const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : count(Math.round(n)));
  return el("section", { class: "card" },
    el("h2", {}, "Latency"),
    chart({ title: "99 of 100 requests took at most", lines: lines("p99"), seconds, show: micros, log: true, width }),
    chart({ title: "Requests in a second", lines: lines("rate"), seconds, show: rate, width }),
    el("h3", {}, `Since it is measured: ${span(profile.total.milliseconds / 1000)}`),
    table(["Operation", "#Calls", "#Mean", "#Half within", "#99% within"], rows, "No requests since then.", true),
    profile.notes.map((note) => el("p", { class: "faint" }, note)),
    el("div", { class: "acts" },
      button("Measure anew", () => acts.now("volume-profile", { name, action: "start" })),
      button("Stop measuring", () => acts.now("volume-profile", { name, action: "stop" }))));
}

function clients(report) {
  const rows = (report?.clients ?? []).map((c) => [shownHost(c.address), count(c.requests), bytes(c.read_bytes), bytes(c.written_bytes),
    count(c.open_files), span(c.seconds)]);
  return el("section", { class: "card" }, el("h2", {}, "Clients"),
    table(["Address", "#Requests", "#Read", "#Written", "#Open", "#Mounted"], rows, "Nobody has mounted it."));
}

export function volumePage(state, name, acts, width) {
  const volume = state.volumes?.find((v) => v.name === name);
  if (!volume) return el("p", { class: "lead" }, `There is no volume ${name}.`);
  const info = state.info?.find((v) => v.name === name), seen = state.seen.get(name) ?? { history: [] };
  const copies = info && (info.replica === 1 ? "distributed" : `replica ${info.replica}${info.arbiter ? ` arbiter ${info.arbiter}` : ""}`);
  const options = Object.entries(info?.options ?? {});
  return [
    el("a", { class: "back", href: "#volumes" }, "All volumes"),
    el("div", { class: "head" }, el("h1", {}, name), chip(...health(volume)), el("span", { class: "faint" },
      [copies, plural(sets(volume).size, "set"), plural(volume.bricks.length, "brick")].filter(Boolean).join(", "))),
    volume.notes.map((note) => el("p", { class: "alert warn" }, note)),
    el("section", { class: "card" }, roomBar(volume), actions(volume, acts, info)),
    volume.status === "started" && latencies(volume, seen, acts, width),
    el("section", { class: "card" }, el("h2", {}, "Sets and bricks"), [...sets(volume).values()].map(setTable)),
    volume.status === "started" && rebalanced(seen.rebalance),
    volume.status === "started" && clients(seen.clients),
    options.length > 0 && el("section", { class: "card" }, el("h2", {}, "Options that were set"),
      table(["Option", "Value"], options, "")),
  ];
}
