// Sessions: one heartbeat for any number of leases. A session_id is its owner's secret, so a session is shown by its first digits.

import {fill, h} from '../dom.js';
import {count, duration} from '../format.js';
import {badge, emptyMessage, heading, name, timeAgo} from '../parts.js';
import {link} from '../router.js';
import {pagedList} from '../paged.js';
import {timeLeft} from '../left.js';

export const title = 'Sessions';

const tones = {live: 'good', ended: '', expired: 'warn'};

const columns = [
  {id: 'handle', label: 'Session', class: 'tight', hint: 'The first digits of its id, which is its owner’s secret', cell: (session) => h('code', null, session.handle + '…')},
  {id: 'owner', label: 'Owner', class: 'grow', cell: (session) => name(session.owner_id)},
  {id: 'state', label: 'State', class: 'tight', cell: (session) => badge(session.state, tones[session.state])},
  {id: 'leases', label: 'Leases', number: true, hint: 'Those that run in it', cell: (session) => session.leases > 0
    ? h('a', {href: link('locks', null, {owner_id: session.owner_id})}, count(session.leases)) : count(session.leases ?? 0)},
  {id: 'ttl', label: 'TTL', number: true, hint: 'How long it lasts without a heartbeat', cell: (session) => duration(session.ttl_ms)},
  {id: 'created', label: 'Begun', class: 'tight', cell: (session) => timeAgo(session.created_at)},
  {id: 'expires', label: 'Time left', number: true, hint: 'Until it expires, unless a heartbeat comes', cell: (session) => session.state === 'live' && timeLeft(session.expires_at)},
  {id: 'metadata', label: 'Metadata', class: 'grow', cell: (session) => session.metadata && h('code', null, h('bdi', null, JSON.stringify(session.metadata)))},
];

export function mount(container, params, app) {
  const list = pagedList(app, params, {
    page: 'sessions', path: '/v1/sessions', field: 'sessions', noun: 'session', caption: 'Sessions, the newest first',
    columns, key: (session) => session.handle + ' ' + session.owner_id + ' ' + session.created_at,
    filters: {label: 'Filter sessions', fields: [
      {name: 'owner_id', label: 'Owner', placeholder: 'any'},
      {name: 'state', label: 'State', options: [['', 'any'], ['live', 'live'], ['ended', 'ended'], ['expired', 'expired']]},
    ]},
    empty: (filtered) => emptyMessage(filtered ? 'No session is like that.' : 'There is no session.',
      h('p', null, 'A session keeps any number of leases alive by one heartbeat, and releases them all when it ends. It is begun by POST /v1/sessions.')),
  });
  fill(container, heading('Sessions', {intro: 'One heartbeat for any number of leases: when a session ends or expires, all of them are released.'}), list.element);
  return {update: list.update};
}
