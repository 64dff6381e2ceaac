// The overview: what the gateways do at this moment, and how they and the database are.

import {address} from '../api.js';
import {noteServerTime} from '../clock.js';
import {h} from '../dom.js';
import {count, duration, rate} from '../format.js';
import {errorMessage, heading, loading, tile} from '../parts.js';

export const title = 'Overview';

export function mount(container, params, app) {
  const accepted = tile('Writes accepted', {unit: '/s'});
  const rejected = tile('Writes rejected', {unit: '/s', href: app.link('rejections')});
  const held = tile('Leases held', {href: app.link('locks', null, {state: 'held'})});
  const waiting = tile('Waiting');
  const tiles = h('div', {class: 'tiles'}, [accepted, rejected, held, waiting].map((each) => each.element));
  const state = h('div', null, loading());
  container.append(heading('Overview'), state);

  function show(document) {
    noteServerTime(document.at, {exact: true});
    const point = document.point ?? document.points?.at(-1) ?? {};
    accepted.set(rate(point.accepted_per_s));
    rejected.set(rate(Object.values(point.rejected_per_s ?? {}).reduce((sum, each) => sum + each, 0)));
    held.set(count(document.census?.held), {detail: `of ${count(document.census?.locks)} locks`});
    waiting.set(count(document.census?.waiting), {detail: document.census?.oldest_wait_ms ? 'the longest for ' + duration(document.census.oldest_wait_ms) : ''});
    state.replaceChildren(tiles);
  }

  function load() {
    app.run(async () => show(await app.get('/v1/overview', {range_ms: 300_000})), (error) => state.replaceChildren(errorMessage(error, load)));
  }

  app.stream({path: '/v1/overview/stream', on: {overview: show}, connected: load});
  load();
}
