// The audit log: what administrators did, by the API or by SQL.

import {h} from '../dom.js';
import {emptyMessage, name, timeAt} from '../parts.js';
import {link} from '../router.js';
import {pagedList} from '../paged.js';

export const title = 'Audit';

const actions = {
  lease_broken: 'lease broken', policy_set: 'policy set', policy_deleted: 'policy deleted', fence_set: 'fence set',
  key_created: 'key created', key_rotated: 'key rotated', key_revoked: 'key revoked',
  table_protected: 'table protected', table_unprotected: 'table no longer protected', table_opened: 'table opened',
  table_closed: 'table closed', names_allowed: 'names allowed', names_disallowed: 'names no longer allowed',
  database_accepted: 'database accepted', access_refused: 'access refused',
};

// subjects are the details that say what an action without a name changed, by the first word of the action.
const subjects = {table: 'table', key: 'key_id'};

const subjectOf = ({action}) => subjects[action.split('_')[0]];

function nameCell(entry) {
  const subject = entry.details[subjectOf(entry)];
  if (subject) return name(subject, {href: entry.action.startsWith('table_') ? link('tables', null, {prefix: subject}) : null});
  if (!entry.name) return /^(policy|names)_/.test(entry.action) && h('span', {class: 'note'}, 'every name');
  return name(entry.name, {href: entry.action.startsWith('policy_') ? null : link('locks', entry.name)});
}

function text(value) {
  if (Array.isArray(value)) return value.map(text).join(', ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function detailsCell(entry) {
  return h('ul', {class: 'plain'}, Object.entries(entry.details)
    .filter(([label, value]) => value !== null && value !== '' && label !== subjectOf(entry))
    .map(([label, value]) => h('li', null, h('span', {class: 'note'}, label.replaceAll('_', ' '), ' '),
      h('bdi', null, text(value)))));
}

const columns = [
  {id: 'at', label: 'When', class: 'tight', cell: (entry) => timeAt(entry.at)},
  {id: 'principal', label: 'Principal', class: 'grow', hint: 'Who did it; by SQL: the role of the database',
    cell: (entry) => name(entry.principal)},
  {id: 'action', label: 'Action', class: 'tight', cell: (entry) => actions[entry.action] ?? entry.action},
  {id: 'name', label: 'Of', class: 'grow', hint: 'The name, the table or the key', cell: nameCell},
  {id: 'details', label: 'Details', class: 'grow', cell: detailsCell},
  {id: 'address', label: 'Address', class: 'tight', hint: 'Of the client', cell: (entry) => entry.address},
];

export function mount(container, params, app) {
  return pagedList(container, params, app, {
    page: 'audit', rows: 'entries', title,
    intro: 'What administrators did, by the API or by SQL, written in the transaction of the action; and how often a '
      + 'gateway refused access, every minute.',
    noun: 'action', caption: 'Actions, the newest first', columns, key: (entry) => entry.id, changed: () => false,
    filters: {label: 'Filter actions', fields: [
      {name: 'prefix', label: 'Name begins with'},
      {name: 'principal', label: 'Principal is'},
      {name: 'action', label: 'Action', options: [['', 'any'], ...Object.entries(actions)]},
    ]},
    empty: (filters) => emptyMessage(
      Object.keys(filters).length > 0 ? 'No action matches.' : 'No administrator has done anything yet.',
      h('p', null, 'Policies, fences, breaks, keys and protected tables: each change of them is listed here.')),
  });
}
