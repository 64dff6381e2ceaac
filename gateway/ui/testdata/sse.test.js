import assert from 'node:assert/strict';
import {test} from 'node:test';

import {backoff, eventReader} from '../sse.js';

const stream = 'id: 7\nevent: rejection\ndata: {"a":1}\n\n:\n\ndata: x\ndata: y\n\nevent: nothing\n\n' +
  'id: 9\r\nevent: end\r\ndata: {}\r\n\r\n';
const events = [
  {event: 'rejection', data: '{"a":1}', id: '7'}, {event: 'message', data: 'x\ny', id: null},
    {event: 'end', data: '{}', id: '9'},
];

test('events are read from chunks of any size', () => {
  for (let size = 1; size <= stream.length; size++) {
    const feed = eventReader();
    const read = [];
    for (let at = 0; at < stream.length; at += size) read.push(...feed(stream.slice(at, at + size)));
    assert.deepEqual(read, events, `in pieces of ${size}`);
  }
});

test('an incomplete event is not returned', () => {
  const feed = eventReader();
  assert.deepEqual(feed('event: a\ndata: 1\n'), []);
  assert.deepEqual(feed('\n'), [{event: 'a', data: '1', id: null}]);
});

test('an id without an event is returned', () => {
  assert.deepEqual(eventReader()('id: 12\n\nevent: x\n\n'), [{event: '', data: null, id: '12'}]);
});

test('only one space after the colon is removed', () => {
  assert.equal(eventReader()('data:  x\n\n')[0].data, ' x');
  assert.equal(eventReader()('data:x\n\n')[0].data, 'x');
});

test('backoff grows, is bounded and random', () => {
  assert.equal(backoff(0, 0), 125);
  assert.equal(backoff(0, 1), 250);
  assert.equal(backoff(3, 1), 2000);
  for (const attempt of [6, 50, 5000]) assert.equal(backoff(attempt, 1), 10_000);
  assert.equal(backoff(50, 0), 5000);
});
