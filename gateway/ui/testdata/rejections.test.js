import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {codes, counted, isDefect, kindLabel, kindNames, kinds} from '../kinds.js';
import {createGroups, matcher} from '../pages/rejections/load.js';
import {eventsOf} from '../pages/rejections/words.js';

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

const rejection = {id: 7, resource: 'job-4', key: 'k', owner_id: 'worker-2', token: 9, sequence: 2, code: 'token_stale',
  reason: 'superseded', kind: 'zombie', superseded_by: 32, last_token: 32, last_sequence: 5, count: 3, source: 'http',
  first_at: at(40), last_at: at(45)};
const lease = {lock: 'job-4', owner_id: 'worker-2', fencing_token: 9, ttl_ms: 10_000, granted_at: at(0),
  expires_at: at(30), ended_at: at(30), end_reason: 'expired', in_session: false};
const successor = {lock: 'job-4', owner_id: 'worker-3', fencing_token: 32, granted_at: at(31)};

const ids = (detail) => eventsOf(detail).events.map((event) => event.id);
const text = (detail, id) => eventsOf(detail).events.find((event) => event.id === id).pieces
  .map((piece) => piece.name ?? piece).join('');

test('a zombie: granted, renewed, expired, taken over, written, rejected', () => {
  const detail = {rejection, lease, successor};
  assert.deepEqual(ids(detail), ['granted', 'renewed', 'ended', 'taken', 'wrote', 'refused', 'again']);
  assert.equal(eventsOf(detail).silentMS, 20_000); // from the last renewal, 10 s before the expiry
  assert.equal(text(detail, 'refused'), 'worker-2 writes k with token 9.2: rejected, token_stale (superseded). ' +
    'Nothing is stored.');
  assert.match(text(detail, 'wrote'), /worker-3 has written with 32\.5/);
});

test('what is not known is left out', () => {
  assert.deepEqual(ids({rejection: {...rejection, count: 1}}), ['refused']);
  const session = {...lease, in_session: true};
  assert.deepEqual(ids({rejection, lease: session, successor: undefined}), ['granted', 'ended', 'refused', 'again']);
  assert.equal(eventsOf({rejection, lease: session}).silentMS, null);
  const never = {...lease, expires_at: at(10), ended_at: at(10)}; // it was never renewed
  assert.deepEqual(ids({rejection, lease: never}), ['granted', 'ended', 'refused', 'again']);
  assert.equal(eventsOf({rejection, lease: never}).silentMS, 40_000);
});

test('a broken lease has its reason, and no silence', () => {
  const broken = {...lease, end_reason: 'broken', end_note: 'host a7 is dead'};
  assert.match(text({rejection, lease: broken}, 'ended'), /breaks the lease\. Reason: host a7 is dead/);
  assert.equal(eventsOf({rejection, lease: broken}).silentMS, null);
});

test('an end after the write is not part of it', () => {
  assert.deepEqual(ids({rejection: {...rejection, count: 1}, lease: {...lease, ended_at: at(50)}}).includes('ended'), false);
});

test('by SQL the write may have been stored', () => {
  const words = (row) => text({rejection: {...rejection, source: 'sql', ...row}}, 'refused');
  assert.match(words({}), /rejected.*Nothing is stored/);
  assert.doesNotMatch(words({key: '', address: 'local'}), /stored/); // fence.try_guard
  assert.match(words({address: 'local', observed: true}), /let through, token_stale.*observe\.$/);
});

const api = readFileSync(new URL('../../openapi.yaml', import.meta.url), 'utf8');
const enumOf = (schema) => api.match(new RegExp(`^    ${schema}: .*enum: \\[([^\\]]+)\\]`, 'm'))[1].split(', ').sort();

test('the page has a word for every kind and code of the API', () => {
  assert.deepEqual([...kindNames].sort(), enumOf('RejectionKind'));
  assert.deepEqual(Object.keys(codes).sort(), enumOf('RejectionCode'));
  assert.ok(kindNames.every((kind) => kinds[kind].label && kinds[kind].meaning && kinds[kind].nouns.length > 0));
});

test('zombies that were shut out and data conflicts are no defect of a client', () => {
  assert.deepEqual(kindNames.filter((kind) => !isDefect(kind)), ['zombie', 'conflict']);
});

test('a kind of a newer gateway has its own name', () => {
  assert.equal(kindLabel('ghost'), 'ghost');
  assert.equal(counted('ghost', 2), '2 other rejections');
  assert.equal(counted('zombie', 1), '1 zombie write');
  assert.equal(counted('reader', 2), '2 writes by readers');
});
