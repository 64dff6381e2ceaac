// The overview: current and past activity of all gateways, and the state of the gateways and of the database.
//
// The stream sends the state every two seconds, and of the charts only the newest point. The page fetches all points
// when the page or the connection is new, and now and then: the gateway's steps are more exact than what the page makes
// of single points. It shows the last hour, or less if the gateway has started since: it knows no more.

import {mergePoint} from '../charts/series.js';
import {createCursor, createStrips, createTimeChart} from '../charts/times.js';
import {noteServerTime, serverNow} from '../clock.js';
import {fill, h, setText} from '../dom.js';
import {createDrawer} from '../drawer.js';
import {clockTime, compact, duration, rate} from '../format.js';
import {kindLabel, kindNames} from '../kinds.js';
import {createFigures} from './overview/figures.js';
import {createHeadline} from './overview/headline.js';
import {createDatabase, createGateways, createNewest, createNodes} from './overview/panels.js';
import {createProblems} from './overview/problems.js';
import {fitting} from './rejections/words.js';
import {button, errorMessage, heading, kindMark, loading, panel} from '../parts.js';

export const title = 'Overview';

const ranges = [300_000, 900_000, 3_600_000];
const exactEvery = 30_000;
const recorded = 5_000; // a rejection is counted at once, and recorded a little later

export function mount(container, params, app) {
  let paused = false, history = null, requests = 0, pointAt = '', lastLoad = 0, rejectedAt = -Infinity;
  let range = ranges[0]; // the shortest one since the gateway started
  const cursor = createCursor();
  const figures = createFigures();
  const problems = createProblems(app.announce);
  const writes = createTimeChart({title: 'Writes per second', cursor, format: rate, tickFormat: compact, series: [
    {id: 'accepted', label: 'accepted', className: 'series-1', area: true},
    {id: 'zombie', label: 'zombies shut out', className: 'series-2', dash: '5 3'},
    {id: 'rest', label: 'otherwise rejected', className: 'series-4', dash: '3 3'},
    {id: 'failed', label: 'failed', className: 'series-bad', dash: '1.5 3'},
  ]});
  const times = createTimeChart({title: 'Duration of writes', cursor, format: duration, series: [
    {id: 'p99', label: 'p99', className: 'series-3', dash: '5 3'},
    {id: 'p50', label: 'p50', className: 'series-1'},
  ]});
  const strips = createStrips({title: 'Writes rejected per second', cursor, format: rate, mark: kindMark,
    label: kindLabel});
  const database = createDatabase();
  const gateways = createGateways();
  const nodes = createNodes();
  const drawer = createDrawer(app);
  const headline = createHeadline(app, {onOpen: drawer.open});
  const newest = createNewest(app, {onOpen: drawer.open, onRows: headline.newest});

  const uncounted = h('span'); // what the chart of writes does not have
  const pause = button('Pause', togglePause, {'aria-pressed': 'false'});
  const body = h('div', {class: 'page'},
    problems.element,
    headline.element,
    figures.element,
    h('div', {class: 'columns'}, panel('Writes per second', {actions: writes.legend, note: uncounted}, writes.element),
      panel('Duration of writes', {actions: times.legend}, times.element)),
    h('div', {class: 'columns'}, panel('Rejected per second, by kind', {}, strips.element), newest.element),
    h('div', {class: 'columns'}, gateways.element, database.element),
    nodes.element);
  const state = h('div', {class: 'page'}, loading());
  const time = h('span');
  container.append(heading('Overview', {intro: [time, ' For longer times, use Prometheus and Grafana.'], actions: pause}),
    state, drawer.element);

  function togglePause() {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    fill(pause, paused ? 'Resume' : 'Pause');
    app.announce(paused ? 'Paused' : 'Live again');
    if (!paused) load();
  }

  function load() {
    const number = ++requests;
    lastLoad = Date.now();
    app.run(async () => {
      const answer = await app.get('/v1/overview', {range_ms: range});
      if (number !== requests) return;
      const started = Date.parse(answer.gateways.find((gateway) => gateway.self).started_at);
      const wanted = fitting(Date.parse(answer.at) - started + 2 * exactEvery, ranges);
      if (wanted > range) { // never back: another gateway may answer next
        range = wanted;
        load();
        return;
      }
      history = {step: answer.step_ms, range, started, points: answer.points.map(toPoint)};
      if (state.firstChild !== body) fill(state, body);
      showState(answer);
      draw();
      newest.load();
    }, (error) => {
      if (history === null) fill(state, errorMessage(error, load));
    });
  }

  function tick(event) {
    if (paused || history === null) return;
    showState(event);
    if (event.point && event.point.at !== pointAt) {
      pointAt = event.point.at;
      addPoint(toPoint(event.point));
      const {rejected_by_kind_per_s: rejected, observed_by_kind_per_s: observed} = event.point;
      if (Object.keys({...rejected, ...observed}).length > 0) rejectedAt = Date.now();
    }
    if (!event.point) addPoint({at: Date.parse(event.at), values: {}});
    if (Date.now() - rejectedAt < recorded) newest.load();
    if (Date.now() - lastLoad > Math.max(exactEvery, history.step)) load();
  }

  function addPoint(point) {
    history.points = mergePoint(history.points, point, history);
    draw();
  }

  function showState(now) {
    noteServerTime(now.at, {exact: true});
    problems.update(now);
    figures.update(now, now.last_minute);
    setText(uncounted, now.database.guards_by_sql === undefined ? 'accepted: by HTTP alone' : '');
    database.update(now.database);
    gateways.update(now.gateways);
    nodes.update(now.nodes);
  }

  const draw = app.frame(() => {
    const {points, step} = history;
    const to = points.length > 0 ? points.at(-1).at + step : serverNow();
    const since = history.started > to - ranges.at(-1) ? history.started : null;
    const from = Math.max(to - history.range, since === null ? 0 : Math.min(since - step, to - 60_000));
    const shown = {points: points.filter((point) => point.at >= from), from, to, step};
    setText(time, since !== null ? `The charts begin at ${clockTime(since)}, when this gateway started.`
      : 'The charts show the last hour.');
    writes.update(shown);
    times.update(shown);
    strips.update({...shown, ids: kindNames});
    headline.update({points, step, from, since});
  });

  app.stream({path: '/v1/overview/stream', on: {overview: tick}, connected: load,
    status({state: connection}) {
      if (connection !== 'connecting' && connection !== 'live' && history === null && requests === 0) load();
    }});
}

const none = Object.fromEntries(kindNames.map((kind) => [kind, 0]));

// toPoint converts a point of the API to one of charts/series.js.
function toPoint(point) {
  const at = new Date(point.at).getTime();
  if (point.accepted_per_s === undefined) return {at, values: {}};
  const byKind = point.rejected_by_kind_per_s;
  return {at, values: {
    accepted: point.accepted_per_s,
    failed: point.failed_per_s,
    rest: Object.entries(byKind).reduce((sum, [kind, each]) => sum + (kind === 'zombie' ? 0 : each), 0),
    p50: point.p50_ms, // null: there were no writes
    p99: point.p99_ms,
    passed: point.observed_by_kind_per_s.zombie,
    ...none,
    ...byKind,
  }};
}
