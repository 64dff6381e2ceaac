// The newest rejections: a panel of the overview.
//
//   createNewest(app, {onOpen(id, opener), onRows(rows)}) → {element, load()}       load fetches them again

import {h} from '../../dom.js';
import {count} from '../../format.js';
import {emptyMessage, name, owner, panel, rejectionButton} from '../../parts.js';
import {timeAgo} from '../../left.js';
import {link} from '../../router.js';
import {createTable} from '../../table.js';
import {lateness} from '../rejections/words.js';

const shown = 8;

export function createNewest(app, {onOpen, onRows}) {
  const table = createTable({
    caption: 'Newest rejections',
    columns: [
      {id: 'last', width: '104px', label: 'Last', class: 'tight corner', cell: (row) => timeAgo(row.last_at)},
      {id: 'kind', width: '136px', label: 'Kind', class: 'lead',
        cell: (row) => rejectionButton(row, onOpen, {code: false})},
      {id: 'resource', label: 'Resource', class: 'grow',
        cell: (row) => name(row.resource, {href: link('rejections', null, {resource: row.resource})})},
      {id: 'owner', label: 'Owner', class: 'grow',
        cell: (row) => row.owner_id && owner({owner_id: row.owner_id})},
      {id: 'late', width: '84px', label: 'Late', hint: 'How long after the end of its lease', number: true,
        cell: (row) => lateness(row, {fixed: true})},
      {id: 'count', width: '66px', label: 'Writes', number: true, cell: (row) => count(row.count)},
    ],
    key: (row) => row.id,
    onRow: (row, opener) => onOpen(row.id, opener),
    changed: (before, now) => before.count !== now.count || before.last_at !== now.last_at,
    empty: () => emptyMessage('No write has been rejected.',
      h('p', null, 'Rejected writes appear here. ', h('a', {href: link('rejections')}, 'Try it'))),
  });

  function load() {
    app.run(async () => {
      const {rejections} = await app.get('/v1/rejections', {sort: 'last_seen', limit: shown});
      table.update(rejections);
      onRows(rejections);
    }, (error) => table.setError(error, load));
  }

  return {element: panel('Newest rejections', {class: 'short',
    actions: h('a', {href: link('rejections')}, 'All rejections')}, table.element), load};
}
