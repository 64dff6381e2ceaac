// The figures at the top of the overview.
//
//   createFigures() → {element, update({inventory, database}, point)}
//   acceptedText(database, point) → {text, detail, tone} of the accepted writes. Pure.

import {h} from '../../dom.js';
import {age, compact, count, duration, plural, rate} from '../../format.js';
import {isDefect, kindLabel, kindNames} from '../../kinds.js';
import {tile} from '../../parts.js';
import {link} from '../../router.js';
import {serverNow} from '../../clock.js';
import {longWait} from './problems.js';

// acceptedText shows no 0 for writes that nobody has counted: PostgreSQL counts guarded writes by SQL only where
// track_functions is set.
export function acceptedText(database, point) {
  const accepted = point?.accepted_per_s, failed = point?.failed_per_s;
  if (accepted === undefined) return {text: rate(undefined), detail: 'not measured'};
  if (failed > 0) return {text: rate(accepted), detail: `✕ ${rate(failed)}/s failed`, tone: 'bad'};
  if (database.guards_by_sql !== undefined) return {text: rate(accepted), detail: 'none failed'};
  return {text: rate(accepted || undefined), detail: 'SQL not counted'};
}

export function createFigures() {
  const tiles = {
    accepted: tile('Writes accepted', {unit: '/s', hint: 'In the last minute; guarded writes by SQL are counted where ' +
      'PostgreSQL’s setting track_functions is pl, and shown some seconds later'}),
    rejected: tile('Writes rejected', {unit: '/s', hint: 'By HTTP and SQL, in the last minute',
      href: link('rejections')}),
    median: tile('Write time p50', {hint: 'Of accepted writes by HTTP, from the request to the answer'}),
    tail: tile('Write time p99', {hint: 'Of accepted writes by HTTP, from the request to the answer'}),
    held: tile('Leases held', {href: link('locks', null, {state: 'held'})}),
    expiring: tile('Expiring',
      {hint: 'Held leases with less than a quarter of their TTL left, whose holders renew late; ' +
        'below, expired leases that were not replaced'}),
    waiting: tile('Waiters', {hint: 'Acquires that wait in a queue',
      href: link('locks', null, {sort: 'queue', order: 'desc'})}),
    sessions: tile('Sessions', {href: link('sessions')}),
  };

  function update({inventory, database}, point) {
    const rates = point?.rejected_by_kind_per_s ?? {};
    const byKind = kindNames.filter((kind) => rates[kind] > 0).map((kind) => [kind, rates[kind]]);
    const rejections = byKind.reduce((sum, [, each]) => sum + each, 0);
    const known = point?.accepted_per_s !== undefined;
    const accepted = acceptedText(database, point);
    tiles.accepted.set(accepted.text, accepted);
    tiles.rejected.set(known ? rate(rejections) : '–',
      {detail: byKind.map(([kind]) => kindLabel(kind)).join(', '),
      tone: byKind.some(([kind]) => isDefect(kind)) ? 'warn' : ''});
    const measured = typeof point?.p50_ms === 'number';
    tiles.median.set(duration(point?.p50_ms), {detail: measured ? 'half are faster' : 'no write by HTTP'});
    tiles.tail.set(duration(point?.p99_ms), {detail: measured ? '1 in 100 is slower' : 'no write by HTTP'});
    if (!inventory) return;
    const stale = serverNow() - new Date(inventory.at).getTime();
    const counted = stale > 15_000 ? `counted ${age(stale)}` : '';
    tiles.held.set(compact(inventory.held), {detail: counted || `of ${plural(inventory.locks, 'lock')}`});
    tiles.expiring.set(compact(inventory.expiring),
      {detail: inventory.expired > 0 ? `${count(inventory.expired)} expired` : 'none expired'});
    tiles.waiting.set(compact(inventory.waiting), {detail: inventory.waiting > 0
      ? `longest ${duration(inventory.oldest_wait_ms)}` : '',
      tone: inventory.oldest_wait_ms >= longWait ? 'warn' : ''});
    tiles.sessions.set(compact(inventory.sessions));
  }

  return {element: h('div', {class: 'tiles eight'}, Object.values(tiles).map((each) => each.element)), update};
}
