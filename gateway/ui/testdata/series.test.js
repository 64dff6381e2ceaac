import assert from 'node:assert/strict';
import {test} from 'node:test';

import {areaPath, barPath, greatest, last, linePath, mergePoint, nearest, summary} from '../charts/series.js';

const point = (at, a) => ({at, values: a === undefined ? {} : {a}});
const same = (value) => value;

test('a gap is neither bridged nor drawn as zero', () => {
  const points = [point(0, 1), point(1, 2), point(2), point(3, 4), point(4), point(5, 6), point(6, 7)];
  assert.equal(linePath(points, 'a', same, same), 'M0 1L1 2M3 4m-2 0h4M5 6L6 7');
  assert.equal(areaPath(points.slice(0, 3), 'a', same, same, 9), 'M0 9L0 1L1 2L1 9z');
});

test('a line goes on over steps without anything to measure', () => {
  const idle = (at) => ({at, values: {a: null}});
  assert.equal(linePath([idle(0), point(1, 2), idle(2), idle(3), point(4, 5), point(5), point(6, 1)], 'a', same, same),
    'M1 2L4 5M6 1m-2 0h4');
  assert.deepEqual(mergePoint([point(0, 1), idle(6)], point(12, 4), {step: 6, range: 30}).map((each) => each.values.a),
    [1, null, 4]);
});

test('a small bar is visible', () => {
  const y = (value) => 10 - value;
  assert.equal(barPath([point(0, 0), point(4, 0.001), point(8, 5), point(9)], 'a', same, y, 2),
    'M3 10v-1h2v1zM7 10v-5h2v5z');
});

test('greatest, last and nearest value', () => {
  const points = [point(0, 1), point(10, 7), point(20)];
  assert.equal(greatest(points, ['a', 'b']), 7);
  assert.equal(last(points, 'a'), 7);
  assert.equal(last(points, 'b'), undefined);
  assert.equal(nearest(points, 14), 1);
  assert.equal(nearest(points, 99), 2);
  assert.equal(nearest([], 1), -1);
});

test('a summary has the last value and the range', () => {
  assert.equal(summary([point(0, 3), point(1, 1), point(2, 2)], 'a', String), 'now 2, 1 to 3');
  assert.equal(summary([point(0)], 'a', String), 'no values');
});

const ats = (points) => points.map((each) => [each.at, each.values.a]);

test('measurements are merged into their step', () => {
  const options = {step: 6, range: 30};
  let points = [point(0, 1), point(6, 2)];
  points = mergePoint(points, point(12, 4), options);
  points = mergePoint(points, point(14, 8), options);
  assert.deepEqual(ats(points), [[0, 1], [6, 2], [12, 6]]);
  points = mergePoint(points, point(16, 9), options);
  assert.deepEqual(ats(points).at(-1), [12, 7]);
  points = mergePoint(points, point(18), options);
  points = mergePoint(points, point(20, 5), options);
  assert.deepEqual(ats(points).at(-1), [18, 5]);
});

test('a complete step is not changed by measurements', () => {
  const points = [point(0, 1), point(6, 2)];
  assert.deepEqual(ats(mergePoint(points, point(8, 100), {step: 6, range: 30})), ats(points));
  assert.equal(mergePoint(points, point(4, 100), {step: 6, range: 30}), points);
});

test('steps without measurements are gaps', () => {
  const points = mergePoint([point(0, 1)], point(19, 2), {step: 6, range: 100});
  assert.deepEqual(ats(points), [[0, 1], [6, undefined], [12, undefined], [18, 2]]);
});

test('old points are dropped, even after a long pause', () => {
  const points = mergePoint([point(0, 1), point(6, 2)], point(1e12, 3), {step: 6, range: 12});
  assert.deepEqual(points.map((each) => each.values.a), [undefined, 3]);
  assert.deepEqual(ats(mergePoint([], point(7, 1), {step: 6, range: 12})), [[7, 1]]);
});
