// The page for a caller whom the gateway does not know: it offers the issuers by which users sign in, and asks for an
// API key or token. app.js shows it in place of any page, and after it the page of the address.

import {account, signIn} from '../account.js';
import {address, nameInPath} from '../api.js';
import {fill, h} from '../dom.js';
import {errorMessage, heading} from '../parts.js';

export const title = 'Sign in';

const returnMax = 1000; // of an address, for the gateway

// Why nobody was signed in by an issuer: the gateway leads to ?sign-in=… then.
const failures = new Map(Object.entries({
  denied: 'The issuer has not let you in, or you have cancelled. Try again.',
  failed: 'The issuer has not finished the sign-in. Try again; if that fails, too, the gateway’s log says more.',
  expired: 'This sign-in took more than 10 minutes, or it was begun in another window or finished before. Try again.',
  unreachable: 'The gateway can’t reach the issuer. Try again a little later.',
  refused: 'The gateway does not accept the issuer’s token for you. The gateway’s log, at the level debug, has the reason.',
  too_long: 'The issuer’s token is too long for a cookie. An administrator can have it contain less, such as groups.',
}));

// takeFailure returns the text of the failure in the address, and removes it there.
function takeFailure() {
  const query = new URLSearchParams(location.search);
  const text = failures.get(query.get('sign-in'));
  if (text) history.replaceState(null, '', location.pathname + location.hash);
  return text;
}

function issuerLink({name, label}) {
  const page = location.hash.slice(1);
  return h('a', {class: 'button', href: address(`/v1/sign-in/${nameInPath(name)}/start`,
    {return: page.length <= returnMax && page})}, `Sign in with ${label}`);
}

const loopback = /^(localhost|127\.|\[::1\])/;

export function mount(container, {query}, app) {
  const key = h('input', {id: 'credential', type: 'password', name: 'credential', required: true, autocomplete: 'off',
    spellcheck: 'false', maxlength: 3800});
  const result = h('div', {'aria-live': 'polite'});
  const submit = h('button', {type: 'submit'}, 'Sign in');
  const issuers = h('div', {class: 'issuers'});
  const failure = takeFailure();
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
  failure && errorMessage(new Error(failure)),
  issuers,
  h('label', {class: 'field', for: 'credential'}, h('span', null, 'API key or token'), key),
  result,
  h('div', {class: 'actions'}, submit),
  h('p', {class: 'note'}, 'The browser keeps it in a cookie for at most 8 hours. No script can read it.'),
  location.protocol === 'http:' && !loopback.test(location.host) && h('p', {class: 'note'},
    'This connection is not encrypted: others in the network can read what you send.'));
  fill(container, heading('Sign in', {intro: query.ended
    ? 'You have been signed out: the credential has ended, or was revoked.'
    : 'This gateway asks for a credential.'}), form,
  h('p', {class: 'note'}, 'An administrator creates a key: ', h('code', null, 'fencegate keys create')));
  key.focus();
  app.run(async () => {
    fill(issuers, (await app.get('/v1/sign-in')).issuers.map(issuerLink));
  }, (error) => fill(issuers, errorMessage(error)));
}
