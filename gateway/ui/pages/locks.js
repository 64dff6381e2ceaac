// Locks: holders, time left, and waiters. Without a choice, those that are held or have waiters.

import {timeAgo, timeLeft} from '../clock.js';
import {h} from '../dom.js';
import {count} from '../format.js';
import {pagedList} from '../paged.js';
import {badge, command, emptyMessage, json, name, owner} from '../parts.js';
import {link} from '../router.js';

export const title = 'Locks';

const states = {
  held: ['held', 'good'],
  free: ['free', ''],
  expired: ['expired', ''],
};

// stateBadge shows the state of a lock.
export function stateBadge(state) {
  const [text, tone] = states[state] ?? [state, ''];
  return badge(text, tone);
}

// termBadges show an unusual mode, scope or provider of a lease or waiter.
export function termBadges({mode, scope, provider}) {
  return [mode === 'shared' && badge('shared', 'info'), scope === 'subtree' && badge('subtree', 'info'),
    provider && badge(`in ${provider}`, 'info')];
}

const shownHolders = 2;

function holderCell(lock) {
  if (lock.holders.length === 0) return null;
  const more = lock.holders.length - shownHolders;
  return h('span', {class: 'stack'}, lock.holders.slice(0, shownHolders).map((holder) =>
    h('span', null, owner(holder), ' ', termBadges(holder), holder.metadata && json(holder.metadata))),
      more > 0 && h('span', {class: 'note'}, `and ${count(more)} more`));
}

// longestLeft never shows more than the TTL: the list may show a lease in Redis for longer than it runs.
function longestLeft(lock) {
  const last = lock.holders.toSorted((a, b) => a.expires_at < b.expires_at ? -1 : 1).at(-1);
  return last && timeLeft(last.expires_at, last.ttl_ms);
}

const showAll = (filters) => h('a', {href: link('locks', null, {...filters, state: 'any'})},
  'Show free and expired locks, too.');

const columns = [
  {id: 'name', label: 'Lock', sort: 'asc', class: 'grow lead',
    cell: (lock) => name(lock.lock, {href: link('locks', lock.lock)})},
  {id: 'state', label: 'State', class: 'tight corner', cell: (lock) => stateBadge(lock.state)},
  {id: 'holder', label: 'Holder', class: 'grow', cell: holderCell},
  {id: 'fencing_token', label: 'Token', number: true, sort: 'desc',
    hint: 'The newest fencing token granted on the name', cell: (lock) => String(lock.fencing_token)},
  {id: 'granted_at', label: 'Granted', class: 'tight', sort: 'desc',
    cell: (lock) => lock.holders.length > 0 && timeAgo(lock.holders.at(-1).granted_at)},
  {id: 'expires_at', label: 'Time left', number: true, sort: 'asc',
    hint: 'Until the lease expires, by the database’s clock',
    cell: longestLeft},
  {id: 'queue', label: 'Waiters', number: true, sort: 'desc', hint: 'The length of its queue',
    cell: (lock) => count(lock.queue_length)},
];

export function mount(container, params, app) {
  return pagedList(container, params, app, {
    page: 'locks', title, intro: 'Holders, time left, and waiters.',
    noun: 'lock', counts: true, caption: 'Locks',
    columns, key: (lock) => lock.lock, sort: {id: 'name', order: 'asc'},
    query: ({state}) => ({queue_max: 0, state: state === 'any' ? '' : state || 'active'}),
    filters: {label: 'Search locks', fields: [
      {name: 'contains', label: 'Name or holder contains', placeholder: 'any text'},
      {name: 'prefix', label: 'Name begins with', placeholder: 'any'},
      {name: 'owner_id', label: 'Holder is', placeholder: 'any'},
      {name: 'state', label: 'State', options: [['', 'held or waited for'], ['held', 'held'],
        ['free', 'free'], ['expired', 'expired, not replaced'], ['any', 'any']]},
    ]},
    empty: (filters) => (Object.keys(filters).length > 0
      ? emptyMessage('No lock matches.', h('p', null, 'Case matters. ', !filters.state && showAll(filters)))
      : emptyMessage('No lock is held or waited for.', h('p', null, showAll({})),
        h('p', null, 'Acquire one, and it appears here:'), command(`fencegate run --url ${location.origin} --lock job-42 -- ./work.sh`))),
  });
}
