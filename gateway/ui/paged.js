// A list whose pages the gateway holds. Its filters, order and position are in the address. It refreshes while visible.
//
//   return pagedList(container, params, app, {             // in mount
//     page: 'locks',                                       // its page, of GET /v1/locks
//     rows: 'locks',                                       // the field of the answer; default: as page
//     title, intro, actions,                               // the heading
//     noun: 'lock', caption, columns, key, changed,        // as in table.js; the gateway sorts by a column's id
//     empty: (filters) => element,
//     filters: {label, fields},                            // as in filters.js, optional
//     sort: {id: 'name', order: 'asc'},                    // the default order; absent if there is only one
//     query: (filters) => ({queue_max: 0}),                // more of the query; it replaces filters of the same name
//     overview: (data) => …,                               // called for each event of the overview's stream
//     counts: true,                                        // whether the gateway can count all (count=true)
//   });                                                    // returns {update, refresh}; refresh reads the list again
//
// A list that the gateway answers slowly is fetched less often: for at most a tenth of the time.

import {limitNote} from './account.js';
import {noteServerTime} from './clock.js';
import {fill, h, isPhone} from './dom.js';
import {createFilters, pick} from './filters.js';
import {count} from './format.js';
import {heading} from './parts.js';
import {link, pages} from './router.js';
import {follow} from './stream.js';
import {createTable} from './table.js';

const pageSize = 100, phonePageSize = 20;
const betweenCounts = 20_000;

export function pagedList(container, params, app, options) {
  const fields = (options.filters?.fields ?? []).map((field) => field.name);
  let at = position(params.query), number = 0, loading = false;
  let costMs = 0, endedAt = 0, total = null, countedAt = -Infinity, anotherQuery = true;
  const stack = []; // the previous positions, since the page was opened

  const filters = options.filters && createFilters({...options.filters, query: at.filters, onChange(chosen) {
    move({...at, filters: chosen, cursor: '', from: 0});
  }});
  const table = createTable({
    caption: options.caption, columns: options.columns, key: options.key, changed: options.changed,
    sort: at.sort,
    empty: () => options.empty(at.filters),
    onSort: (sort) => move({...at, sort, cursor: '', from: 0}),
  });
  const {scope} = pages.find((each) => each.page === options.page);
  fill(container, heading(options.title, {intro: [options.intro, limitNote(scope)], actions: options.actions}),
    h('div', {class: 'page'}, filters?.element,
      h('section', {class: 'panel', 'aria-label': options.caption}, table.element)));

  // position reads filters, order and page from the address.
  function position(query) {
    const sort = options.sort && {id: query.sort || options.sort.id, order: query.order || options.sort.order};
    const from = Math.max(0, Number.parseInt(query.from, 10) || 0);
    return {filters: pick(query, fields), sort, cursor: query.cursor ?? '', from};
  }

  // written returns a position for the address, without defaults.
  function written(where) {
    const usual = !where.sort || (where.sort.id === options.sort.id && where.sort.order === options.sort.order);
    return {...where.filters, ...(usual ? {} : {sort: where.sort.id, order: where.sort.order}),
      cursor: where.cursor, from: where.from > 0 ? where.from : ''};
  }

  // move changes the position in the list. The browser's Back undoes a step to another page.
  function move(where, {step = false} = {}) {
    if (step) {
      location.hash = link(options.page, null, written(where)); // update follows
      return;
    }
    stack.length = 0;
    at = where;
    anotherQuery = true;
    app.setQuery(written(where));
    anew();
  }

  function anew() {
    countedAt = -Infinity;
    total = null;
    load();
  }

  function load() {
    const mine = ++number;
    loading = true;
    const began = performance.now();
    const counting = options.counts && began - countedAt > betweenCounts;
    app.run(async () => {
      const query = {...at.filters, ...options.query?.(at.filters), sort: at.sort?.id, order: at.sort?.order,
        cursor: at.cursor, limit: isPhone() ? phonePageSize : pageSize, count: counting};
      const answer = await app.get('/v1/' + options.page, query);
      if (mine !== number) return;
      done(began);
      if (answer.at) noteServerTime(answer.at, {exact: true});
      if (counting) {
        total = answer.total ?? null;
        countedAt = began;
      }
      show(answer);
    }, (error) => {
      if (mine !== number) return;
      done(began);
      table.setError(error, load, {always: anotherQuery});
    });
  }

  function done(began) {
    loading = false;
    endedAt = performance.now();
    costMs = endedAt - began;
  }

  function show(answer) {
    const rows = answer[options.rows ?? options.page];
    const next = answer.next_cursor;
    anotherQuery = false;
    table.update(rows, {sort: at.sort, note: noteOf(rows.length, next), pages: {
      before: at.from > 0 || at.cursor !== '' ? back : null,
      next: next ? () => {
        stack.push(at);
        move({...at, cursor: next, from: at.from + rows.length}, {step: true});
      } : null,
    }});
  }

  function noteOf(rows, next) {
    const all = total ?? (next ? null : at.from + rows);
    if (at.from === 0 && !next) return count(rows) + ' ' + (rows === 1 ? options.noun : options.noun + 's');
    return `${count(at.from + 1)}–${count(at.from + rows)} of ${all === null ? 'more' : count(all)}`;
  }

  // back goes to the previous page, or to the first if the list was opened by a link to a later one.
  function back() {
    move(stack.pop() ?? {...at, cursor: '', from: 0}, {step: true});
  }

  function refresh() {
    if (!loading && performance.now() - endedAt > Math.max(1500, 10 * costMs)) load();
  }

  load();
  follow(app, {refresh, overview(data) {
    noteServerTime(data.at, {exact: true});
    options.overview?.(data);
  }});
  return {refresh: load, update(now) {
    const before = at;
    at = position(now.query);
    filters?.set(at.filters);
    anotherQuery = true;
    if (JSON.stringify(before.filters) === JSON.stringify(at.filters)) load();
    else anew();
  }};
}
