import assert from 'node:assert/strict';
import {test} from 'node:test';

import {problems} from '../pages/overview/problems.js';

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
