// The caller, and what it may do. The gateway judges every request; here it is decided what to show.
//
//   await loadAccount()           asks the gateway who the caller is
//   await signIn(credential), await signOut()
//   account()                     {principal, kind, grants, expires_at}; null: the caller must sign in; undefined: not
//                                 asked yet
//   may(scope, name)              whether it has the scope on a name
//   mayAny(scope), mayAll(scope)  on some name, on all names
//   namesOf(scope)                on which names it has the scope; each stands for all names below it, too
//   onAccount(fn)                 calls fn when another caller signs in, or the credential has ended
//   scopesByName(grants) → [{name, scopes}]      the grants in the words of the command line. Pure.
//
// Where the gateway can't say who the caller is, everything is shown.
//
// What principals may do, in words.
//
//   grantList(grants)       a list, one name a line
//   limitNote(scope)        that the caller sees a part of the names only; null: it sees all

import {get, onUnauthenticated, send} from './api.js';
import {h} from './dom.js';
import {name} from './parts.js';

const allScopes = ['lock', 'write', 'read', 'observe', 'admin'];
const unknown = {principal: '', kind: 'anonymous', grants: allScopes.map((scope) => scope + ':')};

let current, changed = () => {};

export const account = () => current;

export function onAccount(work) {
  changed = work;
}

function become(principal) {
  const other = JSON.stringify(principal) !== JSON.stringify(current);
  current = principal;
  if (other) changed();
}

export async function loadAccount() {
  try {
    become(await get('/v1/whoami'));
  } catch (error) {
    if (error.status !== 401) become(unknown);
  }
}

export async function signIn(credential) {
  become(await send('POST', '/v1/sign-in', {credential}));
}

export async function signOut() {
  await send('DELETE', '/v1/sign-in');
  become(null);
}

onUnauthenticated(() => become(null));

export function may(scope, name) {
  return namesOf(scope).some((prefix) => prefix === '' || name === prefix || name.startsWith(prefix + '/'));
}

export function mayAll(scope) {
  return namesOf(scope).includes('');
}

export function mayAny(scope) {
  return namesOf(scope).length > 0;
}

export function namesOf(scope) {
  return (current?.grants ?? []).filter((grant) => grant.startsWith(scope + ':'))
    .map((grant) => grant.slice(scope.length + 1));
}

export function scopesByName(grants) {
  const scopes = new Map();
  for (const grant of grants) {
    const colon = grant.indexOf(':');
    const name = grant.slice(colon + 1);
    scopes.set(name, [...(scopes.get(name) ?? []), grant.slice(0, colon)]);
  }
  return [...scopes].map(([name, of]) => ({name, scopes: of.length === allScopes.length ? ['all'] : of}));
}

export function grantList(grants) {
  if (grants.length === 0) return h('p', null, 'Nothing.');
  return h('ul', {class: 'grants'}, scopesByName(grants).map(({name: of, scopes}) =>
    h('li', null, h('code', null, scopes.join(', ')), of === '' ? ' on every name' : [' on ', name(of)])));
}

export function limitNote(scope) {
  if (mayAll(scope)) return null;
  return [' You see only what is on ', namesOf(scope).map((each, at) => [at > 0 && ', ', name(each)]),
    ' and below.'];
}
