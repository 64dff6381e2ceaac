// One owner: what it holds, what it waits for, and its rejected writes. An owner_id of several principals is one page.

import {limitNote} from '../account.js';
import {timeAgo, timeLeft, timeSince} from '../clock.js';
import {fill, h} from '../dom.js';
import {createDrawer} from '../drawer.js';
import {listPart, rejectionsPart} from './lock-parts.js';
import {termBadges} from './locks.js';
import {badge, emptyMessage, heading, name, owner, timeAt} from '../parts.js';
import {link} from '../router.js';
import {byContent} from '../table.js';

export const title = (params) => params.name;

const refreshMs = 3000;

const lockColumn = {id: 'lock', label: 'Lock', class: 'grow', cell: (row) => h('span', null,
  name(row.lock, {href: link('locks', row.lock)}), ' ', termBadges(row))};
const principalColumn = {id: 'principal', label: 'Principal', class: 'grow', hint: 'Whose request it was',
  cell: (row) => row.principal && name(row.principal)};

const holds = () => listPart('leases', 'Holds', {note: 'leases that run, the newest first'}, {
  caption: 'Leases that run, the newest first', key: (lease) => lease.lock + ' ' + lease.fencing_token,
  changed: byContent,
  columns: [
    lockColumn, principalColumn,
    {id: 'token', label: 'Token', class: 'whole', number: true, cell: (lease) => String(lease.fencing_token)},
    {id: 'granted', label: 'Granted', class: 'tight', cell: (lease) => timeAgo(lease.granted_at)},
    {id: 'left', label: 'Time left', number: true, hint: 'Until the lease expires, unless it is renewed',
      cell: (lease) => timeLeft(lease.expires_at, lease.ttl_ms)},
    {id: 'session', label: 'Session', class: 'tight',
      cell: (lease) => lease.in_session && badge('in a session', 'info')},
  ],
  empty: () => emptyMessage('Not holding any lock.'),
});

const waits = () => listPart('waits', 'Waits for', {note: 'the oldest first'}, {
  caption: 'Waits, the oldest first', key: (wait) => wait.lock + ' ' + wait.queued_at + ' ' + wait.principal,
  changed: byContent,
  columns: [
    lockColumn, principalColumn,
    {id: 'waits', label: 'Waiting', number: true, cell: (wait) => timeSince(wait.queued_at)},
    {id: 'since', label: 'Since', class: 'tight whole', cell: (wait) => timeAt(wait.queued_at)},
    {id: 'holder', label: 'Held by', class: 'grow', cell: (wait) => h('span', {class: 'stack'},
      wait.for.filter((each) => each.relation === 'holds').map((each) => h('span', null, owner(each))))},
    {id: 'before', label: 'Next before it', class: 'grow', hint: 'The nearest earlier waiter of the queue',
      cell: (wait) => wait.for.filter((each) => each.relation !== 'holds').slice(-1).map((each) => owner(each))},
  ],
  empty: () => emptyMessage('Not waiting for any lock.'),
});

export function mount(container, {name: id}, app) {
  const drawer = createDrawer(app);
  const parts = [holds(), waits(), rejectionsPart({owner_id: id}, drawer.open)];
  const queries = {
    leases: {owner_id: id, state: 'running', limit: 100}, waits: {owner_id: id, limit: 100},
    rejections: {owner_id: id, sort: 'last_seen', limit: 20},
  };
  const loading = new Set();
  function load(part) {
    if (loading.has(part)) return; // the next refresh reads it
    loading.add(part);
    app.run(async () => {
      part.show(await app.get('/v1/' + part.from, queries[part.from]).finally(() => loading.delete(part)));
    }, (error) => part.fail(error, () => load(part)));
  }
  const [held, waited, rejected] = parts;
  const rejections = app.frame(() => load(rejected), 1000);

  app.stream({path: '/v1/rejections/stream', query: {owner_id: id}, connected: () => parts.forEach(load),
    on: {rejection: rejections, missed: rejections}, status: ({state}) => state === 'lost' && load(rejected)});
  app.every(refreshMs, () => [held, waited].forEach(load));
  fill(container, heading(name(id, {whole: true}), {intro: ['Lock owner.', limitNote('observe')], actions:
    h('a', {class: 'button', href: link('rejections', null, {owner_id: id})}, 'Rejections')}),
    ...parts.map((part) => part.element), drawer.element);
}
