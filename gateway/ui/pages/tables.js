// Protected tables: users' own tables whose rows can be written only under the fence of their resource; and the roles of
// the database that may guard and lease.

import {timeAgo} from '../clock.js';
import {fill, h} from '../dom.js';
import {compact, count} from '../format.js';
import {pagedList} from '../paged.js';
import {badge, command, emptyMessage, name, panel} from '../parts.js';
import {link} from '../router.js';
import {byContent, createTable} from '../table.js';

export const title = 'Tables';

const modes = {
  enforce: 'A write without an admitted token is rejected.',
  observe: 'Nothing is rejected. What would be is recorded.',
};

const inserts = {
  guarded: 'A new row needs an admitted token.',
  free: 'Anybody may insert a row without a token.',
};

// rejectionsOf leads to the rejections on the resources of the rows: a search by the key, which is the table, would miss
// those of guards, which name no table.
function rejectionsOf({table, template}, range) {
  const prefix = template.split('{')[0];
  return link('rejections', null, {source: 'sql', ...(prefix ? {prefix} : {key: table}), range});
}

// templateCell leads to the locks of the rows, if the template begins with a text, as accounts/{id} does.
function templateCell({template}) {
  const prefix = template.split('{')[0];
  return h('span', {class: 'stack'}, h('code', null, name(template)),
    prefix && h('a', {class: 'note', href: link('locks', null, {prefix, state: 'any'})}, 'locks'));
}

function triggersCell(table) {
  if (table.problem) return h('span', {class: 'stack'}, h('span', null, badge('problem', 'bad')),
    h('bdi', null, table.problem));
  return table.checked_at ? badge('in place', 'good') : h('span', {class: 'note'}, 'not checked yet');
}

const columns = [
  {id: 'table', label: 'Table', class: 'grow', hint: 'Leads to its rejections',
    cell: (table) => name(table.table, {href: rejectionsOf(table)})},
  {id: 'template', label: 'Resource of a row', class: 'grow', hint: 'A segment in braces is a column',
    cell: templateCell},
  {id: 'mode', label: 'Mode', class: 'tight', cell: (table) => h('span', {title: modes[table.mode]},
    badge(table.mode, table.mode === 'enforce' ? '' : 'info'))},
  {id: 'inserts', label: 'Inserts', class: 'tight', cell: (table) => h('span', {title: inserts[table.inserts]},
    badge(table.inserts, table.inserts === 'guarded' ? '' : 'info'))},
  {id: 'state', label: 'Triggers', class: 'grow', hint: 'A gateway looks at them every 30 s', cell: triggersCell},
  {id: 'rows', label: 'Rows', number: true, hint: 'An estimate, as of the last vacuum or analyze',
    cell: (table) => (table.rows === undefined ? h('span', {class: 'note'}, 'not analyzed') : compact(table.rows))},
  {id: 'rejections', label: 'Rejections', number: true,
    hint: 'By SQL, in the last 24 hours: by its triggers, and of guards of its resources; in the mode observe, ' +
      'such writes pass',
    cell: (table) => (table.rejections === 0 ? '0' : h('a', {href: rejectionsOf(table, '24h')},
      count(table.rejections)))},
  {id: 'since', label: 'Protected', class: 'tight', cell: (table) => timeAgo(table.protected_at)},
];

const betweenRoles = 30_000;

function namesCell({prefixes}) {
  if (!prefixes) return 'all names';
  if (prefixes.length === 0) return 'no name';
  return h('span', {class: 'stack'}, prefixes.map((prefix) => name(prefix)));
}

function rolesPanel(app) {
  const table = createTable({
    caption: 'SQL roles', key: (role) => role.role, changed: byContent,
    columns: [
      {id: 'role', label: 'Role', class: 'grow', cell: (role) => name(role.role)},
      {id: 'names', label: 'Names', class: 'grow', hint: 'Each with all names below it', cell: namesCell},
    ],
    empty: () => emptyMessage('No role has the rights of an application.',
      command('fencegate migrate --app-role NAME')),
  });
  const load = () => app.run(async () => table.update((await app.get('/v1/sql-roles')).sql_roles),
    (error) => table.setError(error, load));
  load();
  app.every(betweenRoles, load);
  return panel('SQL roles', {note: 'and the names that each may guard, lease and write by SQL'}, table.element);
}

export function mount(container, params, app) {
  const rejected = h('span', {class: 'badges spaced'});
  const showRejected = ({database}) => {
    const listed = (text, byCode) => Object.keys(byCode ?? {}).length > 0 && [text, Object.entries(byCode)
      .map(([code, writes]) => h('span', null, h('code', null, code), ' ', count(writes)))];
    fill(rejected, listed('Rejected by SQL so far:', database.rejected_by_sql),
      listed('Let through in the mode observe:', database.observed_by_sql),
      database.unlisted_by_sql > 0 && h('span', {class: 'note',
        title: 'Too many came at once, or for names on which no lease was ever granted'},
      count(database.unlisted_by_sql), ' of them are not listed'));
  };
  const list = pagedList(container, params, app, {
    page: 'tables', title, intro: ['Rows of these tables can be written only under the fence of their resource. ',
      rejected],
    noun: 'table', caption: 'Protected tables', columns, key: (table) => table.table, overview: showRejected,
    filters: {label: 'Filter tables', fields: [{name: 'prefix', label: 'Name begins with', placeholder: 'any'}]},
    empty: (filters) => emptyMessage(Object.keys(filters).length > 0 ? 'No table matches.' : 'No table is protected.',
      h('p', null, 'The owner of a table protects it by SQL. From then on a write needs an admitted token:'),
      command('select fence.protect(\'public.accounts\', \'accounts/{id}\');')),
  });
  container.querySelector('.page').append(rolesPanel(app));
  return list;
}
