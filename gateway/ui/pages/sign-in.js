// The page for a caller whom the gateway does not know: it asks for an API key. app.js shows it in place of any page,
// and after it the page of the address.

import {account, signIn} from '../account.js';
import {fill, h} from '../dom.js';
import {errorMessage, heading} from '../parts.js';

export const title = 'Sign in';

const loopback = /^(localhost|127\.|\[::1\])/;

export function mount(container, {query}, app) {
  const key = h('input', {id: 'credential', type: 'password', name: 'credential', required: true, autocomplete: 'off',
    spellcheck: 'false', maxlength: 3800});
  const result = h('div', {'aria-live': 'polite'});
  const submit = h('button', {type: 'submit'}, 'Sign in');
  const form = h('form', {class: 'sign-in panel', on: {submit(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    fill(result);
    app.run(async () => {
      await signIn(key.value.trim());
      if (account() === null) submit.disabled = false;
    }, (error) => {
      fill(result, errorMessage(error));
      submit.disabled = false;
      key.select();
    });
  }}},
  h('label', {class: 'field', for: 'credential'}, h('span', null, 'API key'), key),
  result,
  h('div', {class: 'actions'}, submit),
  h('p', {class: 'note'}, 'The browser keeps the key in a cookie for at most 8 hours. No script can read it.'),
  location.protocol === 'http:' && !loopback.test(location.host) && h('p', {class: 'note'},
    'This connection is not encrypted: others in the network can read the key.'));
  fill(container, heading('Sign in', {intro: query.ended
    ? 'You have been signed out: the credential has ended, or was revoked.'
    : 'This gateway asks for a credential.'}), form,
  h('p', {class: 'note'}, 'An administrator creates a key: ', h('code', null, 'fencegate keys create')));
  key.focus();
}
