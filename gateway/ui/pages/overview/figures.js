// The figures at the top of the overview.
//
//   createFigures(app) → {element, update(census, point)}

import {h} from '../../dom.js';
import {age, compact, count, duration, plural, rate} from '../../format.js';
import {tile} from '../../parts.js';
import {serverNow} from '../../clock.js';

// longWait is when somebody has stood in line so long that it is worth a look.
const longWait = 60_000;

export function createFigures(app) {
  const tiles = {
    accepted: tile('Writes accepted', {unit: '/s', hint: 'All gateways, in the last two seconds'}),
    rejected: tile('Writes rejected', {unit: '/s', hint: 'All gateways, in the last two seconds', href: app.link('rejections')}),
    median: tile('Write time p50', {hint: 'Of accepted writes, from the request to the answer'}),
    tail: tile('Write time p99', {hint: 'Of accepted writes, from the request to the answer'}),
    held: tile('Leases held', {href: app.link('locks', null, {state: 'held'})}),
    expiring: tile('Expiring', {hint: 'Held leases with less than a quarter of their TTL left, whose holders renew late; and locks whose lease has run out, without a new one'}),
    waiting: tile('Waiting', {hint: 'Acquires that stand in line'}),
    sessions: tile('Sessions', {href: app.link('sessions')}),
  };

  function update(census, point) {
    const rejections = Object.values(point?.rejected_per_s ?? {}).reduce((sum, each) => sum + each, 0);
    const known = point?.accepted_per_s !== undefined;
    const failed = point?.failed_per_s;
    tiles.accepted.set(rate(point?.accepted_per_s), {tone: failed > 0 ? 'bad' : '',
      detail: known ? (failed > 0 ? `✕ ${rate(failed)}/s failed` : 'none failed') : 'not measured'});
    tiles.rejected.set(known ? rate(rejections) : '–', {detail: rejections > 0 ? Object.keys(point.rejected_per_s).join(', ') : '',
      tone: rejections > 0 ? 'warn' : ''});
    tiles.median.set(duration(point?.p50_ms), {detail: 'half are faster'});
    tiles.tail.set(duration(point?.p99_ms), {detail: '1 in 100 is slower'});
    if (!census) return;
    const stale = serverNow() - new Date(census.at).getTime();
    const counted = stale > 15_000 ? `counted ${age(stale)}` : '';
    tiles.held.set(compact(census.held), {detail: counted || `of ${plural(census.locks, 'lock')}`});
    tiles.expiring.set(compact(census.expiring), {detail: census.expired > 0 ? `${count(census.expired)} ran out` : 'none ran out'});
    tiles.waiting.set(compact(census.waiting), {detail: census.waiting > 0 ? `longest ${duration(census.oldest_wait_ms)}` : '',
      tone: census.oldest_wait_ms >= longWait ? 'warn' : ''});
    tiles.sessions.set(compact(census.sessions));
  }

  return {element: h('div', {class: 'tiles eight'}, Object.values(tiles).map((each) => each.element)), update};
}
