// A rejection in words. Pure.
//
//   inWords(row, {lease, successor}) → pieces: texts, and {name} for names that clients chose
//   lateness(row, options) → how late its writer was, as duration of format.js; 'unknown', or '' if it was not late
//   fitting(ms, lengths) → the shortest of the lengths that reaches so far back, or the longest

import {duration, token} from '../../format.js';

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
