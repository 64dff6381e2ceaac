// A rejection in words. Pure.
//
//   inWords(row, {lease, successor}) → pieces: texts, and {name} for names that clients chose
//   lateness(row, options) → how late its writer was, as duration of format.js; 'unknown', or '' if it was not late
//   fitting(ms, lengths) → the shortest of the lengths that reaches so far back, or the longest
//
// What happened around a rejected write, in order. Pure.
//
//   eventsOf({rejection, lease, successor}) → {events, silentMS}
//     events     [{id, at, lane, label, pieces}]: lane 0 is the writer, 1 the next holder; at is in ms since 1970, null
//                where only the order is known; pieces as in words.js
//     silentMS   how long an expired writer had not renewed when it wrote; null: not known, or its lease did not expire

import {clockTime, duration, plural, token} from '../../format.js';

// inWords is one sentence without its full stop: 'worker-2 on job-4, token 9, 1.3 s late; worker-3 had taken over with
// 32'. The leases are known only while the database has them. Without one, who wrote is known by its credential, and of
// the token that no lease of the name has it.
export function inWords(row, {lease, successor} = {}) {
  const writer = row.owner_id || row.principal;
  return [writer ? {name: writer} : 'an unknown writer', ' on ', {name: row.resource},
    row.token === undefined ? ', without a token' : `, token ${token(row.token, row.sequence)}`,
    row.late_ms === undefined ? '' : `, ${duration(row.late_ms)} late`, ...cause(row, lease, successor),
    row.token === undefined || row.owner_id ? '' : `; ${noLease}`];
}

export const noLease = 'no lease on this name is known to have had this token: it ended long ago, or the token is of ' +
  'another name';

function cause(row, lease, successor) {
  if (successor?.owner_id === row.owner_id && row.owner_id) {
    return [`; it had acquired the lock again, with ${successor.fencing_token}`];
  }
  if (successor) return ['; ', {name: successor.owner_id}, ` had taken over with ${successor.fencing_token}`];
  if (row.superseded_by !== undefined) return [`; the newest token was ${row.superseded_by}`];
  const ended = row.code === 'lease_expired' ? 'expired' : lease?.end_reason ?? row.reason;
  const texts = {
    expired: 'its lease had expired', released: 'its lease had been released', broken: 'its lease had been broken',
    reused: `${token(row.last_token, row.last_sequence)} was accepted`,
    shared: 'its lease is shared',
  };
  const text = texts[row.reason === 'reused' || row.reason === 'shared' ? row.reason : ended];
  return row.kind !== 'conflict' && row.kind !== 'misuse' && text ? ['; ' + text] : [];
}

export function lateness(row, options) {
  if (row.late_ms !== undefined) return duration(row.late_ms, options);
  return row.kind === 'zombie' ? 'unknown' : '';
}

export function fitting(ms, lengths) {
  const known = lengths.filter((length) => length !== null);
  return known.find((length) => ms <= length) ?? known.at(-1);
}

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
