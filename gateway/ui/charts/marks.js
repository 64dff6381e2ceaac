// The layout of marks on the timeline of stale writes. Pure. Rows are those of pages/rejections/load.js.
//
//   lateRange(rows) → [from, to] in ms, for a logarithmic axis: whole ticks around all lateness, at least three of them
//   radius(count) → of a mark, in pixels: 3 for a group of one write, 8 for one of a thousand
//   layout(rows, x, y, laneY) → [{row, x, y, r}]; laneY(row) is the place of a row without lateness
//   paths(marks, glyph) → {kind: path}
//   tails(marks, x, y) → the path of growing groups, from the first write to the last
//   index(marks) → (x, y, within) → the nearest mark within so many pixels, or null

import {lateTicks} from './plot.js';

const day = 86_400_000;

export function lateRange(rows) {
  let min = Infinity, max = 0;
  for (const {late_ms: late} of rows) {
    if (late === undefined) continue;
    if (late < min) min = late;
    if (late > max) max = late;
  }
  if (max === 0 && min === Infinity) return [100, 60_000];
  const ticks = lateTicks(1, 30 * day);
  let from = ticks.findLastIndex((tick) => tick <= Math.max(1, min));
  let to = ticks.findIndex((tick) => tick >= max);
  if (to < 0) to = ticks.length - 1;
  while (to - from < 3) {
    if (to < ticks.length - 1) to++;
    if (to - from < 3 && from > 0) from--;
  }
  return [ticks[from], ticks[to]];
}

export function radius(count) {
  return Math.min(11, 3 + 1.7 * Math.log10(Math.max(1, count)));
}

export function layout(rows, x, y, laneY) {
  const size = Math.max(0.5, Math.min(1, Math.sqrt(1000 / rows.length))); // many are smaller, to stay distinguishable
  return rows.map((row) => ({
    row,
    x: x(row.lastMS),
    y: row.late_ms === undefined ? laneY(row) + spread(row.id) : y(row.late_ms),
    r: size * radius(row.count),
  }));
}

// spread separates groups of about the same time in the lane; a group keeps its height.
function spread(id) {
  return ((id * 7) % 13) * 2 - 12;
}

export function paths(marks, glyph) {
  const parts = {};
  for (const mark of marks) (parts[mark.row.kind] ??= []).push(glyph(mark.row.kind, mark.x, mark.y, mark.r));
  return Object.fromEntries(Object.entries(parts).map(([code, list]) => [code, list.join('')]));
}

// Each write of a growing group is later than the one before: on this chart the group rises along a curve of points.
export function tails(marks, x, y) {
  const n = (value) => Math.round(value * 10) / 10;
  const parts = [];
  for (const {row} of marks) {
    if (row.late_ms === undefined || row.count < 2) continue;
    const last = row.lastMS;
    const length = Math.min(last - row.firstMS, row.late_ms);
    const pixels = x(last) - x(last - length);
    if (pixels < 3) continue;
    const steps = Math.min(12, 2 + Math.floor(pixels / 12));
    const points = Array.from({length: steps + 1}, (_, at) => {
      const before = length * (1 - (at / steps) ** 2); // denser at the beginning, where the curve is steep
      return `${n(x(last - before))} ${n(y(row.late_ms - before))}`;
    });
    parts.push('M' + points.join('L'));
  }
  return parts.join('');
}

// The index is built when the pointer is on the chart, which is rarer than drawing.
const cell = 16;

export function index(marks) {
  let cells = null;
  function fillCells() {
    cells = new Map();
    for (const mark of marks) {
      const key = Math.floor(mark.x / cell) + ':' + Math.floor(mark.y / cell);
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(mark);
    }
  }
  return function nearest(x, y, within = cell) {
    if (cells === null) fillCells();
    let best = null, distance = within;
    for (let cx = Math.floor((x - within) / cell); cx <= Math.floor((x + within) / cell); cx++) {
      for (let cy = Math.floor((y - within) / cell); cy <= Math.floor((y + within) / cell); cy++) {
        for (const mark of cells.get(cx + ':' + cy) ?? []) {
          const away = Math.max(0, Math.hypot(mark.x - x, mark.y - y) - mark.r + 0.01);
          if (away < distance) [best, distance] = [mark, away];
        }
      }
    }
    return best;
  };
}
