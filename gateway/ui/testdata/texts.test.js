import assert from 'node:assert/strict';
import {test} from 'node:test';

import {age, bytes, clockTime, compact, count, day, duration} from '../format.js';
import {plural, rate, segments, short, token, when} from '../format.js';
import {fieldsOf, namedIn, operationsOf, proseOf, typeOf} from '../pages/api.js';
import {firstBytes, shownValue} from '../pages/lock-dialogs.js';

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

const shown = (bytes, whole = true) => shownValue({bytes: Uint8Array.from(bytes), whole});
const utf8 = (text) => new TextEncoder().encode(text);

test('UTF-8 is shown as it is', () => {
  for (const text of ['', 'plain', '{"a": "ü"}\n\t', '<script>alert(1)</script>', '\ufeffwith a mark']) {
    assert.deepEqual(shown(utf8(text)), {kind: 'text', text});
  }
});

test('a character that was cut is left out, unless the value ends there', () => {
  assert.deepEqual(shown(utf8('aü').subarray(0, 2), false), {kind: 'text', text: 'a'});
  assert.equal(shown(utf8('aü').subarray(0, 2)).kind, 'binary');
});

test('other bytes are shown as hexadecimal', () => {
  assert.deepEqual(shown([0x00, 0x41, 0xff]),
    {kind: 'binary', text: '0000  00 41 ff' + ' '.repeat(39) + '  .A.'});
  assert.equal(shown([0x1b, 0x5b, 0x41]).kind, 'binary'); // an escape sequence
  assert.equal(shown(new Array(2000).fill(0)).text.split('\n').length, 32);
});

test('no more is read than is shown', async () => {
  let canceled = false;
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(10)),
    cancel() {
      canceled = true;
    },
  });
  const read = await firstBytes(body, 25);
  assert.deepEqual([read.bytes.length, read.whole, canceled], [25, false, true]);
  const short = await firstBytes(new Blob(['abc']).stream(), 25);
  assert.deepEqual([new TextDecoder().decode(short.bytes), short.whole], ['abc', true]);
});

const document = {
  paths: {'/v1/locks': {parameters: [{$ref: '#/components/parameters/limit'}], get: {operationId: 'listLocks',
    tags: ['leases'], summary: 'List locks', responses: {200: {$ref: '#/components/responses/Locks'}}}}},
  components: {
    parameters: {limit: {name: 'limit', in: 'query', schema: {type: 'integer', minimum: 1, maximum: 9, default: 3}}},
    responses: {Locks: {description: 'A page.'}},
    schemas: {
      Lock: {type: 'object', required: ['lock'], properties: {lock: {type: 'string', description: 'Its name.'},
        below: {type: 'array', items: {$ref: '#/components/schemas/Lock'}}}},
      Locks: {allOf: [{properties: {locks: {type: 'array', items: {$ref: '#/components/schemas/Lock'}}}}],
        properties: {next: {type: 'string'}}},
    },
  },
};

test('an operation has the parameters of its path, and what references lead to', () => {
  assert.deepEqual(operationsOf(document), [{id: 'listLocks', method: 'GET', path: '/v1/locks', tag: 'leases',
    summary: 'List locks', description: undefined, request: undefined,
    parameters: [{name: 'limit', in: 'query', required: false, type: 'integer, 1 to 9, default 3', description: ''}],
    responses: [{status: '200', response: {description: 'A page.'}}]}]);
});

test('the fields of a schema, its parts, and the schemas that they name, also in a circle', () => {
  assert.deepEqual(fieldsOf(document, {$ref: '#/components/schemas/Locks'}).map((field) => `${field.name}: ${field.type}`),
    ['locks: array of Lock', 'next: string']);
  assert.deepEqual(fieldsOf(document, {$ref: '#/components/schemas/Lock'})[0],
    {name: 'lock', required: true, type: 'string', description: 'Its name.'});
  assert.deepEqual(namedIn(document, {$ref: '#/components/schemas/Lock'}), ['Lock']);
  assert.equal(typeOf({enum: ['free', 'held'], default: 'free'}), 'free | held, default free');
});

test('prose has paragraphs, code and strong words', () => {
  assert.deepEqual(proseOf('**A** `b`\nc\n\nd'),
    [[{strong: 'A'}, {text: ' '}, {code: 'b'}, {text: ' c'}], [{text: 'd'}]]);
});
