// API keys: who has them, what they allow, and when they were used. Keys are created, rotated and revoked here.

import {account} from '../account.js';
import {h} from '../dom.js';
import {grantList} from '../grants.js';
import {badge, button, command, emptyMessage, name, timeAt} from '../parts.js';
import {pagedList} from '../paged.js';
import {serverNow} from '../clock.js';
import {timeAgo, timeLeft} from '../left.js';
import {byContent} from '../table.js';
import {keyDialogs} from './keys/dialogs.js';

export const title = 'Keys';

function hasEnded(key) {
  return key.revoked_at || (key.expires_at && Date.parse(key.expires_at) <= serverNow());
}

function stateCell(key) {
  if (key.revoked_at) return h('span', null, badge('revoked', ''), ' ', timeAgo(key.revoked_at));
  if (!key.expires_at) return badge('live', 'good');
  if (hasEnded(key)) return h('span', null, badge('expired', ''), ' ', timeAgo(key.expires_at));
  return h('span', {title: 'The time to its end'}, badge('live', 'good'), ' ', timeLeft(key.expires_at));
}

const columns = (dialogs) => [
  {id: 'id', label: 'Key', class: 'tight', hint: 'The first part of the key, which is no secret',
    cell: (key) => h('code', null, key.id)},
  {id: 'principal', label: 'Principal', class: 'grow', cell: (key) => h('span', {class: 'stack'}, name(key.principal),
    key.description && h('span', {class: 'note'}, name(key.description)))},
  {id: 'grants', label: 'May do', class: 'grow', cell: (key) => grantList(key.grants)},
  {id: 'state', label: 'State', class: 'tight', cell: stateCell},
  {id: 'created', label: 'Created', class: 'grow', cell: (key) => h('span', null, timeAt(key.created_at,
    {milliseconds: false}), h('span', {class: 'note'}, ' by ', name(key.created_by)))},
  {id: 'used', label: 'Last used', class: 'tight', hint: 'About a minute late',
    cell: (key) => (key.last_used_at ? timeAgo(key.last_used_at) : h('span', {class: 'note'}, 'never'))},
  {id: 'do', label: 'Change', class: 'whole', cell: (key) => !hasEnded(key) && h('span', {class: 'actions'},
    button('Rotate…', () => dialogs.rotate(key)), button('Revoke…', () => dialogs.revoke(key), {class: 'danger'}))},
];

export function mount(container, params, app) {
  const dialogs = keyDialogs(app, () => list.refresh());
  const list = pagedList(container, params, app, {
    page: 'keys', title, intro: ['The API keys of callers. Keys that have ended are listed for 30 days more.',
      account()?.kind === 'anonymous' && ' This gateway asks for no credentials.'],
    actions: button('Create a key…', () => dialogs.create()),
    noun: 'key', caption: 'Keys, the newest first', columns: columns(dialogs), key: (key) => key.id, changed: byContent,
    empty: () => emptyMessage('There are no keys.',
      h('p', null, 'The gateway asks for keys if it is started with:'), command('fencegate serve --auth=keys')),
  });
  container.append(...dialogs.elements);
  return list;
}
