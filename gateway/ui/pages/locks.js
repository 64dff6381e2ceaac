// All locks: who holds each, for how long yet, and how many wait.

import {fill, h} from '../dom.js';
import {count} from '../format.js';
import {badge, emptyMessage, heading, name, timeAgo} from '../parts.js';
import {link} from '../router.js';
import {pagedList} from '../paged.js';
import {timeLeft} from '../left.js';

export const title = 'Locks';

const states = {
  held: ['held', 'good'],
  free: ['free', ''],
  expired: ['expired', 'warn'],
};

// stateBadge is how a lock stands.
export function stateBadge(state) {
  const [text, tone] = states[state] ?? [state, ''];
  return badge(text, tone);
}

// termBadges tell what is out of the ordinary in how a lock is held or wanted.
export function termBadges({mode, scope}) {
  return [mode === 'shared' && badge('shared', 'info'), scope === 'subtree' && badge('subtree', 'info')];
}

const shownHolders = 2;

function holderCell(lock) {
  if (lock.holders.length === 0) return null;
  const more = lock.holders.length - shownHolders;
  return h('span', {class: 'stack'}, lock.holders.slice(0, shownHolders).map((holder) =>
    h('span', null, name(holder.owner_id), ' ', termBadges(holder))), more > 0 && h('span', {class: 'note'}, `and ${count(more)} more`));
}

function lastToExpire(lock) {
  return lock.holders.map((holder) => holder.expires_at).sort().at(-1);
}

const columns = [
  {id: 'name', label: 'Lock', sort: 'asc', class: 'grow', cell: (lock) => name(lock.lock, {href: link('locks', lock.lock)})},
  {id: 'state', label: 'State', class: 'tight', cell: (lock) => stateBadge(lock.state)},
  {id: 'holder', label: 'Holder', class: 'grow', cell: holderCell},
  {id: 'fencing_token', label: 'Token', number: true, sort: 'desc', hint: 'The newest fencing token that was granted on the name', cell: (lock) => String(lock.fencing_token)},
  {id: 'granted_at', label: 'Granted', class: 'tight', sort: 'desc', cell: (lock) => lock.holders.length > 0 && timeAgo(lock.holders.at(-1).granted_at)},
  {id: 'expires_at', label: 'Time left', number: true, sort: 'asc', hint: 'Until the lease runs out, by the database’s clock', cell: (lock) => lock.holders.length > 0 && timeLeft(lastToExpire(lock))},
  {id: 'queue', label: 'Waiting', number: true, sort: 'desc', hint: 'How many wait for it', cell: (lock) => count(lock.queue_length)},
];

export function mount(container, params, app) {
  const list = pagedList(app, params, {
    page: 'locks', path: '/v1/locks', field: 'locks', noun: 'lock', counts: true, caption: 'Locks',
    columns, key: (lock) => lock.lock, sort: {id: 'name', order: 'asc'}, ask: {queue_max: 0},
    filters: {label: 'Search locks', fields: [
      {name: 'contains', label: 'Name or holder has', placeholder: 'any text'},
      {name: 'prefix', label: 'Name begins with', placeholder: 'any'},
      {name: 'owner_id', label: 'Holder is', placeholder: 'any'},
      {name: 'state', label: 'State', options: [['', 'any'], ['held', 'held'], ['free', 'free'], ['expired', 'expired: late, not replaced']]},
    ]},
    empty: (filtered) => filtered
      ? emptyMessage('No lock is like that.', h('p', null, 'Upper and lower case differ. A lock is shown from its first grant on.'))
      : emptyMessage('No lock was ever acquired.', h('p', null, 'Acquire one, and it is shown here:'), h('pre', null, 'fencegate run --lock job-42 -- ./work.sh')),
  });
  fill(container, heading('Locks', {intro: 'Everything that was ever acquired: who holds it, for how long yet, and how many wait for it.'}), list.element);
  return {update: list.update};
}
