// Points in time, and their drawing. Pure.
//
// A point is {at: milliseconds, values: {id: number}}. A missing value is a gap: it was not measured, and is not zero. null
// is no gap: there was nothing to measure, such as the duration of no writes, and the line goes on to the next value.
//
//   linePath(points, id, x, y) → the path of one series; a value between two gaps is a short, visible stroke
//   areaPath(points, id, x, y, base) → the area below it
//   barPath(points, id, x, y, width) → a bar for each value above 0, from y(0) up
//   greatest(points, ids) → the greatest value, 0 if there is none
//   last(points, id) → the newest value, or undefined
//   nearest(points, at) → the index of the point with the nearest time, -1 if there are none
//   summary(points, id, format) → "now 12, 3 to 40", for screen readers
//   mergePoint(points, point, {step, range}) → points, with one more measurement in its step; see below

const n = (value) => Math.round(value * 10) / 10;

const isValue = (value) => typeof value === 'number' && Number.isFinite(value);

// runs are the stretches without a gap.
function runs(points, id) {
  const all = [];
  let run = null;
  for (const point of points) {
    const value = point.values[id];
    if (value === null) continue;
    if (!isValue(value)) {
      run = null;
      continue;
    }
    if (run === null) all.push(run = []);
    run.push([point.at, value]);
  }
  return all;
}

export function linePath(points, id, x, y) {
  return runs(points, id).map((run) => {
    const path = run.map(([at, value]) => `${n(x(at))} ${n(y(value))}`);
    return 'M' + path.join('L') + (path.length === 1 ? 'm-2 0h4' : '');
  }).join('');
}

export function areaPath(points, id, x, y, base) {
  return runs(points, id).map((run) => {
    const path = run.map(([at, value]) => `${n(x(at))} ${n(y(value))}`);
    return `M${n(x(run[0][0]))} ${n(base)}L${path.join('L')}L${n(x(run.at(-1)[0]))} ${n(base)}z`;
  }).join('');
}

export function barPath(points, id, x, y, width) {
  return points.filter((point) => point.values[id] > 0).map((point) => {
    const height = Math.max(1, y(0) - y(point.values[id])); // a single write must be visible
    return `M${n(x(point.at) - width / 2)} ${n(y(0))}v${n(-height)}h${n(width)}v${n(height)}z`;
  }).join('');
}

export function greatest(points, ids) {
  let max = 0;
  for (const point of points) for (const id of ids) if (point.values[id] > max) max = point.values[id];
  return max;
}

export function last(points, id) {
  return points.findLast((point) => isValue(point.values[id]))?.values[id];
}

export function nearest(points, at) {
  let best = -1;
  points.forEach((point, index) => {
    if (best < 0 || Math.abs(point.at - at) < Math.abs(points[best].at - at)) best = index;
  });
  return best;
}

export function summary(points, id, format) {
  const values = points.map((point) => point.values[id]).filter(isValue);
  if (values.length === 0) return 'no values';
  return `now ${format(values.at(-1))}, ${format(Math.min(...values))} to ${format(Math.max(...values))}`;
}

// mergePoint puts a measurement into its step: the mean of the measurements in that step so far, which are equally
// long. That is the best estimate until the gateway returns the whole step. Points older than the range are dropped.
// It returns a new array.
export function mergePoint(points, point, {step, range}) {
  const known = points.at(-1);
  const start = known === undefined ? point.at : known.at + Math.floor((point.at - known.at) / step) * step;
  if (known !== undefined && start < known.at) return points; // of a step that is complete
  const before = start === known?.at ? known : null;
  const merged = points.slice(0, before ? -1 : undefined);
  const gaps = Math.max((known?.at ?? start) + step, start - Math.floor(range / step) * step);
  for (let gap = gaps; gap < start; gap += step) merged.push({at: gap, values: {}});
  merged.push(before ? mean(before, point) : {at: start, values: point.values, parts: 1});
  return merged.filter((each) => each.at > start - range);
}

function mean(before, point) {
  if (!before.parts) return before; // complete, from the gateway
  const values = {};
  for (const id of new Set([...Object.keys(before.values), ...Object.keys(point.values)])) {
    const [a, b] = [before.values[id], point.values[id]];
    values[id] = isValue(a) && isValue(b) ? (a * before.parts + b) / (before.parts + 1) : isValue(b) ? b : a;
  }
  return {at: before.at, values, parts: before.parts + 1};
}
