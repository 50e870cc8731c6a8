// The views of the whole pool.

import { bar, button, bytes, chip, count, el, plural, shownHost, table } from "./dom.js";
import { actions, healing, health, room, roomBar, sets } from "./volume.js";

export const VIEWS = [["overview", "Overview"], ["volumes", "Volumes"], ["servers", "Servers"], ["events", "Events"]];

const time = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const day = (ms) => new Date(ms).toLocaleDateString("en-CA");

function tile(title, value, words, level, more) {
  return el("div", { class: `tile ${level ?? ""}` }, el("h2", {}, title), el("p", { class: "value" }, value),
    el("p", { class: "faint" }, words), more);
}

const connected = (p) => p.connected === true && !p.lost;

function tiles(state) {
  const { peers } = state.pool, up = peers.filter(connected).length;
  const started = state.volumes.filter((v) => v.status === "started");
  const bricks = started.flatMap((v) => v.bricks), synced = bricks.filter((b) => b.in_sync && b.online).length;
  const heals = bricks.filter((b) => b.heal).length;
  const all = started.map(room), total = all.reduce((n, r) => n + r.total, 0), used = all.reduce((n, r) => n + r.used, 0);
  const leader = peers.find((p) => p.id === state.pool.leader)?.host;
  const offline = started.some((v) => health(v)[0] === "bad");
  return el("div", { class: "tiles" },
    tile("Servers", `${up} of ${peers.length}`, leader ? `connected, ${shownHost(leader)} leads` : "nobody leads", up < peers.length ? "bad" : "good"),
    tile("Volumes", `${started.length} of ${state.volumes.length}`, "started", offline ? "bad" : ""),
    tile("Bricks", `${synced} of ${bricks.length}`, heals ? `in sync, ${heals} healing` : "in sync", synced < bricks.length ? "warn" : "good"),
    tile("Room", total ? bytes(total - used) : "-", total ? `free of ${bytes(total)}` : "no started volume", "",
      total > 0 && bar(used / total, "Room used")));
}

// Findings that differ in their object only.
function alike(findings) {
  const all = new Map();
  for (const f of findings) {
    const what = JSON.stringify([f.severity, f.cause, f.remedy]);
    all.set(what, [...(all.get(what) ?? []), f]);
  }
  return [...all.values()];
}

function found(doctor, notes) {
  const findings = doctor?.findings ?? [];
  if (findings.length === 0 && notes.length === 0) {
    return doctor ? el("p", { class: "alert good" }, `Nothing is wrong: ${plural(doctor.checked.length, "thing")} looked at.`) : null;
  }
  return el("section", { class: "card" }, el("h2", {}, "To look after"), el("ul", { class: "findings" },
    notes.map((note) => el("li", {}, chip("warn", "note"), el("div", {}, note))),
    alike(findings).map(([f, ...more]) => el("li", {}, chip(f.severity === "error" ? "bad" : "warn", f.severity),
      el("div", {}, el("b", {}, f.object), ": ", f.cause, el("br"), el("small", {}, f.remedy),
        more.length > 0 && el("details", {}, el("summary", {}, `The same of ${count(more.length)} more`),
          more.map((other) => el("div", {}, other.object))))))));
}

function heals(volumes) {
  const rows = volumes.flatMap((v) => v.bricks.filter((b) => b.heal).map((b) => [
    el("a", { href: `#volumes/${v.name}` }, v.name), el("span", { class: "path" }, `${shownHost(b.server)}:${b.path}`), healing(b),
  ]));
  return rows.length > 0 && el("section", { class: "card" }, el("h2", {}, "Healing"), table(["Volume", "Brick", "Done"], rows, ""));
}

function eventList(events) {
  return el("ol", { class: "events" }, events.map((e) => el("li", {},
    el("time", { datetime: new Date(e.at_ms).toISOString() }, el("span", { class: "day" }, day(e.at_ms)), " ", time(e.at_ms)),
    chip(e.kind === "admin" ? "main" : "", e.kind),
    el("div", {}, e.who && el("b", {}, `${e.who}: `), e.text, el("small", {}, ` ${shownHost(e.server)}`)))));
}

export function overview(state) {
  const newest = [...(state.events?.events ?? [])].reverse().slice(0, 8);
  return [
    tiles(state),
    found(state.doctor, state.pool.notes),
    heals(state.volumes),
    el("section", { class: "card" }, el("h2", {}, "Volumes"), table(["Volume", "State", "Room"], state.volumes.map((v) => [
      el("a", { href: `#volumes/${v.name}` }, v.name), chip(...health(v)), v.status === "started" ? roomBar(v) : "-",
    ]), "There is none yet: mortar volume create makes one.")),
    newest.length > 0 && el("section", { class: "card" }, el("h2", {}, "Newest events"), eventList(newest),
      el("p", {}, el("a", { href: "#events" }, "More events"))),
  ];
}

export function volumes(state, acts) {
  if (state.volumes.length === 0) return el("p", { class: "lead" }, "There is no volume yet: mortar volume create makes one.");
  return el("div", { class: "cards" }, state.volumes.map((v) => el("section", { class: "card" },
    el("div", { class: "head" }, el("h2", {}, el("a", { href: `#volumes/${v.name}` }, v.name)), chip(...health(v))),
    el("p", { class: "faint" }, `${plural(sets(v).size, "set")}, ${plural(v.bricks.length, "brick")}`),
    roomBar(v), v.notes.map((note) => el("p", { class: "alert warn" }, note)),
    actions(v, acts, state.info?.find((i) => i.name === v.name)))));
}

export function servers(state, acts) {
  const { peers, leader, me } = state.pool;
  const bricks = (of) => state.volumes.flatMap((v) => v.bricks).filter((b) => b.server === of).length;
  const drain = (of) => acts.confirm({
    title: `Move all bricks from ${shownHost(of)}?`, type: of, word: "Move its bricks", danger: true,
    text: "Each brick gets a new directory on another server, and leaves when that one is in sync. Volumes stay in use. " +
      "A server without bricks can be detached by command.",
  }, "peer-drain", { host: of });
  const rows = peers.map((p) => [
    [el("b", {}, shownHost(p.host)), p.id === me && el("small", {}, " this one")], el("span", { class: "path" }, p.address),
    p.lost ? chip("bad", "fenced off") : p.connected === true ? chip("good", "connected") : p.connected === false ? chip("bad", "silent") : chip("", "unknown"),
    [p.role, p.id === leader && ", leads"], count(bricks(p.host)),
    bricks(p.host) > 0 && peers.length > 1 ? button("Drain", () => drain(p.host), "danger") : "",
  ]);
  return [
    el("section", { class: "card" }, el("h2", {}, "Servers"), table(["Server", "Address", "State", "Vote", "#Bricks", ""], rows, "")),
    state.pool.notes.map((note) => el("p", { class: "alert warn" }, note)),
  ];
}

export function events(state) {
  const { events: all, notes } = state.events ?? { events: [], notes: [] };
  return el("section", { class: "card" }, el("h2", {}, "Events"),
    notes.map((note) => el("p", { class: "alert warn" }, note)),
    all.length > 0 ? eventList([...all].reverse()) : el("p", { class: "faint" }, "Nothing has happened yet."));
}
