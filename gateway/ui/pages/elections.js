// Elections: leaders, their terms, and candidates.

import {h} from '../dom.js';
import {count} from '../format.js';
import {badge, command, emptyMessage, json, name, owner} from '../parts.js';
import {link} from '../router.js';
import {pagedList} from '../paged.js';
import {timeAgo, timeLeft} from '../left.js';

export const title = 'Elections';

const shownCandidates = 3;

function candidatesCell(election) {
  const candidates = election.candidates ?? [];
  if (candidates.length === 0) return null;
  return h('span', {class: 'stack'}, candidates.slice(0, shownCandidates)
    .map((candidate) => h('span', null, owner({owner_id: candidate}))),
    candidates.length > shownCandidates && h('span', {class: 'note'},
      `and ${count(candidates.length - shownCandidates)} more`));
}

const columns = [
  {id: 'election', label: 'Election', class: 'grow',
    cell: (election) => name(election.election, {href: link('locks', election.election)})},
  {id: 'leader', label: 'Leader', class: 'grow', cell: (election) =>
    (election.leader ? owner({owner_id: election.leader}) : badge('no leader', 'warn'))},
  {id: 'term', label: 'Term', number: true, hint: 'The leader’s fencing token',
    cell: (election) => String(election.term)},
  {id: 'since', label: 'Since', class: 'tight', cell: (election) => election.since && timeAgo(election.since)},
  {id: 'left', label: 'Time left', number: true, hint: 'Until the lease expires, unless it is renewed',
    cell: (election) => election.expires_at && timeLeft(election.expires_at)},
  {id: 'value', label: 'Value', class: 'grow', hint: 'Published by the leader',
    cell: (election) => election.value !== undefined && json(election.value)},
  {id: 'candidates', label: 'Candidates', class: 'grow', hint: 'Waiters, the next one first', cell: candidatesCell},
];

export function mount(container, params, app) {
  return pagedList(container, params, app, {
    page: 'elections', title, intro: 'Leaders and candidates. The term of office is the leader’s fencing token: ' +
      'writes of an old leader are rejected.',
    noun: 'election', caption: 'Elections', columns, key: (election) => election.election,
    filters: {label: 'Filter elections', fields: [{name: 'prefix', label: 'Name begins with', placeholder: 'any'}]},
    empty: (filters) => emptyMessage(
      Object.keys(filters).length > 0 ? 'No election matches.' : 'There are no elections.',
      h('p', null,
        'An election is a lock: its holder leads, and the fencing token is the term of office. To be a candidate:'),
      command('fencegate elect --help')),
  });
}
