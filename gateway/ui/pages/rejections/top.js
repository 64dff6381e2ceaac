// The owners and the resources with the most rejected writes of those that the filters select.
//
//   createTop({filterLink}) → {element, update(summary)}

import {h} from '../../dom.js';
import {count, duration} from '../../format.js';
import {button, emptyMessage, name, panel} from '../../parts.js';
import {timeAgo} from '../../left.js';
import {byContent, createTable} from '../../table.js';

const few = 5;

export function createTop({filterLink}) {
  const owners = topTable('Owners', 'Owner', 'owner_id', filterLink, 'No owner of a rejected write is known.');
  const resources = topTable('Resources', 'Resource', 'resource', filterLink, 'None.');
  return {
    element: h('div', {class: 'columns'}, owners.element, resources.element),
    update(summary) {
      owners.update(summary.owners, summary.writes);
      resources.update(summary.resources, summary.writes);
    },
  };
}

function topTable(title, label, field, filterLink, none) {
  let rows = [], all = false, greatest = 1;
  const table = createTable({
    caption: `${title} with the most rejected writes`,
    columns: [
      {id: 'name', label, class: 'grow', cell: (row) => name(row[field], {href: filterLink({[field]: row[field]})})},
      {id: 'writes', label: 'Writes', number: true,
        cell: (row) => [h('span', {class: 'bar', style: {'--part': String(row.writes / greatest)},
        'aria-hidden': 'true'}), h('span', {class: 'bar-count'}, count(row.writes))]},
      {id: 'groups', label: 'Groups', hint: 'Writes of one token that were rejected alike are one group', number: true,
        cell: (row) => count(row.groups)},
      {id: 'late', label: 'Latest by', hint: 'The greatest time after the end of a lease', number: true,
        cell: (row) => duration(row.late_ms_max, {fixed: true})},
      {id: 'last', label: 'Last', class: 'tight', cell: (row) => timeAgo(row.last_at)},
    ],
    key: (row) => row[field],
    changed: byContent,
    empty: () => emptyMessage(none),
  });
  const more = button('', () => {
    all = !all;
    render();
  }, {class: 'quiet', hidden: true});

  function render() {
    more.hidden = rows.length <= few;
    more.textContent = all ? `First ${few}` : `All ${rows.length}`;
    greatest = Math.max(1, ...rows.map((row) => row.writes));
    // Bars are relative to the greatest: if that changes, all rows are rebuilt.
    table.update((all ? rows : rows.slice(0, few)).map((row) => ({...row, greatest})));
  }

  return {
    element: panel(`Most rejected writes, by ${label.toLowerCase()}`, {actions: more}, table.element),
    update(now) {
      rows = now;
      render();
    },
  };
}
