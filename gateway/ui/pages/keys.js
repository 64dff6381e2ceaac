// API keys: who has them, what they allow, and when they were used. Keys are created, rotated and revoked here.

import {account, grantList} from '../account.js';
import {serverNow, timeAgo, timeLeft} from '../clock.js';
import {formDialog} from '../dialog.js';
import {fill, h} from '../dom.js';
import {pagedList} from '../paged.js';
import {badge, button, command, emptyMessage, name, panel, timeAt} from '../parts.js';
import {byContent} from '../table.js';

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

const day = 86_400_000;
const lifetimes = [['90 days', 90 * day], ['1 day', day], ['7 days', 7 * day], ['30 days', 30 * day],
  ['1 year', 365 * day], ['no end', '']];
const overlaps = [['24 hours', day], ['1 hour', 3_600_000], ['7 days', 7 * day], ['30 days', 30 * day],
  ['not at all', 0]];

// keyDialogs are the dialogs that create, rotate and revoke a key. changed() is called after each success.
function keyDialogs(app, changed) {
  const then = (answer) => {
    changed();
    return answer;
  };
  const create = formDialog(app, {
    title: 'Create a key', submit: 'Create',
    fields: () => [
      field('Principal: the name of the caller', h('input', {name: 'principal', required: true, maxlength: 200,
        autocomplete: 'off', spellcheck: 'false'})),
      field('What it may do: scopes and a name, one a line',
        h('textarea', {name: 'grants', rows: 3, required: true, placeholder: 'lock,write:jobs', autocomplete: 'off',
          spellcheck: 'false'})),
      h('p', {class: 'note'}, 'Scopes are lock, write, read, observe and admin, or all for the five. A name stands ' +
        'for itself and all names below it. No name after the colon: every name.'),
      field('Description', h('input', {name: 'description', maxlength: 1000, autocomplete: 'off'})),
      choice('Ends after', 'lifetime_ms', lifetimes),
    ],
    send: async (_, values) => then(await app.send('POST', '/v1/keys', {
      principal: values.principal.trim(), description: values.description.trim(),
      grants: values.grants.split('\n').map((line) => line.trim()).filter(Boolean),
      lifetime_ms: values.lifetime_ms === '' ? null : Number(values.lifetime_ms),
    })),
    done: (key) => newKey(key),
  });
  const rotate = formDialog(app, {
    title: 'Rotate the key', submit: 'Rotate',
    fields: (key) => [about(key), h('p', null, 'A new key with the same principal and grants is created.'),
      choice('The old key still works', 'overlap_ms', overlaps)],
    send: async (key, values) => then(await app.send('POST', `/v1/keys/${key.id}/rotate`,
      {overlap_ms: Number(values.overlap_ms)})),
    done: (key) => newKey(key),
  });
  const revoke = formDialog(app, {
    title: 'Revoke the key', submit: 'Revoke the key', danger: true,
    fields: (key) => [about(key),
      h('p', null, 'All gateways refuse the key within seconds. Leases that its holder has stay until they end; it ' +
        'can neither renew them nor write.'),
      key.principal === account()?.principal && h('p', null, 'If it is the key that you have signed in with, you are ' +
        'signed out.'),
      h('p', {class: 'note'}, 'This can’t be undone.')],
    send: async (key) => then(await app.send('DELETE', '/v1/keys/' + key.id)),
    done: (key) => h('p', null, 'The key ', h('code', null, key.id), ' is revoked.'),
  });
  return {elements: [create.element, rotate.element, revoke.element], create: create.open, rotate: rotate.open,
    revoke: revoke.open};
}

function about(key) {
  return h('p', null, 'The key ', h('code', null, key.id), ' of ', h('strong', null, name(key.principal)),
    key.description && [', ', name(key.description)], '.');
}

function field(label, input) {
  return h('label', {class: 'field wide'}, h('span', null, label), input);
}

function choice(label, of, options) {
  return field(label, h('select', {name: of},
    options.map(([text, value]) => h('option', {value: String(value)}, text))));
}

// newKey shows a key, for this once.
function newKey(key) {
  const text = h('textarea', {class: 'secret', readonly: true, rows: 3, value: key.key, 'aria-label': 'The new key',
    on: {focus: () => text.select()}});
  const copied = button('Copy', async () => {
    text.select();
    fill(copied, await copy(key.key) ? 'Copied' : 'Press Ctrl+C');
  });
  return [
    h('p', {class: 'message-title'}, 'The new key of ', name(key.principal)),
    h('div', {class: 'secret-row'}, text, copied),
    h('p', null, 'Keep it now: nobody can get it again. The database has only its digest.'),
    grantList(key.grants),
  ];
}

// copy needs an encrypted connection, or this computer.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
