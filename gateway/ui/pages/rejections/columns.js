// The table of groups, and the timeline's readout for one group.
//
//   columns(onOpen) → for createTable; onOpen(id, opener) opens the drawer
//   details(row) → nodes

import {h} from '../../dom.js';
import {count, plural, token, when} from '../../format.js';
import {kindBadge, name, owner, rejectionButton, timeAt} from '../../parts.js';
import {timeAgo} from '../../left.js';
import {link} from '../../router.js';
import {lateness, noLease} from './words.js';

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
