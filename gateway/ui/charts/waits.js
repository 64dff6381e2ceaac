// The wait-for graph: a drawing, and a list with the same content.
//
//   const graph = waitGraph(lock);   graph.element · graph.show({waits, truncated}), the answer of GET /v1/waits
//
// Owners are boxes. The same owner_id of two principals is two owners. A waiter is left of the owners that it waits for; owners that do not wait are at the right. A solid
// edge leads to a holder, a dashed one to an earlier waiter of the same queue. Edges that follow from others are not
// drawn: of the earlier waiters, only the nearest.

import {timeSince} from '../clock.js';
import {fill, h, s} from '../dom.js';
import {count, isolated} from '../format.js';
import {name, owner, ownerText} from '../parts.js';
import {link} from '../router.js';

const drawnMax = 60;
const box = {width: 160, height: 30, across: 80, down: 14};

// keyOf identifies an owner: {owner_id, principal}.
export function keyOf({owner_id: id, principal = ''}) {
  return JSON.stringify([id, principal]);
}

// edgesOf returns [{from, to, relation, lock}], each once, without edges that follow from others. from and to are keys.
export function edgesOf(waits) {
  const edges = new Map();
  for (const wait of waits) {
    for (const blocker of wait.for) {
      const edge = {from: keyOf(wait), to: keyOf(blocker), relation: blocker.relation, lock: wait.lock};
      const key = JSON.stringify([edge.from, edge.to, edge.lock]);
      if (edges.get(key)?.relation !== 'holds') edges.set(key, edge);
    }
  }
  const all = [...edges.values()];
  const next = successors(all);
  return all.filter((edge) => !next.get(edge.from)
    .some((middle) => middle !== edge.to && middle !== edge.from && next.get(middle)?.includes(edge.to)));
}

// successors returns the owners for which each owner waits.
function successors(edges) {
  const next = new Map();
  for (const edge of edges) next.set(edge.from, [...(next.get(edge.from) ?? []), edge.to]);
  return next;
}

// ranksOf returns the distance of each owner from an owner that does not wait. It cuts cycles, which the gateway
// refuses.
export function ranksOf(edges) {
  const next = successors(edges);
  const ranks = new Map();
  const under = new Set();
  function rank(owner) {
    if (ranks.has(owner)) return ranks.get(owner);
    if (under.has(owner)) return 0;
    under.add(owner);
    const steps = Math.max(-1, ...(next.get(owner) ?? []).map(rank)) + 1;
    under.delete(owner);
    ranks.set(owner, steps);
    return steps;
  }
  for (const owner of edges.flatMap((edge) => [edge.from, edge.to])) rank(owner);
  return ranks;
}

export function waitGraph(lock) {
  const drawing = h('div', {class: 'graph scroll', tabindex: '0', role: 'group', 'aria-label': 'Wait-for graph'});
  const list = h('ul', {class: 'graph-list'});
  const note = h('p', {class: 'note'});
  const element = h('div', {class: 'panel-body'}, drawing, note,
    h('details', null, h('summary', null, 'As text'), list));
  let last = '';
  return {
    element,
    show({waits, truncated}) {
      const text = JSON.stringify([waits, truncated]);
      if (text === last) return;
      last = text;
      const edges = edgesOf(waits);
      const ranks = ranksOf(edges);
      const drawn = ranks.size > 0 && ranks.size <= drawnMax;
      drawing.hidden = !drawn;
      fill(drawing, drawn && draw(edges, ranks, textsOf(waits), lock));
      drawing.scrollLeft = drawing.scrollWidth; // holders are at the right
      fill(note, !drawn && ranks.size > 0 && `${count(ranks.size)} owners are too many to be drawn. `,
        truncated && 'Only the nearest waits are shown.');
      fill(list, waits.map((wait) => inWords(wait, lock)));
    },
  };
}

function inWords(wait, lock) {
  const holders = wait.for.filter((each) => each.relation === 'holds');
  const before = wait.for.filter((each) => each.relation !== 'holds');
  return h('li', null, owner(wait), ' has waited ', timeSince(wait.queued_at), ' for ',
    wait.lock === lock ? 'this lock' : name(wait.lock, {href: link('locks', wait.lock)}),
      wait.mode === 'shared' && ' (shared)',
    holders.length > 0 && [', held by ', listed(holders)],
      before.length > 0 && ['; earlier in the queue: ', listed(before)], '.');
}

function listed(owners) {
  return owners.map((each, at) => [at > 0 && ', ', owner(each)]);
}

// textsOf returns the text of each owner by its key.
function textsOf(waits) {
  return new Map(waits.flatMap((wait) => [wait, ...wait.for]).map((each) => [keyOf(each), ownerText(each)]));
}

function draw(edges, ranks, texts, lock) {
  const columns = [];
  for (const [key, rank] of ranks) (columns[rank] ??= []).push(key);
  const tallest = Math.max(...columns.map((column) => column.length));
  const width = columns.length * (box.width + box.across) - box.across + 2;
  const height = tallest * (box.height + box.down) - box.down + 2;
  const positions = new Map();
  columns.forEach((column, rank) => column.forEach((key, at) => {
    const used = column.length * (box.height + box.down) - box.down;
    positions.set(key, {x: width - 1 - box.width - rank * (box.width + box.across),
      y: 1 + (height - 2 - used) / 2 + at * (box.height + box.down)});
  }));
  return s('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
    'aria-label': `${count(ranks.size)} owners; as text below`},
    edges.map((edge) => drawEdge(edge, texts, positions.get(edge.from), positions.get(edge.to), lock)),
    [...positions].map(([key, at]) => drawNode(texts.get(key), at, ranks.get(key) === 0)));
}

function drawEdge(edge, texts, from, to, lock) {
  const [x1, y1, x2, y2] = [from.x + box.width, from.y + box.height / 2, to.x - 6, to.y + box.height / 2];
  const bend = Math.max(20, (x2 - x1) / 2);
  const kind = edge.relation === 'holds' ? 'holds' : 'before';
  const relation = kind === 'holds' ? 'the holder of' : 'an earlier waiter for';
  return s('g', {class: ['edge', kind]},
    s('title', null, `${texts.get(edge.from)} waits for ${texts.get(edge.to)}, ${relation} ${edge.lock}`),
    s('path', {d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}),
    s('path', {class: 'head', d: `M${x2 + 5} ${y2}l-7 -4v8z`}),
    edge.lock !== lock && s('text', {x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 4}, isolated(edge.lock, 14)));
}

function drawNode(text, at, root) {
  return s('g', {class: ['node', root && 'root']}, s('title', null, text),
    s('rect', {x: at.x, y: at.y, width: box.width, height: box.height, rx: 6}),
    s('text', {x: at.x + box.width / 2, y: at.y + box.height / 2 + 4}, isolated(text, 22)));
}
