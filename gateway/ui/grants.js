// What principals may do, in words.
//
//   grantList(grants)       a list, one name a line
//   limitNote(scope)        that the caller sees a part of the names only; null: it sees all

import {mayAll, namesOf, scopesByName} from './account.js';
import {h} from './dom.js';
import {name} from './parts.js';

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
