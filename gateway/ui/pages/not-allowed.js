// What is shown in place of a page that the caller may not see.

import {account, grantList} from '../account.js';
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
