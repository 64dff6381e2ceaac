// A table that stays fast and stable while its rows change. Rows are kept by key, only changed ones are rebuilt, and at
// most one page of them is in the document. On a phone each row becomes a card (parts.css).
//
//   const table = createTable({
//     caption: 'Rejections',           // for screen readers
//     columns: [{id: 'owner', label: 'Owner', hint, number: true, class: 'grow', sort: 'desc', cell: (row) => node}],
//         // cell returns a node or a text
//         // class: 'tight' does not wrap; 'grow' takes the rest, and the whole width of a card; 'whole' the latter.
//         // In a card 'lead' is the first line, without its label, 'corner' is at its end, and 'minor' is left out
//         // width: of the column, in CSS; if any column has one, widths do not depend on the rows
//     key: (row) => row.id,
//     changed: (before, now) => boolean,    // default: another object; byContent compares the content
//     rowClass: (row) => '',
//     onRow(row, opener),              // a click on a row beside its links and buttons; opener is its first button
//     empty: () => element,                 // shown if there are no rows
//     pageSize: () => 100,
//     sort: {id: 'owner', order: 'asc'},    // the current order, or null
//     onSort({id, order}) {…},              // a heading was pressed; the caller sorts and calls update
//   });
//   table.element
//   table.update(rows, {sort, note, pages})
//         // rows: all of them, in order. note: a text beside the pager, such as "the newest 10,000 are shown".
//         // pages: {before, next}: functions that fetch other pages, or null, if the gateway holds the pages
//   table.firstPage(), table.reveal(key)    goes to the first page, or to the row's; scrolls there and highlights it
//   table.setError(error, retry, {always})    shown instead of rows, until the next update. Rows stay while the gateway or
//         the database can't be reached, which the banner reports, unless always: they answer another query
//
// A column with `sort` ('asc' or 'desc': the order at the first press) has a button as its heading, and aria-sort.

import {fill, h, setText} from './dom.js';
import {count} from './format.js';
import {button, errorMessage, loading} from './parts.js';

// byContent is for rows that are fetched anew: only a different content is a change.
export const byContent = (before, now) => JSON.stringify(before) !== JSON.stringify(now);

export function createTable(options) {
  const {columns, key} = options;
  const sizeOf = options.pageSize ?? (() => 100);
  const changed = options.changed ?? ((before, now) => before !== now);
  let rows = [], page = 0, sort = options.sort ?? null, note = '', pages = null;
  const built = new Map(); // key → {row, node}, of the page that is shown

  const headings = columns.map((column) => h('th', {scope: 'col', role: 'columnheader', title: column.hint,
    class: [column.class, column.number && 'number']}, column.sort
    ? h('button', {type: 'button', class: 'sort', on: {click: () => pressed(column)}}, column.label,
      h('span', {class: 'sort-mark', 'aria-hidden': 'true'}))
    : column.label));
  const body = h('tbody', {role: 'rowgroup'});
  const head = h('thead', {role: 'rowgroup'}, h('tr', {role: 'row'}, headings));
  const fixed = columns.some((column) => column.width);
  const widths = fixed && h('colgroup', null, columns.map((column) =>
    h('col', {style: {width: column.width ?? 'auto'}})));
  const grid = h('table', {role: 'table', class: ['data', fixed && 'fixed']},
    h('caption', {class: 'hidden'}, options.caption), widths, head, body);
  const instead = h('div', {class: 'instead'}, loading());
  const shownRange = h('span');
  const before = button('‹ Previous', () => turn(-1));
  const after = button('Next ›', () => turn(1));
  const pager = h('div', {class: 'pager'}, shownRange, h('div', {class: 'actions'}, before, after));
  const scroll = h('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': options.caption}, grid);
  const element = h('div', {class: 'table'}, scroll, instead, pager);
  show('instead');

  function show(what) {
    scroll.hidden = what !== 'rows';
    instead.hidden = what === 'rows';
    pager.hidden = what !== 'rows';
  }

  function pressed(column) {
    const order = sort?.id === column.id ? (sort.order === 'asc' ? 'desc' : 'asc') : column.sort;
    page = 0;
    options.onSort?.({id: column.id, order});
  }

  function turn(step) {
    if (pages) {
      (step < 0 ? pages.before : pages.next)?.();
      return;
    }
    page += step;
    render();
    element.scrollIntoView({block: 'nearest'});
  }

  function renderSort() {
    for (const [at, column] of columns.entries()) {
      if (!column.sort) continue;
      const cell = headings[at];
      const here = sort?.id === column.id;
      cell.setAttribute('aria-sort', !here ? 'none' : sort.order === 'asc' ? 'ascending' : 'descending');
      setText(cell.querySelector('.sort-mark'), !here ? '' : sort.order === 'asc' ? '▲' : '▼');
    }
  }

  function newRow(id) {
    return h('tr', {role: 'row', on: options.onRow && {click(event) {
      if (event.target.closest('a, button') || String(getSelection())) return;
      options.onRow(built.get(id).row, event.currentTarget.querySelector('button'));
    }}});
  }

  function rowNode(row) {
    const id = key(row);
    const known = built.get(id);
    if (known && !changed(known.row, row)) return known.node;
    const node = known?.node ?? newRow(id);
    node.className = [options.rowClass?.(row), options.onRow && 'opens'].filter(Boolean).join(' ');
    fill(node, columns.map((column) => h('td', {role: 'cell', class: [column.class, column.number && 'number'],
      data: {label: column.label}}, h('div', {class: 'cell'}, column.cell(row)))));
    built.set(id, {row, node});
    return node;
  }

  // render moves as few nodes as possible: a node that stays keeps its focus and its selection.
  function render() {
    const pageSize = sizeOf();
    const last = Math.max(0, Math.ceil(rows.length / pageSize) - 1);
    page = Math.min(Math.max(page, 0), last);
    const visible = rows.slice(page * pageSize, (page + 1) * pageSize);
    const keys = new Set(visible.map(key));
    for (const [id, {node}] of built) {
      if (keys.has(id)) continue;
      node.remove();
      built.delete(id);
    }
    let at = body.firstChild;
    for (const row of visible) {
      const node = rowNode(row);
      if (node === at) at = at.nextSibling;
      else body.insertBefore(node, at);
    }
    if (rows.length === 0) fill(instead, options.empty());
    show(rows.length === 0 ? 'instead' : 'rows');
    renderSort();
    if (rows.length > 0 || pages?.before) renderPager(last, pageSize);
  }

  function renderPager(last, pageSize) {
    const from = page * pageSize;
    const to = Math.min(rows.length, from + pageSize);
    const text = rows.length <= pageSize ? '' : `${count(from + 1)}–${count(to)} of ${count(rows.length)}`;
    setText(shownRange, [text, note].filter(Boolean).join(' · '));
    before.hidden = after.hidden = pages ? !pages.before && !pages.next : last === 0;
    before.disabled = pages ? !pages.before : page === 0;
    after.disabled = pages ? !pages.next : page === last;
    pager.hidden = shownRange.textContent === '' && before.hidden;
  }

  return {
    element,
    update(newRows, state = {}) {
      rows = newRows;
      if (state.sort !== undefined) sort = state.sort;
      note = state.note ?? '';
      pages = state.pages ?? null;
      render();
    },
    firstPage() {
      page = 0;
    },
    reveal(id) {
      const at = rows.findIndex((row) => key(row) === id);
      if (at < 0) return;
      page = Math.floor(at / sizeOf());
      render();
      const {node} = built.get(id);
      node.scrollIntoView({block: 'center'});
      node.classList.add('revealed');
      node.addEventListener('animationend', () => node.classList.remove('revealed'), {once: true});
    },
    setError(error, retry, {always = false} = {}) {
      if (!always && rows.length > 0 && (error.status === 0 || error.status >= 500)) return;
      fill(instead, errorMessage(error, retry));
      show('instead');
    },
  };
}
