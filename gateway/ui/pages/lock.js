// One lock: its state, fence, queue, wait-for graph, rejected writes, records and leases. The lock's watch keeps it
// live.

import {may} from '../account.js';
import {nameInPath} from '../api.js';
import {waitGraph} from '../charts/waits.js';
import {fill, h} from '../dom.js';
import {createDrawer} from '../drawer.js';
import {breakDialog, valueDialog} from './lock-dialogs.js';
import {fencePart, leasesPart, nowPart, part, queuePart, recordsPart, rejectionsPart} from './lock-parts.js';
import {button, name} from '../parts.js';
import {link} from '../router.js';

export const title = (params) => params.name;

const pollMs = 5000; // for what the watch does not report: renewals, accepted and rejected writes

export function mount(container, {name: lock}, app) {
  const path = nameInPath(lock);
  const mayBreak = may('admin', lock);
  const breaker = breakDialog(app, lock);
  const drawer = createDrawer(app);
  const value = valueDialog(app, lock);
  const breakButton = button('Break…', () => breaker.open(), {class: 'danger', disabled: true});
  const parts = [
    nowPart(lock, (state) => {
      announceChange(state);
      breakButton.disabled = state === null || state.state === 'free';
      breaker.show(state);
    }),
    fencePart(), queuePart(), waitsPart(lock), rejectionsPart({resource: lock}, drawer.open),
    recordsPart(value.open), leasesPart(),
  ];
  // Screen readers get a sentence for each change. The page itself is no live region, since its times tick.
  let announced = null;
  function announceChange(state) {
    const owners = (state?.holders ?? []).map((holder) => holder.owner_id).join(', ');
    const text = !state || state.state === 'free' ? 'The lock is free.'
      : owners + (state.state === 'held' ? ' holds the lock.' : ' held the lock, and the lease has expired.');
    if (announced !== null && announced !== text) app.announce(text);
    announced = text;
  }

  const urls = {
    // The lock's answer has the fence of the same moment. It is fetched separately only if there is no lock.
    now: ['/v1/locks/' + path], fence: [`/v1/resources/${path}/fence`], waits: ['/v1/waits', {lock, limit: 200}],
    leases: ['/v1/leases', {lock, limit: 50}],
    records: [`/v1/resources/${path}/records`, {sort: 'updated_at', limit: 10}],
    rejections: ['/v1/rejections', {resource: lock, sort: 'last_seen', limit: 10}],
  };
  const byName = new Map();
  for (const part of parts) {
    if (part.scope && !may(part.scope, lock)) part.refuse();
    else byName.set(part.from, [...(byName.get(part.from) ?? []), part]);
  }

  const loading = new Map(); // what is being fetched → whether to fetch it again

  // load fetches one thing. A request for the same thing meanwhile fetches it once more afterwards, so that no change
  // is missed.
  function load(from) {
    if (loading.has(from)) {
      loading.set(from, true);
      return;
    }
    loading.set(from, false);
    const ended = () => {
      const again = loading.get(from);
      loading.delete(from);
      if (again) load(from);
    };
    app.run(async () => {
      const answer = await app.get(...urls[from]).catch((error) => {
        if (error.code === 'not_found') return null;
        throw error;
      });
      for (const part of byName.get(from)) part.show(answer);
      if (from === 'now') showFence(answer);
      ended();
    }, (error) => {
      for (const each of from === 'now' ? [from, 'fence'] : [from]) {
        for (const part of byName.get(each) ?? []) part.fail(error, () => load(from));
      }
      ended();
    });
  }

  function showFence(state) {
    if (!byName.has('fence')) return;
    if (state === null) want('fence');
    else for (const part of byName.get('fence')) part.show(state.fence ?? null);
  }

  const wanted = new Set();
  const loadWanted = app.frame(() => {
    for (const from of wanted) load(from);
    wanted.clear();
  }, 250);
  function want(...names) {
    for (const each of names) wanted.add(each);
    loadWanted();
  }
  const all = () => want(...[...byName.keys()].filter((from) => from !== 'fence'));

  app.stream({path: `/v1/locks/${path}/watch`, query: {}, on: {state: all}});
  all();
  app.every(pollMs, all);
  app.onEnd(breaker.close);

  const [now, fence, queue, waits, rejections, records, leases] = parts.map((part) => part.element);
  const up = h('p', {class: 'note'}, h('a', {href: link('locks')}, 'Locks'), ' ›');
  const rejected = h('a', {class: 'button', href: link('rejections', null, {resource: lock})}, 'Rejections');
  fill(container,
    h('div', {class: 'heading'}, h('div', null, up, h('h1', null, name(lock, {whole: true}))),
      h('div', {class: 'actions'}, rejected, mayBreak && breakButton)),
    h('div', {class: 'columns'}, now, fence), queue, waits, rejections,
    h('div', {class: 'columns'}, records, leases), mayBreak && breaker.element,
    drawer.element, value.element);
}

function waitsPart(lock) {
  const graph = waitGraph(lock);
  const made = part('waits', 'Wait-for graph', {}, graph.element, (answer) => {
    made.element.hidden = (answer?.waits ?? []).length === 0; // first: a hidden element can't be scrolled
    graph.show(answer ?? {waits: [], truncated: false});
  });
  made.element.hidden = true;
  return made;
}
