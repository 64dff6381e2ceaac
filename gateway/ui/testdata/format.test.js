import assert from 'node:assert/strict';
import {test} from 'node:test';

import {age, bytes, clockTime, compact, count, day, duration, plural, rate, segments, short, token, when} from '../format.js';

function table(name, format, rows) {
  test(name, () => {
    for (const [value, text] of rows) assert.equal(format(value), text, String(value));
  });
}

table('count', count, [[0, '0'], [999, '999'], [1234567, '1,234,567'], [undefined, '–'], [NaN, '–'], [null, '–']]);
table('compact', compact, [[0, '0'], [1.25, '1.3'], [999, '999'], [999.6, '1000'], [1000, '1k'], [1234, '1.2k'],
  [12345, '12k'], [999999, '1M'], [5.6e6, '5.6M']]);
table('rate', rate, [[0, '0'], [0.001, '<0.01'], [0.5, '0.50'], [1.25, '1.3'], [42.4, '42'], [12345.6, '12,346'],
  [undefined, '–']]);
table('duration', duration, [
  [0, '0 ms'], [0.25, '250 µs'], [1.234, '1.23 ms'], [12.34, '12.3 ms'], [340, '340 ms'], [999.6, '1 s'],
    [1500, '1.5 s'], [59_940, '59.9 s'], [59_990, '1 min'],
  [200_000, '3 min 20 s'], [3_600_000, '1 h'], [3_599_600, '1 h'], [7_500_000, '2 h 5 min'], [86_400_000, '1 d'],
    [273_600_000, '3 d 4 h'], [-1500, '−1.5 s'], [undefined, '–'],
]);
table('age', age, [[-50, 'now'], [0, 'now'], [1000, '1 s ago'], [59_999, '59 s ago'], [60_000, '1 min ago'],
  [7_200_000, '2 h ago'], [172_800_000, '2 d ago']]);
table('bytes', bytes, [[0, '0 B'], [1023, '1023 B'], [1024, '1 KiB'], [1536, '1.5 KiB'], [123 * 1024 * 1024, '123 MiB'],
  [2 ** 50, '1024 TiB']]);

test('durations in a column keep their decimals', () => {
  assert.deepEqual([1900, 12_000, 1.2, 340, 7_200_000].map((ms) => duration(ms, {fixed: true})),
    ['1.90 s', '12.0 s', '1.20 ms', '340 ms', '2 h']);
});

test('a long text is cut in its middle, and a name into segments at which a line may break', () => {
  assert.equal(short('abcdefghij', 10), 'abcdefghij');
  assert.equal(short('abcdefghijk', 10), 'abcdef…ijk');
  assert.equal([...short('👩'.repeat(9), 5)].length, 5);
  assert.deepEqual(segments('public.accounts'), ['public.', 'accounts']);
  assert.deepEqual(segments('jobs/63049505967088.2'), ['jobs/', '63049505967088.2']);
  assert.deepEqual(segments('a--b::c'), ['a--', 'b::', 'c']);
});

test('token', () => {
  assert.equal(token(34), '34');
  assert.equal(token(34, 2), '34.2');
  assert.equal(token(34, 0), '34.0');
  assert.equal(token(undefined), '–');
  assert.equal(token(2 ** 53 - 1), '9007199254740991');
});

test('times', () => {
  const at = new Date(2026, 0, 2, 3, 4, 5, 6);
  assert.equal(clockTime(at), '03:04:05');
  assert.equal(clockTime(at, {milliseconds: true}), '03:04:05.006');
  assert.equal(day(at), '2026-01-02');
  assert.equal(when(at, at), '03:04:05');
  assert.equal(when(at, new Date(2026, 0, 3)), '2026-01-02 03:04:05');
  assert.equal(clockTime('no time'), '–');
});

test('plural', () => {
  assert.equal(plural(1, 'write'), '1 write');
  assert.equal(plural(2000, 'group', 'groups'), '2,000 groups');
});
