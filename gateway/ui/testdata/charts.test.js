import assert from 'node:assert/strict';
import {test} from 'node:test';

import {index, lateRange, layout, paths, radius, tails} from '../charts/marks.js';
import {lateTicks, linear, logarithmic, niceTicks, timeTicks} from '../charts/plot.js';
import {areaPath, barPath, greatest, last, linePath, mergePoint, nearest, summary} from '../charts/series.js';
import {edgesOf, keyOf, ranksOf} from '../charts/waits.js';
import {elapsed, remaining} from '../clock.js';
import {glyph, kindNames} from '../kinds.js';

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

test('a linear scale interpolates and extrapolates', () => {
  const x = linear(0, 10, 100, 200);
  assert.deepEqual([0, 5, 10, 20].map(x), [100, 150, 200, 300]);
  assert.equal(linear(3, 3, 1, 2)(3), 1);
});

test('a logarithmic scale clamps values', () => {
  const y = logarithmic(1, 1000, 300, 0);
  for (const [value, position] of [[1, 300], [10, 200], [1000, 0], [0, 300],
    [1e9, 0]]) assert.ok(Math.abs(y(value) - position) < 1e-9, String(value));
});

test('ticks are round, start at 0 and reach the greatest value', () => {
  assert.deepEqual(niceTicks(10, 4), [0, 5, 10]);
  assert.deepEqual(niceTicks(0.7, 4), [0, 0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(niceTicks(0, 4), [0, 0.5, 1]);
  assert.deepEqual(niceTicks(NaN, 4), [0, 0.5, 1]);
  for (let max = 0.001; max < 1e7; max *= 1.37) {
    const ticks = niceTicks(max, 4);
    assert.ok(ticks.at(-1) >= max * 0.9999 && ticks.length >= 3 && ticks.length <= 6, `${max}: ${ticks}`);
  }
});

test('time ticks are at whole units, and few', () => {
  const from = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
  for (const range of [60_000, 300_000, 3_600_000, 86_400_000, 7 * 86_400_000, 90 * 86_400_000]) {
    const {ticks, step} = timeTicks(from, from + range, 8);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, `${range}: ${ticks.length}`);
    const zone = new Date(from).getTimezoneOffset() * 60_000;
    for (const tick of ticks) assert.ok(tick >= from && tick <= from + range && (tick - zone) % step === 0);
  }
});

test('lateness ticks are familiar durations', () => {
  assert.deepEqual(lateTicks(1, 60_000), [1, 10, 100, 1000, 10_000, 60_000]);
  assert.deepEqual(lateTicks(100, 3_600_000), [100, 1000, 10_000, 60_000, 600_000, 3_600_000]);
});

test('the axis of lateness includes every row and spans at least three ticks', () => {
  assert.deepEqual(lateRange([]), [100, 60_000]);
  assert.deepEqual(lateRange([{}]), [100, 60_000]);
  assert.deepEqual(lateRange([{late_ms: 17_500}]), [1000, 600_000]);
  assert.deepEqual(lateRange([{late_ms: 0}, {late_ms: 90_000_000}]), [1, 604_800_000]);
  assert.deepEqual(lateRange([{late_ms: 1e12}]).at(-1), 2_592_000_000);
});

test('the radius grows with the count, within bounds', () => {
  assert.equal(radius(1), 3);
  assert.ok(radius(10) > radius(2) && radius(1e9) === 11 && radius(0) === 3);
});

const row = (id, more) => ({id, kind: 'zombie', count: 1, firstMS: 100, lastMS: 100, ...more});

test('marks are at their time and lateness', () => {
  const marks = layout([row(1, {late_ms: 40}), row(2)], same, same, () => 77);
  assert.deepEqual(marks.map(({x, y, r}) => [x, y, r]), [[100, 40, 3], [100, 67, 3]]);
});

test('marks of one kind are one path', () => {
  const made = paths(layout([row(1), row(2), row(3, {kind: 'conflict'}), row(4, {kind: 'not_known_yet'})], same,
    same, () => 0), glyph);
  assert.deepEqual(Object.keys(made), ['zombie', 'conflict', 'not_known_yet']);
  assert.equal(made.zombie.split('M').length - 1, 2);
});

test('every kind has its own shape', () => {
  assert.equal(new Set(kindNames.map((kind) => glyph(kind, 0, 0, 5))).size, kindNames.length);
});

test('a growing group has a tail from its first write to its last', () => {
  const marks = layout([row(1, {late_ms: 60, count: 3, firstMS: 50})], same, same, () => 0);
  const tail = tails(marks, same, same);
  assert.ok(tail.startsWith('M50 10L') && tail.endsWith('L100 60'), tail);
  assert.equal(tails(layout([row(1, {late_ms: 60, count: 3}), row(2, {count: 9})], same, same, () => 0), same, same), '');
});

test('the index finds the nearest of all marks', () => {
  const marks = Array.from({length: 500}, (_, id) => ({row: {id}, x: (id * 7919) % 1000, y: (id * 104729) % 300,
    r: 3 + (id % 7)}));
  const nearest = index(marks);
  for (let at = 0; at < 200; at++) {
    const [x, y] = [(at * 31) % 1000, (at * 17) % 300];
    const found = nearest(x, y, 16);
    const away = (mark) => Math.max(0, Math.hypot(mark.x - x, mark.y - y) - mark.r + 0.01);
    const best = Math.min(...marks.map(away));
    // The index searches centres within `within`: an edge may be nearer.
    if (found) assert.ok(away(found) <= best + 11, `${x},${y}`);
    else assert.ok(marks.every((mark) => Math.hypot(mark.x - x, mark.y - y) > 16 - 1), `${x},${y}`);
  }
  assert.equal(index([])(1, 1), null);
});

const wait = (owner, lock, holders, before) => ({owner_id: owner, lock, mode: 'exclusive',
  queued_at: '2026-01-02T09:00:00.000Z',
  for: [...holders.map((each) => ({owner_id: each, relation: 'holds'})),
    ...before.map((each) => ({owner_id: each, relation: 'before'}))]});

const ownerOf = (key) => JSON.parse(key)[0];
const texts = (edges) => edges.map((edge) =>
  `${ownerOf(edge.from)} ${edge.relation} ${ownerOf(edge.to)} ${edge.lock}`).sort();

test('edges that follow from others are not drawn', () => {
  const waits = [wait('b', 'l', ['a'], []), wait('c', 'l', ['a'], ['b']), wait('d', 'l', ['a'], ['b', 'c'])];
  assert.deepEqual(texts(edgesOf(waits)), ['b holds a l', 'c before b l', 'd before c l']);
});

test('each of several holders has an edge', () => {
  assert.deepEqual(texts(edgesOf([wait('w', 'l', ['r1', 'r2'], [])])), ['w holds r1 l', 'w holds r2 l']);
});

test('a waiter is ranked beyond every owner that it waits for', () => {
  const edges = edgesOf([wait('b', 'l', ['a'], []), wait('a', 'm', ['z'], []), wait('c', 'l', ['a'], ['b'])]);
  assert.deepEqual(Object.fromEntries([...ranksOf(edges)].map(([key, rank]) => [ownerOf(key), rank])), {z: 0, a: 1, b: 2, c: 3});
});

test('ranking ends for a cycle', () => {
  const edges = edgesOf([wait('a', 'l', ['b'], []), wait('b', 'm', ['a'], [])]);
  assert.equal(ranksOf(edges).size, 2);
});

test('owners with odd names stay distinct', () => {
  const waits = [wait('a","b', 'l', ['c'], []), wait('a', 'l', ['b","c'], [])];
  assert.equal(edgesOf(waits).length, 2);
  assert.deepEqual(texts(edgesOf([wait('__proto__', 'l', ['constructor'], [])])), ['__proto__ holds constructor l']);
});

test('the same owner_id of two principals is two owners', () => {
  const waits = [
    {...wait('w', 'l', [], []), principal: 'p', for: [{owner_id: 'w', principal: 'q', relation: 'holds'}]},
    {...wait('w', 'm', [], []), principal: 'q', for: [{owner_id: 'w', relation: 'holds'}]},
  ];
  const ranks = ranksOf(edgesOf(waits));
  const rank = (principal) => ranks.get(keyOf({owner_id: 'w', principal}));
  assert.deepEqual([rank('p'), rank('q'), rank(undefined)], [2, 1, 0]);
});

test('remaining and elapsed change once a second', () => {
  assert.deepEqual([-5, 0, 1, 365, 1000, 1500, 59_999, 60_000, 61_000, 3_599_000].map(remaining),
    ['expired', 'expired', '<1 s', '<1 s', '1 s', '1 s', '59 s', '1 min 00 s', '1 min 01 s', '59 min 59 s']);
  assert.deepEqual([-5, 0, 999, 1000, 60_000].map(elapsed), ['0 s', '0 s', '0 s', '1 s', '1 min 00 s']);
});
