// The rejections: writes that were shut out.

import {codeBadge, emptyMessage, heading, name, panel, timeAgo} from '../parts.js';
import {count, duration, token} from '../format.js';
import {createTable} from '../table.js';

export const title = 'Rejections';

export function mount(container, params, app) {
  const rows = new Map();
  const table = createTable({
    caption: 'Rejections',
    columns: [
      {id: 'last', label: 'Last', cell: (row) => timeAgo(row.last_at)},
      {id: 'code', label: 'Code', cell: (row) => codeBadge(row.code, row.reason)},
      {id: 'resource', label: 'Resource', class: 'grow', cell: (row) => name(row.resource)},
      {id: 'token', label: 'Token', number: true, cell: (row) => token(row.token, row.sequence)},
      {id: 'late', label: 'Late', number: true, cell: (row) => duration(row.late_ms)},
      {id: 'count', label: 'Writes', number: true, cell: (row) => count(row.count)},
    ],
    key: (row) => row.id,
    empty: () => emptyMessage('No write has been rejected.'),
  });
  container.append(heading('Rejections'), panel('Stories', {}, table.element));
  const paint = app.frame(() => table.update([...rows.values()].sort((a, b) => b.id - a.id)), 250);

  function load() {
    app.run(async () => {
      const page = await app.get('/v1/rejections', {...params.query, limit: 1000});
      for (const row of page.rejections) rows.set(row.id, row);
      paint();
    }, (error) => table.setError(error, load));
  }

  load();
}
