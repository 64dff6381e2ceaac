import assert from 'node:assert/strict';
import {test} from 'node:test';

import {link, pages, parse} from '../router.js';

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
