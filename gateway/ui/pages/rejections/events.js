// What happened around a rejected write, in order. Pure.
//
//   eventsOf({rejection, lease, successor}) → {events, silentMS}
//     events     [{id, at, lane, label, pieces}]: lane 0 is the writer, 1 the next holder; at is in ms since 1970, null
//                where only the order is known; pieces as in words.js
//     silentMS   how long an expired writer had not renewed when it wrote; null: not known, or its lease did not expire

import {clockTime, plural, token} from '../../format.js';

const ends = {
  expired: ['expired', 'The lease expires: it was not renewed in time.'],
  released: ['released', 'The lease is released.'],
  broken: ['broken', 'An administrator breaks the lease.'],
};

export function eventsOf({rejection: row, lease, successor}) {
  const writer = row.owner_id ? {name: row.owner_id} : 'The writer';
  const first = Date.parse(row.first_at), last = Date.parse(row.last_at);
  const events = [];
  let renewed = null;
  if (lease) {
    const granted = Date.parse(lease.granted_at);
    events.push({id: 'granted', at: granted, lane: 0, label: 'granted',
      pieces: [writer, ' is granted ', {name: lease.lock}, ` with token ${lease.fencing_token}.`]});
    renewed = lastRenewal(lease, granted, last);
    if (renewed > granted) events.push({id: 'renewed', at: renewed, lane: 0, label: 'renewed',
      pieces: [writer, ' renews the lease for the last time.']});
    const ended = lease.ended_at ? Date.parse(lease.ended_at) : Infinity;
    const [label, text] = ends[lease.end_reason] ?? [lease.end_reason, 'The lease ends.'];
    if (ended <= last) events.push({id: 'ended', at: ended, lane: 0, label,
      pieces: [text, lease.end_note ? [' Reason: ', {name: lease.end_note}] : []].flat()});
  }
  if (successor) events.push({id: 'taken', at: Date.parse(successor.granted_at), lane: 1, label: 'taken over',
    pieces: [{name: successor.owner_id}, ' is granted ', {name: successor.lock},
      ` with token ${successor.fencing_token}.`]});
  events.sort((a, b) => a.at - b.at);
  if (successor && row.last_token === successor.fencing_token) events.push({id: 'wrote', at: null, lane: 1,
    label: 'wrote', pieces: [{name: successor.owner_id},
      ` has written with ${token(row.last_token, row.last_sequence || undefined)} before the last of these writes.`]});
  events.push(...refusals(row, writer, first, last));
  const silent = lease?.end_reason === 'expired' && renewed !== null && renewed < first;
  return {events, silentMS: silent ? first - renewed : null};
}

// lastRenewal is when an expired lease was renewed last, or granted: its TTL before it expired. Of others it is not
// known.
function lastRenewal(lease, granted, last) {
  if (lease.in_session || lease.provider || lease.end_reason !== 'expired') return null;
  const at = Date.parse(lease.expires_at) - lease.ttl_ms;
  return at <= last ? Math.max(granted, at) : null;
}

function refusals(row, writer, first, last) {
  const number = row.token === undefined ? 'without a token' : `with token ${token(row.token, row.sequence)}`;
  const verdict = row.observed ? 'let through' : 'rejected';
  // By SQL a transaction that was not rolled back has an address: fence.try_guard leaves the decision to it.
  const undone = row.source !== 'sql' || !row.address;
  const events = [{id: 'refused', at: first, lane: 0, label: verdict, pieces: [writer, ' writes ',
    ...(row.key ? [{name: row.key}, ' '] : []), `${number}: ${verdict}, ${row.code}`,
    row.reason ? ` (${row.reason}).` : '.', undone ? ' Nothing is stored.'
      : row.observed ? ' The table is in the mode observe.' : '']}];
  if (row.count > 1) events.push({id: 'again', at: last, lane: 0, label: `${row.count}×`,
    pieces: [`${plural(row.count, 'write')} were ${verdict} alike, the last at ${clockTime(last)}.`]});
  return events;
}
