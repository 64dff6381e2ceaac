import assert from 'node:assert/strict';
import {test} from 'node:test';

import {createStories, matcher} from '../pages/rejections/stories.js';

const at = (second) => new Date(Date.UTC(2026, 0, 2, 9, 0, second)).toISOString();
const story = (id, count, more) => ({id, count, resource: 'job-42', code: 'token_stale', first_at: at(id % 60), last_at: at(id % 60), ...more});

test('the greater count is the newer one, in whatever order they come', () => {
  const stories = createStories(100);
  assert.equal(stories.merge([story(1, 2), story(2, 1)]), 2);
  assert.equal(stories.merge([story(1, 1), story(2, 1)]), 0);
  assert.equal(stories.merge([story(1, 5)]), 1);
  assert.deepEqual(stories.all().map((row) => [row.id, row.count]), [[2, 1], [1, 5]]);
});

test('a change keeps the others the same objects', () => {
  const stories = createStories(100);
  stories.merge([story(1, 1), story(2, 1)]);
  const [second] = stories.all();
  stories.merge([story(1, 2)]);
  assert.equal(stories.all()[0], second);
});

test('sorting', () => {
  const stories = createStories(100);
  stories.merge([story(1, 9, {late_ms: 5}), story(2, 1), story(3, 4, {late_ms: 50, token: 7})]);
  const ids = (id, order) => {
    stories.sort({id, order});
    return stories.all().map((row) => row.id);
  };
  assert.deepEqual(ids('count', 'desc'), [1, 3, 2]);
  assert.deepEqual(ids('late', 'asc'), [2, 1, 3]);
  assert.deepEqual(ids('token', 'desc'), [3, 2, 1]);
  assert.deepEqual(ids('first', 'asc'), [1, 2, 3]);
});

test('beyond the limit the oldest are dropped, and that is known', () => {
  const stories = createStories(100);
  stories.merge(Array.from({length: 105}, (_, id) => story(id, 1)));
  assert.equal(stories.dropped, false);
  stories.merge(Array.from({length: 50}, (_, id) => story(105 + id, 1)));
  assert.equal(stories.size, 100);
  assert.equal(stories.dropped, true);
  assert.equal(Math.min(...stories.all().map((row) => row.id)), 55);
  stories.clear();
  assert.deepEqual([stories.size, stories.dropped, stories.all()], [0, false, []]);
});

test('filters', () => {
  const stories = createStories(1);
  stories.merge([story(1, 1, {reason: 'superseded', door: 'http', owner_id: 'w', first_at: at(20), last_at: at(30)})]);
  const [row] = stories.all();
  for (const query of [{}, {resource: 'job-42'}, {prefix: 'job'}, {code: 'token_stale'}, {reason: 'superseded', door: 'http', owner_id: 'w'}, {since: at(30)}, {until: at(21)}]) {
    assert.ok(matcher(query)(row), JSON.stringify(query));
  }
  for (const query of [{resource: 'job'}, {prefix: 'ob'}, {code: 'token_unknown'}, {reason: 'reused'}, {door: 'sql'}, {owner_id: 'W'}, {since: at(31)}, {until: at(20)}]) {
    assert.ok(!matcher(query)(row), JSON.stringify(query));
  }
});
