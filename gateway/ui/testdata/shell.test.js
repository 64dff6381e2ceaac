import assert from 'node:assert/strict';
import {fileURLToPath, pathToFileURL} from 'node:url';
import {readdirSync} from 'node:fs';
import {test} from 'node:test';

import {account, loadAccount, may, mayAll, mayAny, onAccount, scopesByName} from '../account.js';
import {link, pages, parse} from '../router.js';
import {backoff, eventReader} from '../stream.js';

test('the overview has the empty address', () => {
  for (const text of ['', '#', '#/', '/']) assert.deepEqual(parse(text),
    {page: '', name: null, query: {}, module: 'overview'});
  assert.equal(link(''), '#/');
});

test('a link with filters is parsed to the same filters', () => {
  const query = {code: 'token_stale', owner_id: 'a&b=c? d/ü#'};
  assert.deepEqual(parse(link('rejections', null, query)),
    {page: 'rejections', name: null, query, module: 'rejections'});
  assert.equal(link('rejections', null, {code: '', owner_id: null}), '#/rejections');
});

test('a link to a lock is parsed to its name, for any name', () => {
  for (const name of ['job-42', 'jobs/42/a', '<img src=x onerror=alert(1)>', '50%', 'a?b=c', '#', '..', 'שלום', ' ']) {
    const {module, ...rest} = parse(link('locks', name, {tab: 'x'}));
    assert.deepEqual(rest, {page: 'locks', name, query: {tab: 'x'}});
    assert.equal(module, 'lock');
  }
  assert.equal(parse('#/locks/jobs/42').name, 'jobs/42');
});

test('an unknown page is null', () => {
  for (const text of ['#/nothing', '#/rejections/7', '#/owners', '#/locks/%', '#/__proto__', '#//x']) {
    assert.equal(parse(text), null, text);
  }
});

test('every page has its module', async () => {
  assert.ok(pages.every((each) => each.module || each.one));
});

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

const root = fileURLToPath(new URL('..', import.meta.url));
const modules = readdirSync(root, {recursive: true})
  .filter((name) => name.endsWith('.js') && !name.startsWith('testdata')).sort();

// Importing a module also links its imports: a name that is not exported fails. Two modules run code when they are
// loaded, which needs a page.
const needPage = ['app.js', 'theme.js'];

test('every module can be linked', async () => {
  assert.ok(modules.length > 20);
  for (const name of modules) {
    try {
      await import(pathToFileURL(root + name));
      assert.ok(!needPage.includes(name), name);
    } catch (error) {
      if (!(needPage.includes(name) && error instanceof ReferenceError)) assert.fail(`${name}: ${error.message}`);
    }
  }
});

test('every page exports a title and mount', async () => {
  const {pages} = await import('../router.js');
  for (const module of pages.flatMap((page) => [page.module, page.one]).filter(Boolean)) {
    const page = await import(`../pages/${module}.js`);
    assert.ok(['string', 'function'].includes(typeof page.title), module);
    assert.equal(typeof page.mount, 'function', module);
  }
});
