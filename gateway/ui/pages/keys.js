// API keys: who has them, what they allow, and when they were used. Keys are created, rotated and revoked here.

import {account} from '../account.js';
import {h} from '../dom.js';
import {grantList} from '../grants.js';
import {badge, button, command, emptyMessage, name, panel, timeAt} from '../parts.js';
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
    key.description && h('span', {class: 'note'}, name(key.description, {whole: true})))},
  {id: 'grants', label: 'May do', class: 'grow', cell: (key) => grantList(key.grants)},
  {id: 'state', label: 'State', class: 'tight', cell: stateCell},
  {id: 'created', label: 'Created', class: 'grow', cell: (key) => h('span', null, timeAt(key.created_at,
    {milliseconds: false}), h('span', {class: 'note'}, ' by ', name(key.created_by)))},
  {id: 'used', label: 'Last used', class: 'tight', hint: 'About a minute late',
    cell: (key) => (key.last_used_at ? timeAgo(key.last_used_at) : h('span', {class: 'note'}, 'never'))},
  {id: 'do', label: 'Change', class: 'whole', cell: (key) => !hasEnded(key) && h('span', {class: 'actions'},
    button('Rotate…', () => dialogs.rotate(key)), button('Revoke…', () => dialogs.revoke(key), {class: 'danger'}))},
];

// howToBegin gives the order in which nobody is locked out.
function howToBegin() {
  return panel('This gateway asks for no credentials', {note: 'to change that, in this order:'},
    h('ol', {class: 'steps'},
      h('li', null, 'Create a key for yourself that may do ', h('code', null, 'all:'),
        ', which is everything on every name. Save it: it is shown once.'),
      h('li', null, 'Create the keys of your programs, and give each its own in ',
        h('code', null, 'FENCEGATE_BEARER_TOKEN'), '.'),
      h('li', null, 'Restart each gateway with ', h('code', null, '--auth keys'), ', and sign in here with your key.')),
    h('div', {class: 'panel-body'}, h('p', null, 'Locked out? This creates a key in the database itself:'),
      command('fencegate keys create admin --grant all: --in-database "$FENCEGATE_DATABASE_URL"')));
}

export function mount(container, params, app) {
  const dialogs = keyDialogs(app, () => list.refresh());
  const list = pagedList(container, params, app, {
    page: 'keys', title, intro: 'The API keys of callers. Keys that have ended are listed for 30 days more.',
    actions: button('Create a key…', () => dialogs.create()),
    noun: 'key', caption: 'Keys, the newest first', columns: columns(dialogs), key: (key) => key.id, changed: byContent,
    empty: () => emptyMessage('There are no keys.'),
  });
  if (account()?.kind === 'anonymous') container.firstChild.after(howToBegin());
  container.append(...dialogs.elements);
  return list;
}
