import assert from 'node:assert/strict';
import {test} from 'node:test';

import {acceptedText} from '../pages/overview/figures.js';
import {countsOf, leadOf} from '../pages/overview/headline.js';
import {problems} from '../pages/overview/problems.js';
import {fitting, inWords, lateness, noLease} from '../pages/rejections/words.js';

const point = (values) => ({at: 0, values});
const text = (pieces) => pieces.map((piece) => piece.name ?? piece).join('');

test('points add up to writes by kind', () => {
  assert.deepEqual(countsOf([point({zombie: 1.5, conflict: 0}), point({}), point({zombie: 17})], 2000), {zombie: 37});
  assert.deepEqual(countsOf([point({reader: 0.001})], 2000), {reader: 1}); // a share of a late sample is not nothing
  assert.deepEqual(countsOf([], 2000), {});
  assert.deepEqual(countsOf([point({passed: 1})], 2000), {passed: 2});
});

test('the headline counts zombies, and names the rest', () => {
  const lead = leadOf({zombie: 37, conflict: 2}, null);
  assert.equal(lead.text, '37 zombie writes shut out in the last hour; none stored.');
  assert.equal(lead.others, 'Also rejected: 2 data conflicts.');
  assert.equal(lead.defects, '');
});

test('the headline warns of defects of clients alone', () => {
  assert.deepEqual(leadOf({}, null),
    {zombies: 0, text: 'No zombie wrote in the last hour.', passed: '', defects: '', others: ''});
  assert.equal(leadOf({conflict: 12_000}, null).defects, '');
  assert.equal(leadOf({numbering: 1, misuse: 2, conflict: 3}, null).defects,
    'Client bugs: 1 reused number, 2 writes without a valid token');
});

test('a zombie write that passed is neither none nor shut out', () => {
  const lead = leadOf({passed: 2, conflict: 1}, null);
  assert.equal(lead.text, 'No zombie write was shut out in the last hour.');
  assert.match(lead.passed, /^2 zombie writes by SQL passed: /);
  assert.equal(lead.others, 'Also rejected: 1 data conflict.');
  assert.equal(leadOf({zombie: 1, passed: 1}, null).text, '1 zombie write shut out in the last hour; none stored.');
});

test('accepted writes that nobody has counted are not 0', () => {
  const point = (accepted, failed = 0) => ({accepted_per_s: accepted, failed_per_s: failed});
  const text = (...of) => Object.values(acceptedText(...of)).slice(0, 2).join(' ');
  assert.equal(text({guards_by_sql: 7}, point(0)), '0 none failed');
  assert.equal(text({}, point(0)), '– SQL not counted');
  assert.equal(text({}, point(5)), '5.0 SQL not counted');
  assert.equal(text({guards_by_sql: 7}, undefined), '– not measured');
  assert.equal(text({}, point(5, 1)), '5.0 ✕ 1.0/s failed');
});

test('the headline of a gateway that has started within the hour says since when', () => {
  assert.equal(leadOf({}, new Date(2026, 0, 2, 3, 4, 5).getTime()).text, 'No zombie wrote since 03:04:05.');
});

const row = {owner_id: 'worker-2', resource: 'job-4', token: 9, late_ms: 1300, kind: 'zombie', code: 'token_stale',
  reason: 'superseded', superseded_by: 32};

test('a zombie in words', () => {
  const successor = {owner_id: 'worker-3', fencing_token: 32};
  assert.equal(text(inWords(row, {successor})),
    'worker-2 on job-4, token 9, 1.3 s late; worker-3 had taken over with 32');
  assert.equal(text(inWords(row, {successor: {owner_id: 'worker-2', fencing_token: 32}})),
    'worker-2 on job-4, token 9, 1.3 s late; it had acquired the lock again, with 32');
  assert.equal(text(inWords(row)), 'worker-2 on job-4, token 9, 1.3 s late; the newest token was 32');
  const released = {...row, reason: 'released', superseded_by: undefined};
  assert.match(text(inWords(released, {lease: {end_reason: 'broken'}})), /; its lease had been broken$/);
  assert.match(text(inWords(released)), /; its lease had been released$/);
  assert.match(text(inWords({...released, reason: '', code: 'lease_expired'})), /; its lease had expired$/);
});

test('how late a write was, where that is known', () => {
  assert.equal(lateness(row), '1.3 s');
  assert.equal(lateness({...row, late_ms: undefined}), 'unknown');
  assert.equal(lateness({kind: 'conflict'}), '');
});

test('others in words', () => {
  const base = {...row, superseded_by: undefined, late_ms: undefined};
  assert.equal(text(inWords({...base, kind: 'numbering', reason: 'reused', last_token: 9, last_sequence: 4})),
    'worker-2 on job-4, token 9; 9.4 was accepted');
  assert.equal(text(inWords({...base, kind: 'conflict', code: 'version_mismatch', reason: undefined},
    {lease: {end_reason: 'expired'}})), 'worker-2 on job-4, token 9');
  assert.equal(text(inWords({...base, owner_id: undefined, token: undefined, kind: 'misuse', reason: undefined})),
    'an unknown writer on job-4, without a token');
  assert.equal(text(inWords({...row, owner_id: undefined, principal: 'sql:app', late_ms: undefined})),
    `sql:app on job-4, token 9; the newest token was 32; ${noLease}`);
});

test('the shortest range that has data', () => {
  const lengths = [15, 60, 360, null];
  assert.deepEqual([0, 15, 16, 61, 9999].map((ms) => fitting(ms, lengths)), [15, 15, 60, 360, 360]);
});

const good = {state: 'ok', connections: 10, connections_max: 100, synchronous_expected: false};
const serving = {state: 'serving', listening: true};
const found = (document) => problems({database: good, gateways: [serving], ...document});

test('a healthy system has no problems', () => {
  assert.deepEqual(found({}), []);
  assert.deepEqual(problems({database: {state: 'ok'}}), []);
  assert.deepEqual(found({inventory: {oldest_wait_ms: 59_999}}), []);
});

test('problems of the database', () => {
  const down = found({database: {state: 'unavailable', detail: 'connection refused'}});
  assert.match(down[0].text, /unavailable/);
  assert.doesNotMatch(down[0].text, /refused/); // the panel of the database has the driver's error
  assert.match(found({database: {state: 'read_only'}})[0].text, /read only/);
  assert.match(found({database: {...good, synchronous_expected: true, synchronous_standbys: 0}})[0].text,
    /synchronous standby/);
  assert.deepEqual(found({database: {...good, synchronous_expected: true}}), []); // the role may not see standbys
  assert.equal(found({database: {...good, connections: 90}})[0].tone, 'warn');
});

test('problems of gateways', () => {
  assert.equal(found({gateways: [serving, {name: 'a7:8080', state: 'silent', listening: false}]})[0].text,
    '1 of 2 gateways is silent: a7:8080');
  assert.match(found({gateways: [{state: 'serving', listening: false}]})[0].text, /notifications/);
  // While the database is unreachable, gateways can't report their state.
  assert.equal(found({database: {state: 'unavailable'}, gateways: [{state: 'silent'}]}).length, 1);
});

test('a node of a cluster that does not answer', () => {
  const nodes = [{address: 'a:5432', state: 'ok'}, {address: 'b:5432', state: 'unavailable'}];
  assert.equal(found({nodes})[0].text, '1 of 2 nodes takes no writes and grants no locks: b:5432');
  assert.deepEqual(found({nodes: nodes.slice(0, 1)}), []);
});

test('a protected table with a disabled trigger', () => {
  assert.deepEqual(found({inventory: {oldest_wait_ms: 0, tables_with_problems: 0}}), []);
  assert.match(found({inventory: {oldest_wait_ms: 0, tables_with_problems: 1}})[0].text, /with 1 protected table:/);
});

test('a long wait', () => {
  assert.match(found({inventory: {oldest_wait_ms: 61_000}})[0].text, /exceeds 1 minute\./);
});

test('alerts of Prometheus', () => {
  const alert = {name: 'FencegateDiskFull', severity: 'critical', summary: 'No space.', runbook_url: 'https://a.example/x'};
  assert.deepEqual(found({alerts: {firing: [alert]}}),
    [{tone: 'bad', text: 'FencegateDiskFull fires: No space.', runbook: 'https://a.example/x'}]);
  assert.deepEqual(found({alerts: {firing: [{...alert, severity: 'warning', runbook_url: 'javascript:alert(1)'}]}}),
    [{tone: 'warn', text: 'FencegateDiskFull fires: No space.'}]);
  assert.match(found({alerts: {firing: [], failed: 'refused'}})[0].text, /unknown.*refused/);
});
