// Lines over time, drawn as SVG.

import { el, svg } from "./dom.js";

const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 22;

function steps(most, log) {
  if (log) return [100, 1e3, 1e4, 1e5, 1e6, 1e7].filter((v) => v <= most * 1.001);
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? power;
  return Array.from({ length: 6 }, (_, i) => i * step).filter((v) => v <= most * 1.001);
}

// `lines`: name and points [time in ms, value]; gaps are null. `show` writes a value.
export function chart({ title, lines, seconds, show, log, width }) {
  const height = 180, now = Math.max(...lines.flatMap((l) => l.points.map((p) => p[0])), 0);
  const values = lines.flatMap((l) => l.points.map((p) => p[1]).filter((v) => v !== null));
  const top = Math.max(...values, log ? 1000 : 1), most = log ? 10 ** Math.ceil(Math.log10(top)) : top * 1.1;
  const least = log ? 50 : 0;
  const x = (t) => LEFT + (width - LEFT - RIGHT) * (1 - (now - t) / (seconds * 1000));
  const share = (v) => (log ? Math.log(Math.max(v, least) / least) / Math.log(most / least) : v / most);
  const y = (v) => TOP + (height - TOP - BOTTOM) * (1 - share(v));
  const grid = steps(most, log).map((v) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }),
    svg("text", { class: "axis", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, show(v)),
  ]);
  const times = [0, 0.5, 1].map((part) => {
    const ago = Math.round((seconds * (1 - part)) / 60), anchor = ["start", "middle", "end"][part * 2];
    return svg("text", { class: "axis", x: x(now - ago * 60000), y: height - 6, "text-anchor": anchor }, ago ? `${ago} min ago` : "now");
  });
  const drawn = lines.map((line, i) => {
    let path = "", pen = false;
    for (const [t, v] of line.points.filter((p) => p[0] >= now - seconds * 1000)) {
      if (v !== null) path += `${pen ? "L" : "M"}${x(t).toFixed(1)} ${y(v).toFixed(1)}`;
      // A value alone is a dot.
      if (v !== null && !pen) path += "h.01";
      pen = v !== null;
    }
    return svg("path", { class: `line c${i}`, d: path });
  });
  const last = (line) => line.points.findLast((p) => p[1] !== null);
  const legend = lines.map((line, i) => el("li", {}, el("i", { class: `c${i}` }), line.name, " ",
    el("b", {}, last(line) && last(line)[0] === now ? show(last(line)[1]) : "-")));
  return el("figure", { class: "chart" },
    el("figcaption", {}, title, el("ul", { class: "legend" }, legend)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, grid, times, drawn));
}
