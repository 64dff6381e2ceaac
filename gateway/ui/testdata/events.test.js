import assert from 'node:assert/strict';
import {test} from 'node:test';

import {eventsOf} from '../pages/rejections/events.js';

const at = (second) => new Date(Date.UTC(2026, 0, 2, 9, 0, second)).toISOString();
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
