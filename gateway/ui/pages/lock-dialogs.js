// The dialog that breaks a lock, for administrators. It describes the consequences, requires a reason, and shows the
// answer or the error.
//
//   const breaker = breakDialog(app, lock);
//   breaker.element · breaker.show(state) whenever the lock changes · breaker.open() · breaker.close()
//
// The dialog that shows the value of a record. The gateway gives it only to a caller with the scope read on the name.
//
//   const dialog = valueDialog(app, resource);     dialog.element · dialog.open(record), a row of the list of records
//
// The value of a record, prepared to be shown as text. Pure.
//
//   await firstBytes(body, max) → {bytes, whole}     of a ReadableStream; it is canceled after max bytes
//   shownValue({bytes, whole}) → {kind: 'text', text}, or {kind: 'binary', text: the first bytes as hexadecimal}
//
// The bytes alone decide, and not the content type that the writer claimed: text is UTF-8 without control characters.

import {nameInPath} from '../api.js';
import {fill, h, setText} from '../dom.js';
import {bytes as sizeOf, count} from '../format.js';
import {button, errorMessage, fact, loading, name} from '../parts.js';

const reasonBytesMax = 1024;

export function breakDialog(app, lock) {
  let state = null;   // the lock's current state
  let agreed = null;  // the tokens of the leases that the dialog names
  let busy = false;
  const reason = h('textarea', {id: 'break-reason', name: 'reason', rows: 3, required: true, maxlength: reasonBytesMax,
    autocomplete: 'off'});
  const what = h('div', {class: 'stack', id: 'break-what'});
  const result = h('div', {'aria-live': 'polite'});
  const submit = h('button', {type: 'submit', class: 'danger'}, 'Break the lock');
  const cancel = button('Cancel', close);
  const form = h('form', {on: {submit(event) {
    event.preventDefault();
    confirm();
  }}},
  what,
  h('label', {class: 'field', for: 'break-reason'}, h('span', null, 'Reason, kept with the lease'), reason),
  result,
  h('div', {class: 'actions end'}, cancel, submit));
  const element = h('dialog', {'aria-labelledby': 'break-title'},
    h('h2', {id: 'break-title'}, 'Break ', name(lock, {whole: true}), '?'), form);

  function open() {
    if (state === null || state.state === 'free') return;
    agreed = tokensOf(state);
    reason.value = '';
    fill(what, consequences(state));
    fill(result);
    showForm(true);
    element.showModal();
    reason.focus();
  }

  function close() {
    if (element.open) element.close();
  }

  function showForm(yes) {
    reason.closest('label').hidden = submit.hidden = what.hidden = !yes;
    setText(cancel, yes ? 'Cancel' : 'Close');
  }

  function confirm() {
    const text = reason.value.trim();
    if (busy) return;
    if (text === '' || new TextEncoder().encode(text).length > reasonBytesMax) {
      const message = text === '' ? 'A reason is required.' : `The reason is longer than ${reasonBytesMax} bytes.`;
      fill(result, errorMessage({message}));
      reason.focus();
      return;
    }
    // A break ends every live lease of the lock. Don't end one that the dialog did not name.
    if (tokensOf(state) !== agreed) {
      agreed = tokensOf(state);
      fill(what, consequences(state));
      fill(result, errorMessage({message: 'The lock has changed hands meanwhile. Check again which lease this ends.'}));
      return;
    }
    busy = submit.disabled = true;
    fill(result);
    app.run(async () => {
      const answer = await app.send('POST', `/v1/locks/${nameInPath(lock)}/break`, {reason: text});
      showForm(false);
      fill(result, h('p', {class: 'message-title'}, 'Broken.'),
        h('p', null, 'The lease of ', name(answer.owner_id),
        ` with token ${answer.fencing_token} has ended. Writes with this token are rejected.`));
      app.announce('The lock is broken.');
      cancel.focus();
      ready();
    }, (error) => {
      fill(result, errorMessage(error));
      ready();
    });
  }

  function ready() {
    busy = submit.disabled = false;
  }

  return {
    element, open, close,
    show(now) {
      state = now;
    },
  };
}

function tokensOf(state) {
  return (state?.holders ?? []).map((holder) => holder.fencing_token).join(' ');
}

function consequences(state) {
  const owners = state.holders.map((holder, at) =>
    [at > 0 && ', ', h('strong', null, name(holder.owner_id, {whole: true})), ` (token ${holder.fencing_token})`]);
  const next = state.queue[0];
  const several = state.holders.length > 1;
  return [
    h('p', null, several ? 'The leases of ' : 'The lease of ', owners, several ? ' end now.' : ' ends now.'),
    h('p', null, `All later writes with ${several ? 'these tokens' : 'this token'} are rejected. `,
      several ? 'The holders learn' : 'The holder learns', ' of it at the next renewal or write.'),
    h('p', null, next ? ['The next waiter, ', h('strong', null, name(next.owner_id)), ', is granted the lock at once.']
      : 'There are no waiters: the lock will be free.'),
    h('p', {class: 'note'}, 'This can’t be undone.'),
  ];
}

const bytesMax = 64 * 1024;

export function valueDialog(app, resource) {
  const title = h('h2', {id: 'value-title'});
  const body = h('div', {class: 'stack'});
  const element = h('dialog', {class: 'wide', 'aria-labelledby': 'value-title', on: {close: () => fill(body)}},
    h('div', {class: 'drawer-head'}, title, button('Close', () => element.close())), body);
  let shown = null;

  function load(record) {
    app.run(async () => {
      const answer = await app.open(`/v1/resources/${nameInPath(resource)}/records/${nameInPath(record.key)}`);
      const read = await firstBytes(answer.body, bytesMax);
      if (shown === record) fill(body, content(record, answer.headers, read));
    }, (error) => {
      if (shown === record) fill(body, errorMessage(error, () => load(record)));
    });
  }

  app.onEnd(() => element.close());
  return {
    element,
    open(record) {
      shown = record;
      fill(title, 'Value of ', name(record.key, {whole: true}));
      fill(body, loading());
      element.showModal();
      load(record);
    },
  };
}

function content(record, headers, read) {
  const value = shownValue(read);
  const size = Number(headers.get('Content-Length') ?? record.size);
  const cut = value.kind === 'binary' && read.bytes.length > 512 ? 'the first 512 bytes'
    : !read.whole && 'the first ' + sizeOf(bytesMax);
  return [
    h('dl', {class: 'facts'},
      fact('Size', sizeOf(size), size >= 1024 && h('span', {class: 'note'}, ` ${count(size)} bytes`)),
      fact('Content type', name(headers.get('Content-Type') ?? record.content_type)),
      fact('Token', headers.get('Fencing-Token'))),
    size === 0 ? h('p', {class: 'note'}, 'The value is empty.')
      : h('pre', {class: ['value', value.kind === 'binary' && 'hex'], tabindex: '0', role: 'group',
        'aria-label': value.kind === 'binary' ? 'The value as hexadecimal' : 'The value'}, value.text),
    cut && h('p', {class: 'note'}, `Only ${cut} are shown.`),
  ];
}

const hexMax = 512;

export async function firstBytes(body, max) {
  const reader = body.getReader();
  const parts = [];
  let length = 0;
  while (length <= max) {
    const {value, done} = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
  }
  if (length > max) await reader.cancel();
  const all = new Uint8Array(length);
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return {bytes: all.subarray(0, max), whole: length <= max};
}

export function shownValue({bytes, whole}) {
  try {
    const text = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(bytes, {stream: !whole});
    if (!/[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/.test(text)) return {kind: 'text', text};
  } catch {
    // not UTF-8
  }
  return {kind: 'binary', text: hex(bytes.subarray(0, hexMax))};
}

// hex formats 16 bytes a line, with their offset and their ASCII characters.
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = [...bytes.subarray(at, at + 16)];
    const ascii = line.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(at.toString(16).padStart(4, '0') + '  ' +
      line.map((byte) => byte.toString(16).padStart(2, '0')).join(' ').padEnd(47) + '  ' + ascii);
  }
  return lines.join('\n');
}
