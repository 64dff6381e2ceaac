// The table of groups, and the timeline's readout for one group.
//
//   columns(onOpen) → for createTable; onOpen(id, opener) opens the drawer
//   details(row) → nodes

import {h} from '../../dom.js';
import {count, duration, plural, token, when} from '../../format.js';
import {kindBadge, name, owner, rejectionButton, timeAt} from '../../parts.js';
import {timeAgo} from '../../left.js';
import {link} from '../../router.js';

const anonymous = 'The lease is no longer remembered';

export function columns(onOpen) {
  return [
    {id: 'first', width: '84px', label: 'First', class: 'tight minor', sort: 'desc', hint: 'The time of its first write',
      cell: (row) => timeAt(row.first_at, {milliseconds: false})},
    {id: 'last', width: '102px', label: 'Last', class: 'tight corner', sort: 'desc', hint: 'The time of its latest write',
      cell: (row) => timeAgo(row.last_at)},
    {id: 'kind', width: '174px', label: 'Kind and code', class: 'lead', cell: (row) => rejectionButton(row, onOpen)},
    {id: 'resource', label: 'Resource', class: 'grow',
      cell: (row) => name(row.resource, {href: link('locks', row.resource)})},
    {id: 'key', width: '116px', label: 'Key', class: 'grow',
      hint: 'The key of the record; of a write by SQL, the protected table', cell: (row) => row.key &&
        name(row.key, {href: row.source === 'sql' ? link('tables', null, {prefix: row.key}) : null})},
    {id: 'token', width: '92px', label: 'Token', number: true, sort: 'desc',
      hint: 'The fencing token of the write, with its sequence', cell: tokenText},
    {id: 'superseded', width: '94px', label: 'Superseded by', class: 'minor', number: true, hint: 'The newer token',
      cell: (row) => (row.superseded_by === undefined ? '' : token(row.superseded_by))},
    {id: 'late', width: '100px', label: 'Late', number: true, sort: 'desc',
      hint: 'How long after the end of its lease the latest write came',
      cell: (row) => (row.late_ms === undefined ? '' : duration(row.late_ms, {fixed: true}))},
    {id: 'owner', label: 'Owner', class: 'grow', hint: 'The owner of the token’s lease', cell: (row) =>
      (row.owner_id ? owner({owner_id: row.owner_id})
        : h('span', {class: 'note', title: anonymous}, 'unknown'))},
    {id: 'address', width: '112px', label: 'Address', class: 'tight minor', cell: (row) => row.address && name(row.address)},
    {id: 'source', width: '58px', label: 'Source', class: 'tight minor', hint: 'The way by which it came in',
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
    ['Late', row.late_ms === undefined ? 'its lease had not ended, or is no longer remembered' : duration(row.late_ms)],
    ['Writes', row.count === 1 ? when(row.last_at)
      : `${plural(row.count, 'write')}, ${when(row.first_at)} to ${when(row.last_at)}`],
  ];
  return [
    h('div', {class: 'readout-title'}, kindBadge(row.kind), ` ${row.code} ${row.reason ?? ''}`),
    lines.map(([label, text]) => h('div', {class: 'readout-fact'}, h('span', null, label),
      h('bdi', null, text.length > 120 ? text.slice(0, 119) + '…' : text))),
  ];
}
