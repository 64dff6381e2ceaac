import assert from 'node:assert/strict';
import {test} from 'node:test';

import {account, loadAccount, may, mayAll, mayAny, onAccount, scopesByName} from '../account.js';

function answer(status, body) {
  globalThis.fetch = async () => new Response(JSON.stringify(body), {status});
}

test('a grant is for the name and all names below it, and no scope implies another', async () => {
  answer(200, {principal: 'p', kind: 'key', grants: ['read:a/b', 'observe:']});
  await loadAccount();
  for (const [name, allowed] of [['a/b', true], ['a/b/c', true], ['a', false], ['a/bc', false], ['', false]]) {
    assert.equal(may('read', name), allowed, name);
    assert.ok(may('observe', name));
    assert.ok(!may('admin', name));
  }
  assert.ok(mayAny('read') && !mayAll('read') && mayAll('observe') && !mayAny('lock'));
});

test('a refused credential ends the account, other failures do not', async () => {
  let calls = 0;
  onAccount(() => calls++);
  answer(401, {code: 'unauthenticated', status: 401});
  await loadAccount();
  assert.equal(account(), null);
  assert.ok(!mayAny('observe') && !may('observe', 'a'));
  await loadAccount();
  assert.equal(calls, 1);
  answer(500, {code: 'internal', status: 500});
  await loadAccount();
  assert.ok(mayAll('admin') && account().kind === 'anonymous');
});

test('grants are shown by name', () => {
  assert.deepEqual(scopesByName(['lock:a', 'write:a', 'lock:b:c', 'observe:']), [{name: 'a', scopes: ['lock', 'write']},
    {name: 'b:c', scopes: ['lock']}, {name: '', scopes: ['observe']}]);
  assert.deepEqual(scopesByName(['lock:', 'write:', 'read:', 'observe:', 'admin:']), [{name: '', scopes: ['all']}]);
});
