import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {codes} from '../codes.js';
import {counted, isDefect, kindLabel, kindNames, kinds} from '../kinds.js';

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
