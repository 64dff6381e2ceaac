// The sections of a lock's page: its current state, its fence, and the tables of waiters, rejected writes, last writes
// and leases.

import {timeAgo, timeLeft, timeSince} from '../clock.js';
import {fill, h, setText} from '../dom.js';
import {bytes, count, duration, token} from '../format.js';
import {stateBadge, termBadges} from './locks.js';
import {inWords, policyBadges} from './policies.js';
import {lateness} from './rejections/words.js';
import {badge, button, emptyMessage, errorMessage, fact, json} from '../parts.js';
import {loading, name, owner, panel, rejectionButton, timeAt} from '../parts.js';
import {link} from '../router.js';
import {byContent, createTable} from '../table.js';

const shownHolders = 20;

// part is a section that shows the answers of one address. An error replaces its content, unless the gateway or the
// database can't be reached: then the content stays, and the banner says so once for all parts. A part with a scope needs
// that one besides observe.
export function part(from, heading, {note, actions, table, scope}, body, show) {
  const noteNode = h('span', {class: 'note'}, note);
  const element = panel(heading, {actions: [noteNode, actions]}, body);
  let empty = true;
  return {
    from, element, scope,
    refuse: () => fill(body, emptyMessage('Not shown.',
      h('p', null, 'This needs the scope ', h('code', null, scope), ' on this name.'))),
    show(answer) {
      empty = false;
      show(answer, (text) => setText(noteNode, text));
    },
    fail(error, retry) {
      const inBanner = error.status === 0 || error.status >= 500;
      if (!empty && inBanner) return;
      const shown = inBanner ? {message: 'Not loaded.'} : error;
      if (table) table.setError(shown, retry);
      else fill(body, errorMessage(shown, retry));
    },
  };
}

export function nowPart(lock, onState) {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('now', 'Now', {}, body, (state) => {
    onState(state);
    if (state === null) {
      fill(body, emptyMessage('This lock was never acquired.', h('p', null, 'This page updates when it is.')));
      return;
    }
    fill(body, h('dl', {class: 'facts'},
      fact('State', stateBadge(state.state), ' ', h('span', {class: 'note'}, stateText(state))),
      state.holders.length !== 1 && fact('Newest token', String(state.fencing_token)),
      state.holders.slice(0, shownHolders).map(holderFacts),
      state.holders.length > shownHolders && fact('And', count(state.holders.length - shownHolders) + ' more')));
  });
}

function stateText(state) {
  switch (state.state) {
    case 'held': return state.holders[0]?.mode === 'shared' ? 'shared by ' + count(state.holders.length) : '';
    case 'expired':
      return 'its holder is late and was not replaced: it may still write, unless a policy requires a live lease';
    default: return 'no token may write';
  }
}

function holderFacts(holder) {
  return [
    fact('Holder', owner(holder), ' ',
      termBadges(holder)),
    fact('Token', String(holder.fencing_token)),
    fact('Granted', timeAt(holder.granted_at), ' · ', timeAgo(holder.granted_at)),
    fact('Time left', timeLeft(holder.expires_at, holder.ttl_ms),
      h('span', {class: 'note'}, ' of ' + duration(holder.ttl_ms))),
    holder.hold_until && fact('Hold limit', timeLeft(holder.hold_until),
      h('span', {class: 'note'}, ' left, however often it is renewed')),
    holder.metadata && fact('Metadata', json(holder.metadata, {whole: true})),
  ];
}

function fenceState(fence, external) {
  if (external) return fact('State', badge('external tokens', 'info'));
  const note = fence.open ? `only token ${fence.granted_token} may write` : 'no token may write until the next grant';
  return fact('State', fence.open ? badge('open', 'good') : badge('closed', ''), ' ', h('span', {class: 'note'}, note));
}

export function fencePart() {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('fence', 'Fence', {note: 'which writes are admitted', scope: 'read'}, body, (fence) => {
    if (fence === null) {
      fill(body, emptyMessage('There is no fence yet.', h('p', null, 'The first grant creates it.')));
      return;
    }
    const external = fence.policy.authority === 'external';
    fill(body, h('dl', {class: 'facts'},
      fact('Granted token', external ? '–' : String(fence.granted_token)),
      fenceState(fence, external),
      fact('Last write', fence.last_token > 0 ? token(fence.last_token, fence.last_sequence || undefined) : 'none yet'),
      fact('Policy', h('span', {class: 'badges'}, policyBadges(fence.policy)),
        h('span', {class: 'note'}, fence.policy.prefix === '' ? ' for every name'
          : [' of ', name(fence.policy.prefix)])),
      fact('Meaning', h('span', {class: 'stack'}, inWords(fence.policy)
        .map((text) => h('span', {class: 'note'}, text))))));
  });
}

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
