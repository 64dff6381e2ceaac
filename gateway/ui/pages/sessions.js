// Sessions: one heartbeat for any number of leases. A session_id is a secret, so only its first digits are shown.

import {timeAgo, timeLeft} from '../clock.js';
import {h} from '../dom.js';
import {count, duration} from '../format.js';
import {pagedList} from '../paged.js';
import {badge, emptyMessage, json, owner} from '../parts.js';
import {link} from '../router.js';

export const title = 'Sessions';

const tones = {live: 'good'};

const columns = [
  {id: 'handle', label: 'Session', class: 'tight', hint: 'The first digits of its ID, which is a secret of its owner',
    cell: (session) => h('code', null, session.handle + '…')},
  {id: 'owner', label: 'Owner', class: 'grow', cell: (session) => owner(session)},
  {id: 'state', label: 'State', class: 'tight', cell: (session) => badge(session.state, tones[session.state])},
  {id: 'leases', label: 'Leases', number: true, hint: 'Its live leases', cell: (session) => session.leases > 0
    ? h('a', {href: link('owners', session.owner_id)}, count(session.leases))
      : count(session.leases ?? 0)},
  {id: 'ttl', label: 'TTL', number: true, hint: 'How long it lasts without a heartbeat',
    cell: (session) => duration(session.ttl_ms)},
  {id: 'created', label: 'Created', class: 'tight', cell: (session) => timeAgo(session.created_at)},
  {id: 'expires', label: 'Time left', number: true, hint: 'Until it expires without a heartbeat',
    cell: (session) => session.state === 'live' && timeLeft(session.expires_at)},
  {id: 'metadata', label: 'Metadata', class: 'grow', cell: (session) => session.metadata && json(session.metadata)},
];

export function mount(container, params, app) {
  return pagedList(container, params, app, {
    page: 'sessions', title,
    intro: 'One heartbeat for any number of leases: when a session ends or expires, all of them are released.',
    noun: 'session', caption: 'Sessions, the newest first',
    columns, key: (session) => session.handle + ' ' + session.owner_id + ' ' + session.created_at,
    filters: {label: 'Filter sessions', fields: [
      {name: 'owner_id', label: 'Owner', placeholder: 'any'},
      {name: 'state', label: 'State', options: [['', 'any'], ['live', 'live'], ['ended', 'ended'],
        ['expired', 'expired']]},
    ]},
    empty: (filters) => emptyMessage(Object.keys(filters).length > 0 ? 'No session matches.' : 'There are no sessions.',
      h('p', null,
        'A session keeps any number of leases alive by one heartbeat, and releases them all when it ends. ' +
          'POST /v1/sessions creates one.')),
  });
}
