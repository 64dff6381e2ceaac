// The dialogs that create, rotate and revoke a key.
//
//   keyDialogs(app, changed) → {elements, create(), rotate(key), revoke(key)}
//
// changed() is called after each success.

import {account} from '../../account.js';
import {formDialog} from '../../dialog.js';
import {fill, h} from '../../dom.js';
import {grantList} from '../../grants.js';
import {button, name} from '../../parts.js';

const day = 86_400_000;
const lifetimes = [['90 days', 90 * day], ['1 day', day], ['7 days', 7 * day], ['30 days', 30 * day],
  ['1 year', 365 * day], ['no end', '']];
const overlaps = [['24 hours', day], ['1 hour', 3_600_000], ['7 days', 7 * day], ['30 days', 30 * day],
  ['not at all', 0]];

export function keyDialogs(app, changed) {
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
