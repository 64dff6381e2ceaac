// The table of groups, and the timeline's readout for one group.
//
//   columns(onOpen) → for createTable; onOpen(id, opener) opens the drawer
//   details(row) → nodes
//
// The owners and the resources with the most rejected writes of those that the filters select.
//
//   createTop({filterLink}) → {element, update(summary)}
//
// Shown if there are no rejections: a description of the page, and how to make a zombie.
//
//   emptyState({filtered, total, showAll}) → element

import {timeAgo} from '../../clock.js';
import {h} from '../../dom.js';
import {count, duration, plural, token, when} from '../../format.js';
import {lateness, noLease} from './words.js';
import {button, command, emptyMessage, kindBadge, name, owner, panel, rejectionButton, timeAt} from '../../parts.js';
import {link} from '../../router.js';
import {byContent, createTable} from '../../table.js';

export function columns(onOpen) {
  return [
    {id: 'first', width: '84px', label: 'First', class: 'tight minor', sort: 'desc', hint: 'The time of its first write',
      cell: (row) => timeAt(row.first_at, {milliseconds: false})},
    {id: 'last', width: '102px', label: 'Last', class: 'tight corner', sort: 'desc', hint: 'The time of its latest write',
      cell: (row) => timeAgo(row.last_at)},
    {id: 'kind', width: '174px', label: 'Kind and code', class: 'lead', cell: (row) => rejectionButton(row, onOpen)},
    {id: 'resource', label: 'Resource', class: 'grow',
      cell: (row) => name(row.resource, {href: link('locks', row.resource)})},
    {id: 'key', width: '160px', label: 'Key', class: 'grow',
      hint: 'The key of the record; of a write by SQL, the protected table', cell: (row) => row.key &&
        name(row.key, {href: row.source === 'sql' ? link('tables', null, {prefix: row.key}) : null})},
    {id: 'token', width: '156px', label: 'Token', number: true, sort: 'desc',
      hint: 'The fencing token of the write, with its sequence; below, the newer token that superseded it',
      cell: (row) => h('span', {class: 'stack'}, tokenText(row),
        row.superseded_by !== undefined && h('span', {class: 'note'}, 'by ', token(row.superseded_by)))},
    {id: 'late', width: '96px', label: 'Late', number: true, sort: 'desc',
      hint: 'How long after the end of its lease the latest write came',
      cell: (row) => lateness(row, {fixed: true})},
    {id: 'owner', label: 'Owner', class: 'grow', hint: 'The owner of the token’s lease', cell: (row) =>
      (row.owner_id ? owner({owner_id: row.owner_id})
        : h('span', {class: 'note', title: row.token === undefined ? '' : noLease}, 'unknown'))},
    {id: 'source', width: '98px', label: 'Source', class: 'tight minor', hint: 'The way by which it came in',
      cell: (row) => row.source},
    {id: 'count', width: '72px', label: 'Writes', number: true, sort: 'desc', cell: (row) => count(row.count)},
  ];
}

function tokenText(row) {
  return row.token === undefined ? 'none' : token(row.token, row.sequence);
}

export function details(row) {
  const lines = [
    ['Resource', row.key && row.source !== 'sql' ? `${row.resource} · ${row.key}` : row.resource],
    ...(row.key && row.source === 'sql' ? [['Table', row.key]] : []),
    ['Owner', row.owner_id || 'unknown'],
    ['Token', tokenText(row) + (row.superseded_by === undefined ? '' : `, superseded by ${token(row.superseded_by)}`)],
    ['Late', lateness(row) || 'no'],
    ['Writes', row.count === 1 ? when(row.last_at)
      : `${plural(row.count, 'write')}, ${when(row.first_at)} to ${when(row.last_at)}`],
  ];
  return [
    h('div', {class: 'readout-title'}, kindBadge(row.kind), ` ${row.code} ${row.reason ?? ''}`),
    lines.map(([label, text]) => h('div', {class: 'readout-fact'}, h('span', null, label),
      h('bdi', null, text.length > 120 ? text.slice(0, 119) + '…' : text))),
  ];
}

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

export function emptyState({filtered, total, showAll}) {
  if (total > 0) {
    return emptyMessage(filtered ? 'No rejection matches these filters in this time.'
      : 'No write was rejected in this time.',
      h('p', null, `${plural(total, 'write was', 'writes were')} rejected in the whole time that is kept. `),
      button('Show all', showAll));
  }
  return emptyMessage('No write has been rejected so far.',
    h('p', null,
      'A write is rejected if a newer lease of its lock was granted before it arrived: its sender paused, was ' +
      'disconnected, or did not notice that its lease had ended. This page shows each rejected write: its owner, its ' +
      'token, the token that superseded it, and how late it was.'),
    h('p', null, 'To see one, run this:'),
    command(`fencegate demo zombie --gateway ${location.origin} --rounds 1`));
}
