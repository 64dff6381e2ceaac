import assert from 'node:assert/strict';
import {test} from 'node:test';

import {edgesOf, keyOf, ranksOf} from '../charts/waits.js';
import {elapsed, remaining} from '../left.js';

const wait = (owner, lock, holders, before) => ({owner_id: owner, lock, mode: 'exclusive',
  queued_at: '2026-01-02T09:00:00.000Z',
  for: [...holders.map((each) => ({owner_id: each, relation: 'holds'})),
    ...before.map((each) => ({owner_id: each, relation: 'before'}))]});

const ownerOf = (key) => JSON.parse(key)[0];
const texts = (edges) => edges.map((edge) =>
  `${ownerOf(edge.from)} ${edge.relation} ${ownerOf(edge.to)} ${edge.lock}`).sort();

test('edges that follow from others are not drawn', () => {
  const waits = [wait('b', 'l', ['a'], []), wait('c', 'l', ['a'], ['b']), wait('d', 'l', ['a'], ['b', 'c'])];
  assert.deepEqual(texts(edgesOf(waits)), ['b holds a l', 'c before b l', 'd before c l']);
});

test('each of several holders has an edge', () => {
  assert.deepEqual(texts(edgesOf([wait('w', 'l', ['r1', 'r2'], [])])), ['w holds r1 l', 'w holds r2 l']);
});

test('a waiter is ranked beyond every owner that it waits for', () => {
  const edges = edgesOf([wait('b', 'l', ['a'], []), wait('a', 'm', ['z'], []), wait('c', 'l', ['a'], ['b'])]);
  assert.deepEqual(Object.fromEntries([...ranksOf(edges)].map(([key, rank]) => [ownerOf(key), rank])), {z: 0, a: 1, b: 2, c: 3});
});

test('ranking ends for a cycle', () => {
  const edges = edgesOf([wait('a', 'l', ['b'], []), wait('b', 'm', ['a'], [])]);
  assert.equal(ranksOf(edges).size, 2);
});

test('owners with odd names stay distinct', () => {
  const waits = [wait('a","b', 'l', ['c'], []), wait('a', 'l', ['b","c'], [])];
  assert.equal(edgesOf(waits).length, 2);
  assert.deepEqual(texts(edgesOf([wait('__proto__', 'l', ['constructor'], [])])), ['__proto__ holds constructor l']);
});

test('the same owner_id of two principals is two owners', () => {
  const waits = [
    {...wait('w', 'l', [], []), principal: 'p', for: [{owner_id: 'w', principal: 'q', relation: 'holds'}]},
    {...wait('w', 'm', [], []), principal: 'q', for: [{owner_id: 'w', relation: 'holds'}]},
  ];
  const ranks = ranksOf(edgesOf(waits));
  const rank = (principal) => ranks.get(keyOf({owner_id: 'w', principal}));
  assert.deepEqual([rank('p'), rank('q'), rank(undefined)], [2, 1, 0]);
});

test('remaining and elapsed change once a second', () => {
  assert.deepEqual([-5, 0, 1, 365, 1000, 1500, 59_999, 60_000, 61_000, 3_599_000].map(remaining),
    ['expired', 'expired', '<1 s', '<1 s', '1 s', '1 s', '59 s', '1 min 00 s', '1 min 01 s', '59 min 59 s']);
  assert.deepEqual([-5, 0, 999, 1000, 60_000].map(elapsed), ['0 s', '0 s', '0 s', '1 s', '1 min 00 s']);
});
