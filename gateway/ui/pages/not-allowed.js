// What is shown in place of a page that the caller may not see.

import {account, scopesByName} from '../account.js';
import {fill, h} from '../dom.js';
import {emptyMessage, name} from '../parts.js';

export const title = (params) => params.label;

export function mount(container, {label, scope, everywhere, name: of}) {
  const where = of !== null ? [' on the name ', name(of)] : everywhere ? ' on all names' : '';
  fill(container, h('h1', null, label), h('section', {class: 'panel', 'aria-label': label},
    emptyMessage('You may not see this page.',
      h('p', null, 'It needs the scope ', h('code', null, scope), where, '.'),
      h('p', null, name(account().principal), ' may do this:'),
      grantList(account().grants))));
}

// grantList shows grants, one name a line.
export function grantList(grants) {
  if (grants.length === 0) return h('p', null, 'Nothing.');
  return h('ul', {class: 'grants'}, scopesByName(grants).map(({name: of, scopes}) =>
    h('li', null, h('code', null, scopes.join(', ')), of === '' ? ' on every name' : [' on ', name(of)])));
}
