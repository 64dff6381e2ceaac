// The newest rejections: a panel of the overview.
//
//   createNewest(app, {onOpen(id, opener), onRows(rows)}) → {element, load()}       load fetches them again
//
// The state of the database and of the gateways: two panels of the overview.
//
//   createDatabase() → {element, update(database)}      createGateways() → {element, update(gateways)}
//
// The nodes of a cluster, a panel that is hidden without one.
//
//   createNodes() → {element, update(nodes)}

import {timeAgo} from '../../clock.js';
import {fill, h} from '../../dom.js';
import {bytes, count, duration, token} from '../../format.js';
import {lateness} from '../rejections/words.js';
import {badge, emptyMessage, fact, loading, name, owner, panel, rejectionButton} from '../../parts.js';
import {link} from '../../router.js';
import {byContent, createTable} from '../../table.js';

const shown = 8;

export function createNewest(app, {onOpen, onRows}) {
  const table = createTable({
    caption: 'Newest rejections',
    columns: [
      {id: 'last', width: '104px', label: 'Last', class: 'tight corner', cell: (row) => timeAgo(row.last_at)},
      {id: 'kind', width: '136px', label: 'Kind', class: 'lead',
        cell: (row) => rejectionButton(row, onOpen, {code: false})},
      {id: 'resource', label: 'Resource', class: 'grow',
        cell: (row) => name(row.resource, {href: link('rejections', null, {resource: row.resource})})},
      {id: 'owner', label: 'Owner', class: 'grow',
        cell: (row) => row.owner_id && owner({owner_id: row.owner_id})},
      {id: 'late', width: '84px', label: 'Late', hint: 'How long after the end of its lease', number: true,
        cell: (row) => lateness(row, {fixed: true})},
      {id: 'count', width: '66px', label: 'Writes', number: true, cell: (row) => count(row.count)},
    ],
    key: (row) => row.id,
    onRow: (row, opener) => onOpen(row.id, opener),
    changed: (before, now) => before.count !== now.count || before.last_at !== now.last_at,
    empty: () => emptyMessage('No write has been rejected.',
      h('p', null, 'Rejected writes appear here. ', h('a', {href: link('rejections')}, 'Try it'))),
  });

  function load() {
    app.run(async () => {
      const {rejections} = await app.get('/v1/rejections', {sort: 'last_seen', limit: shown});
      table.update(rejections);
      onRows(rejections);
    }, (error) => table.setError(error, load));
  }

  return {element: panel('Newest rejections', {class: 'short',
    actions: h('a', {href: link('rejections')}, 'All rejections')}, table.element), load};
}

const states = {
  ok: ['reads and writes', 'good'],
  read_only: ['read only', 'bad'],
  unavailable: ['unavailable', 'bad'],
};

// longTransaction is the age at which a transaction delays the removal of old rows.
const longTransaction = 60_000;

export function createDatabase() {
  const body = h('div', {class: 'panel-body'}, loading());
  let shown = '';

  function update(database) {
    const text = JSON.stringify(database);
    if (text === shown) return; // an unchanged panel keeps the selection
    shown = text;
    const [label, tone] = states[database.state] ?? [database.state, 'warn'];
    fill(body, h('dl', {class: 'facts'},
      fact('State', badge(label, tone), database.reason && ` ${database.reason.replaceAll('_', ' ')}`,
        database.detail && h('p', {class: 'note'}, database.detail)),
      database.version !== undefined && facts(database)));
  }

  return {element: panel('Database', {}, body), update};
}

function facts(database) {
  const full = database.connections_max > 0 && database.connections >= database.connections_max * 0.9;
  const old = database.oldest_transaction_ms >= longTransaction;
  return [
    fact('Version', 'PostgreSQL ' + database.version),
    fact('Size', bytes(database.size_bytes)),
    fact('Connections', `${count(database.connections)} of ${count(database.connections_max)} `,
      full && badge('nearly all', 'warn')),
    fact('Oldest transaction', database.oldest_transaction_ms > 0 ? duration(database.oldest_transaction_ms) + ' '
      : 'none', old && badge('delays vacuum', 'warn')),
    fact('Replication', replication(database)),
    (database.standbys ?? []).map((standby) => fact('Standby', name(standby.name),
      ` ${standby.state}, ${standby.sync_state}`,
      standby.lag_bytes !== undefined && `, ${bytes(standby.lag_bytes)} behind`)),
    fact('Newest token', token(database.newest_token)),
    fact('Token jumps', database.jumps > 0 ? [count(database.jumps), ', the last ',
      database.jumped_at && timeAgo(database.jumped_at)]
      : ['none', h('span', {class: 'note'}, ' – no failover or restore')]),
  ];
}

function replication(database) {
  if (!database.synchronous_expected) return [badge('not synchronous', ''),
    h('span', {class: 'note'}, ' a failover can lose commits; tokens jump then')];
  if (database.synchronous_standbys === undefined) return [badge('synchronous', 'info'),
    h('span', {class: 'note'}, ' the gateway’s role can’t see the standbys')];
  if (database.synchronous_standbys === 0) return [badge('no synchronous standby', 'bad'),
    h('span', {class: 'note'}, ' commits wait for one')];
  return badge('synchronous, ' + database.synchronous_standbys, 'good');
}

const gatewayStates = {serving: ['serving', 'good'], silent: ['silent', 'bad']};

export function createGateways() {
  const table = createTable({
    caption: 'Gateways',
    columns: [
      {id: 'name', label: 'Gateway', class: 'grow',
        cell: (row) => [name(row.name), h('div', {class: 'note'}, row.version, ' · started ', timeAgo(row.started_at),
          row.self && ' · serves this page')]},
      {id: 'state', label: 'State', cell: gatewayState},
      {id: 'queue', label: 'Queued', hint: 'Writes that wait for a batch', number: true,
        cell: (row) => count(row.queue)},
      {id: 'waiting', label: 'Waiters', hint: 'Acquires that wait at this gateway', number: true,
        cell: (row) => count(row.waiting)},
      {id: 'streams', label: 'Streams', hint: 'Open event streams, including those of dashboards', number: true,
        cell: (row) => count(row.streams)},
      {id: 'connections', label: 'Connections', hint: 'To the database: busy, and the limit', number: true,
        cell: (row) => `${count(row.connections_busy)} of ${count(row.connections_max)}`},
    ],
    key: (row) => row.gateway_id,
    changed: (before, now) => JSON.stringify({...before, seen_at: ''}) !== JSON.stringify({...now, seen_at: ''}) ||
      now.state === 'silent',
    empty: () => emptyMessage('No gateway has reported its state yet.'),
  });
  return {element: panel('Gateways', {}, table.element), update: (gateways) => table.update(gateways)};
}

function gatewayState(row) {
  const [label, tone] = gatewayStates[row.state] ?? [row.state, 'warn'];
  return [badge(label, tone), row.state === 'silent' && [' since ', timeAgo(row.seen_at)],
    row.state === 'serving' && !row.listening && badge('no notifications', 'warn')];
}

export function createNodes() {
  const table = createTable({
    caption: 'Nodes',
    columns: [
      {id: 'address', label: 'Node', class: 'grow',
        cell: (row) => [name(row.address), row.version && h('div', {class: 'note'}, 'PostgreSQL ', row.version)]},
      {id: 'state', label: 'State', cell: nodeState},
      {id: 'locks', label: 'Locks', hint: 'That were ever granted or are waited for', number: true,
        cell: (row) => count(row.locks)},
      {id: 'held', label: 'Held', number: true, cell: (row) => count(row.held)},
      {id: 'waiting', label: 'Waiters', number: true, cell: (row) => count(row.waiting)},
      {id: 'jumps', label: 'Token jumps', hint: 'After a failover or a restore', number: true,
        cell: (row) => count(row.jumps)},
      {id: 'connections', label: 'Connections', hint: 'Of all clients, and the limit', number: true,
        cell: (row) => row.connections_max && `${count(row.connections)} of ${count(row.connections_max)}`},
    ],
    key: (row) => row.name,
    changed: byContent,
    empty: () => emptyMessage('There are no nodes.'),
  });
  const element = panel('Nodes', {}, table.element);
  element.hidden = true;
  return {element, update(nodes = []) {
    element.hidden = nodes.length === 0;
    table.update(nodes);
  }};
}

function nodeState(row) {
  const [label, tone] = states[row.state] ?? [row.state, 'warn'];
  return [badge(label, tone), row.detail && h('div', {class: 'note'}, row.detail)];
}
