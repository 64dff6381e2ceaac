import assert from 'node:assert/strict';
import {test} from 'node:test';

import {index, lateRange, layout, paths, radius, tails} from '../charts/marks.js';
import {glyph, kindNames} from '../kinds.js';

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
const same = (value) => value;

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
