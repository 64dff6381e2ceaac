// The rejections: a timeline of rejected writes, the owners and resources with the most, and a table of all of them.
//
// The page connects the stream first and reads the list then, so nothing falls between them. Both are merged by the id
// of a group, see rejections/load.js. Painting is batched by frames, and rarer the more groups there are.

import {limitNote} from '../account.js';
import {createTimeline} from '../charts/timeline.js';
import {serverNow} from '../clock.js';
import {fill, h, isPhone, setText} from '../dom.js';
import {createDrawer} from '../drawer.js';
import {createFilters, pick} from '../filters.js';
import {count, plural} from '../format.js';
import {codeNames, counted, kindLabel, kindNames} from '../kinds.js';
import {createLoader, matcher} from './rejections/load.js';
import {columns, createTop, details, emptyState} from './rejections/tables.js';
import {createWindow} from './rejections/window.js';
import {button, heading, kindMark, panel} from '../parts.js';
import {link} from '../router.js';
import {createTable} from '../table.js';

export const title = 'Rejections';

const filterNames = ['resource', 'prefix', 'key', 'owner_id', 'kind', 'code', 'reason', 'source'];

export function mount(container, params, app) {
  let paused = false, unseen = 0, total = 0;
  let filters = pick(params.query, filterNames);
  const range = createWindow({query: params.query, onChange: changed});
  const filterLink = (more) => link('rejections', null, {...filters, ...range.query(), ...more});
  const form = createFilters({label: 'Filter rejections', query: filters, onChange(values) {
    filters = values;
    changed();
  }, fields: [
    {name: 'resource', label: 'Resource'},
    {name: 'prefix', label: 'Resource begins with'},
    {name: 'key', label: 'Key or table'},
    {name: 'owner_id', label: 'Owner'},
    {name: 'kind', label: 'Kind', options: [['', 'any'], ...kindNames.map((kind) => [kind, kindLabel(kind)])]},
    {name: 'code', label: 'Code', options: [['', 'any'], ...codeNames.map((code) => [code, code])]},
    {name: 'reason', label: 'Reason', options: ['', 'superseded', 'released', 'reused',
      'shared'].map((reason) => [reason, reason || 'any'])},
    {name: 'source', label: 'Source', options: ['', 'http', 'bulk',
      'transaction', 'sql'].map((source) => [source, source || 'any'])},
  ]});
  const drawer = createDrawer(app, {onClose: () => app.setQuery({...filters, ...range.query()})});
  const timeline = createTimeline({details, onZoom: (from, to) => range.zoom(from, to), onChoose(row) {
    table.reveal(row.id);
    timeline.highlight(row);
    openDrawer(row.id, timeline.svg);
  }});
  const top = createTop({filterLink});
  const table = createTable({
    caption: 'Rejected writes',
    pageSize: () => (isPhone() ? 20 : 100),
    columns: columns(openDrawer),
    key: (row) => row.id,
    onRow: (row, opener) => openDrawer(row.id, opener),
    rowClass: (row) => (loader.isFresh(row) && row.kind !== 'conflict' ? 'fresh' : ''),
    sort: {id: 'first', order: 'desc'},
    empty: () => emptyState({filtered: Object.keys(filters).length > 0, total, showAll() {
      form.set({});
      filters = {};
      range.choose('all');
    }}),
    onSort(by) {
      loader.groups.sort(by);
      paint();
    },
  });
  const loader = createLoader({app, query, onChange: seen, onSummary: showSummary,
    onError: (error) => table.setError(error, () => loader.load())});

  const legend = h('ul', {class: 'legend kinds-legend'});
  const facts = h('span', {class: 'note', role: 'status'});
  const pause = button('Pause', togglePause, {'aria-pressed': 'false'});
  const timelinePanel = panel('Time and lateness',
    {actions: legend, note: !isPhone() && matchMedia('(pointer: fine)').matches && 'drag over a time to zoom in'}, timeline.element);
  timelinePanel.hidden = top.element.hidden = true; // until there are rows
  const all = panel('All rejections', {note: 'one row per group: writes of a token that were rejected alike',
    class: 'rejections'}, table.element);
  container.append(
    heading('Rejections', {intro: [facts, limitNote('observe')], actions: [range.element, pause]}),
    form.element, timelinePanel, ...(isPhone() ? [all, top.element] : [top.element, all]), drawer.element,
    range.dialog);

  function openDrawer(id, opener) {
    drawer.open(id, opener);
    app.setQuery({...filters, ...range.query(), rejection: id});
  }

  // begin chooses the shortest range that has data, unless the address has one.
  function begin(rejection) {
    app.run(async () => {
      if (range.isOpen()) {
        const {rejections: [last]} = await app.get('/v1/rejections', {...filters, sort: 'last_seen', limit: 1});
        range.fit(last ? Math.max(0, serverNow() - Date.parse(last.last_at)) : 0);
        app.setQuery({...filters, ...range.query(), rejection});
      }
      restart();
    }, restart);
    if (/^[1-9][0-9]*$/.test(rejection ?? '')) drawer.open(Number(rejection));
    else drawer.close();
  }

  function query() {
    return {...filters, ...range.times(serverNow())};
  }

  function changed() {
    app.setQuery({...filters, ...range.query()});
    restart();
  }

  function restart() {
    table.firstPage();
    timeline.highlight(null);
    loader.restart({resource: filters.resource, prefix: filters.prefix, key: filters.key, code: filters.code,
      kind: filters.kind, owner_id: filters.owner_id});
  }

  function seen(changes) {
    if (!paused) {
      paint();
      return;
    }
    unseen += changes;
    setText(pause, `Resume (${count(unseen)} new)`);
  }

  function togglePause() {
    paused = !paused;
    unseen = 0;
    pause.setAttribute('aria-pressed', String(paused));
    setText(pause, paused ? 'Resume' : 'Pause');
    app.announce(paused ? 'Paused' : 'Live again');
    paint();
  }

  const paintSoon = app.frame(render, 200);
  const paintRarely = app.frame(render, 1500);
  const paint = () => (loader.groups.size > 2000 ? paintRarely() : paintSoon());

  function render() {
    if (!loader.ready() || (paused && unseen > 0)) return;
    const {from, to} = range.bounds(serverNow(), loader.groups.all());
    const wanted = {...filters, ...range.times(serverNow())};
    const rows = loader.groups.all().filter(matcher(wanted));
    timelinePanel.hidden = top.element.hidden = rows.length === 0;
    timeline.update({rows, from, to});
    table.update(rows, {sort: loader.groups.order, note: loader.note()});
  }

  function showSummary(summary, everything) {
    total = everything;
    setText(facts, summary.writes === 0 ? 'No write was rejected in this time.'
      : `${plural(summary.writes, 'write')} rejected, in ${plural(summary.groups, 'group')}: ` +
        kindNames.filter((kind) => summary.by_kind[kind]).map((kind) => counted(kind, summary.by_kind[kind])).join(', ') +
        '.');
    top.update(summary);
    form.suggest('owner_id', summary.owners.map((each) => each.owner_id));
    form.suggest('resource', summary.resources.map((each) => each.resource));
    fill(legend, kindNames.filter((kind) => summary.by_kind[kind]).map((kind) => h('li', null,
      h('a', {class: 'legend-kind', href: filterLink({kind: filters.kind === kind ? '' : kind}),
        'aria-current': filters.kind === kind ? 'true' : null},
        kindMark(kind), kindLabel(kind), h('span', {class: 'legend-count'}, count(summary.by_kind[kind]))))));
    paint();
  }

  // Relative times move by themselves.
  app.every(1000, () => {
    if (!paused && loader.groups.size > 0 && range.moves(1500)) paint();
  });
  begin(params.query.rejection);

  return {update({query: now}) {
    filters = pick(now, filterNames);
    form.set(filters);
    range.set(now);
    window.scrollTo(0, 0);
    begin(now.rejection);
  }};
}
