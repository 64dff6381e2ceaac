import assert from 'node:assert/strict';
import {test} from 'node:test';

import {firstBytes, shownValue} from '../value.js';

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
