import assert from 'node:assert/strict';
import {test} from 'node:test';

import {createGroups, matcher} from '../pages/rejections/groups.js';

const at = (second) => new Date(Date.UTC(2026, 0, 2, 9, 0, second)).toISOString();
const group = (id, count, more) => ({id, count, resource: 'job-42', code: 'token_stale', first_at: at(id % 60),
  last_at: at(id % 60), ...more});

test('the row with the greater count wins, in any order', () => {
  const groups = createGroups(100);
  assert.equal(groups.merge([group(1, 2), group(2, 1)]), 2);
  assert.equal(groups.merge([group(1, 1), group(2, 1)]), 0);
  assert.equal(groups.merge([group(1, 5)]), 1);
  assert.deepEqual(groups.all().map((row) => [row.id, row.count]), [[2, 1], [1, 5]]);
});

test('a change of one row keeps the other objects', () => {
  const groups = createGroups(100);
  groups.merge([group(1, 1), group(2, 1)]);
  const [second] = groups.all();
  groups.merge([group(1, 2)]);
  assert.equal(groups.all()[0], second);
});

test('rows are sorted by each key', () => {
  const groups = createGroups(100);
  groups.merge([group(1, 9, {late_ms: 5}), group(2, 1), group(3, 4, {late_ms: 50, token: 7})]);
  const ids = (id, order) => {
    groups.sort({id, order});
    return groups.all().map((row) => row.id);
  };
  assert.deepEqual(ids('count', 'desc'), [1, 3, 2]);
  assert.deepEqual(ids('late', 'asc'), [2, 1, 3]);
  assert.deepEqual(ids('token', 'desc'), [3, 2, 1]);
  assert.deepEqual(ids('first', 'asc'), [1, 2, 3]);
});

test('beyond the limit the oldest rows are dropped, and dropped is set', () => {
  const groups = createGroups(100);
  groups.merge(Array.from({length: 105}, (_, id) => group(id, 1)));
  assert.equal(groups.dropped, false);
  groups.merge(Array.from({length: 50}, (_, id) => group(105 + id, 1)));
  assert.equal(groups.size, 100);
  assert.equal(groups.dropped, true);
  assert.equal(Math.min(...groups.all().map((row) => row.id)), 55);
  groups.clear();
  assert.deepEqual([groups.size, groups.dropped, groups.all()], [0, false, []]);
});

test('the matcher applies every filter', () => {
  const groups = createGroups(1);
  groups.merge([group(1, 1, {reason: 'superseded', kind: 'zombie', source: 'http', owner_id: 'w', first_at: at(20), last_at: at(30)})]);
  const [row] = groups.all();
  for (const query of [{}, {resource: 'job-42'}, {prefix: 'job'}, {code: 'token_stale'}, {kind: 'zombie'},
    {reason: 'superseded', source: 'http', owner_id: 'w'}, {since: at(30)}, {until: at(21)}]) {
    assert.ok(matcher(query)(row), JSON.stringify(query));
  }
  for (const query of [{resource: 'job'}, {prefix: 'ob'}, {code: 'token_unknown'}, {reason: 'reused'}, {kind: 'conflict'}, {source: 'sql'},
    {owner_id: 'W'}, {since: at(31)}, {until: at(20)}]) {
    assert.ok(!matcher(query)(row), JSON.stringify(query));
  }
});
