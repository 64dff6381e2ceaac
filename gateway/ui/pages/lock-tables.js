// The tables of a lock's page: waiters, rejected writes, last writes, leases.

import {h} from '../dom.js';
import {bytes, count, duration, token} from '../format.js';
import {badge, button, emptyMessage, name, owner, rejectionButton, timeAt} from '../parts.js';
import {byContent, createTable} from '../table.js';
import {link} from '../router.js';
import {timeAgo, timeSince} from '../left.js';
import {part} from './lock-facts.js';
import {termBadges} from './locks.js';
import {lateness} from './rejections/words.js';

export function queuePart() {
  const table = createTable({
    caption: 'Waiters, the next one first', pageSize: () => 50, changed: () => false,
    key: (waiter) => `${waiter.position} ${waiter.owner_id} ${waiter.queued_at}`,
    columns: [
      {id: 'position', label: 'Position', class: 'narrow', cell: (waiter) => String(waiter.position)},
      {id: 'owner', label: 'Owner', class: 'grow',
        cell: (waiter) => h('span', null, owner(waiter), ' ', termBadges(waiter))},
      {id: 'waits', label: 'Waiting', number: true, cell: (waiter) => timeSince(waiter.queued_at)},
      {id: 'since', label: 'Since', class: 'tight whole', cell: (waiter) => timeAt(waiter.queued_at)},
    ],
    empty: () => emptyMessage('No waiters.'),
  });
  return part('now', 'Queue', {note: 'first come, first served', table}, table.element, (state, note) => {
    const queue = state?.queue ?? [];
    const length = state?.queue_length ?? queue.length;
    table.update(queue.map((waiter, at) => ({...waiter, position: at + 1})),
      {note: length > queue.length ? `the first ${count(queue.length)} of ${count(length)}` : ''});
    note(length === 0 ? 'first come, first served' : count(length) + ' waiting');
  });
}

// listPart shows the rows of a list: `from` is also their field of the answer.
export function listPart(from, heading, options, tableOptions) {
  const table = createTable(tableOptions);
  return part(from, heading, {...options, table}, table.element, (answer) => table.update(answer?.[from] ?? []));
}

// rejectionsPart shows the rejected writes on a lock, or those of an owner: of is {resource} or {owner_id}.
export function rejectionsPart(of, onOpen) {
  const more = h('a', {href: link('rejections', null, of)}, 'All rejections');
  return listPart('rejections', 'Rejected writes', {actions: more}, {
    caption: 'Rejected writes, the latest first', key: (rejection) => rejection.id,
    changed: (before, now) => before.count !== now.count, onRow: (rejection, opener) => onOpen(rejection.id, opener),
    columns: [
      {id: 'last', label: 'Last seen', class: 'tight corner', cell: (rejection) => timeAgo(rejection.last_at)},
      {id: 'kind', label: 'Kind', class: 'tight lead', cell: (rejection) => rejectionButton(rejection, onOpen)},
      of.resource
        ? {id: 'owner', label: 'Owner', class: 'grow',
          cell: (rejection) => (rejection.owner_id ? owner({owner_id: rejection.owner_id}) : '–')}
        : {id: 'resource', label: 'Resource', class: 'grow',
          cell: (rejection) => name(rejection.resource, {href: link('locks', rejection.resource)})},
      {id: 'token', label: 'Token', number: true, hint: 'Of the write',
        cell: (rejection) => token(rejection.token, rejection.sequence)},
      {id: 'newer', label: 'Superseded by', class: 'minor', number: true, hint: 'The newer token',
        cell: (rejection) => token(rejection.superseded_by)},
      {id: 'late', label: 'Late', number: true, hint: 'How long after the end of its lease',
        cell: (rejection) => lateness(rejection)},
      {id: 'key', label: 'Key', class: 'grow', cell: (rejection) => rejection.key && name(rejection.key)},
      {id: 'count', label: 'Writes', number: true, cell: (rejection) => count(rejection.count)},
    ],
    empty: () => emptyMessage('No write was rejected.', h('p', null, 'Rejections are kept for some days.')),
  });
}

export function recordsPart(onShow) {
  return listPart('records', 'Last writes', {note: 'the newest records', scope: 'read'}, {
    caption: 'Last writes', key: (record) => record.key, changed: (before, now) => before.version !== now.version,
    columns: [
      {id: 'key', label: 'Key', class: 'grow', cell: (record) => name(record.key)},
      {id: 'value', label: 'Value', class: 'narrow', cell: (record) => button('Show', () => onShow(record),
        {'aria-haspopup': 'dialog', 'aria-label': `Show the value of ${record.key}`})},
      {id: 'token', label: 'Token', class: 'whole', number: true,
        cell: (record) => token(record.fencing_token, record.sequence)},
      {id: 'version', label: 'Version', number: true, cell: (record) => count(record.version)},
      {id: 'size', label: 'Size', number: true, cell: (record) => bytes(record.size)},
      {id: 'updated', label: 'Written', class: 'tight', cell: (record) => timeAgo(record.updated_at)},
    ],
    empty: () => emptyMessage('No records.'),
  });
}

const ends = {broken: 'bad'};

export function leasesPart() {
  return listPart('leases', 'History', {note: 'leases, the newest first'}, {
    caption: 'Leases, the newest first', key: (lease) => lease.fencing_token, pageSize: () => 10,
    changed: byContent,
    columns: [
      {id: 'token', label: 'Token', class: 'narrow whole', cell: (lease) => String(lease.fencing_token)},
      {id: 'owner', label: 'Owner', class: 'grow',
        cell: (lease) => h('span', null, owner(lease), ' ', termBadges(lease))},
      {id: 'granted', label: 'Granted', class: 'tight', cell: (lease) => timeAgo(lease.granted_at)},
      {id: 'waited', label: 'Waited', number: true, cell: (lease) => lease.waited_ms > 0 && duration(lease.waited_ms)},
      {id: 'ended', label: 'Ended', class: 'grow', cell: endedCell},
    ],
    empty: () => emptyMessage('No leases.'),
  });
}

function endedCell(lease) {
  if (!lease.ended_at) return badge('live', 'good');
  return h('span', {class: 'stack'}, h('span', null, badge(lease.end_reason, ends[lease.end_reason]), ' ',
    timeAgo(lease.ended_at)),
    lease.end_note && h('span', {class: 'note'}, h('bdi', null, lease.end_note)));
}
