// The dialog that breaks a lock, for administrators. It describes the consequences, requires a reason, and shows the
// answer or the error.
//
//   const breaker = breakDialog(app, lock);
//   breaker.element · breaker.show(state) whenever the lock changes · breaker.open() · breaker.close()

import {fill, h, setText} from '../dom.js';
import {button, errorMessage, name} from '../parts.js';
import {nameInPath} from '../api.js';

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
