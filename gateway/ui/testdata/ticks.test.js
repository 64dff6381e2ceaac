import assert from 'node:assert/strict';
import {test} from 'node:test';

import {lateTicks, linear, logarithmic, niceTicks, timeTicks} from '../charts/ticks.js';

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
