// A chart of series over time.
//
//   const chart = createTimeChart({
//     title: 'Writes per second', height: 190,
//     cursor,                                              // createCursor(); charts that share it show one instant
//     series: [{id: 'accepted', label: 'Accepted', className: 'series-1', area: true, dash: '4 3'}],
//     format: (number) => text, tickFormat, minimum: 1,    // the least top of the axis
//   });
//   chart.element · chart.legend · chart.update({points, from, to})    // points as in series.js
//
// createStrips({title, cursor, format, mark: (id) => node, label: (id) => text})
//   → {element, update({points, from, to, ids, step})}: one strip of bars per id, below each other with one scale, each
//   with its name: distinguished by position, not by colour.

import {createPlot, linear, niceTicks, timeTicks, xAxis, yAxis} from './plot.js';
import {areaPath, barPath, greatest, last, linePath, nearest, summary} from './series.js';
import {fill, h, s} from '../dom.js';
import {clockTime, when} from '../format.js';

export function createCursor() {
  const listeners = [];
  return {
    at: null,
    subscribe: (listener) => listeners.push(listener),
    move(at, from = null, speak = false) {
      this.at = at;
      for (const listener of listeners) listener(at, listener === from, speak);
    },
  };
}

// follow connects a plot to the cursor: pointer and arrow keys move it; show(index, mine, speak) shows its point.
function follow(cursor, state, show) {
  const onMove = (at, mine, speak) => show(at === null ? -1 : nearest(state.points, at), mine, speak);
  cursor.subscribe(onMove);
  return {
    move(position) {
      if (state.x) cursor.move(state.x.invert(position.x), onMove);
    },
    step(direction) {
      const {points} = state;
      if (points.length === 0) return;
      const now = cursor.at === null ? points.length : nearest(points, cursor.at);
      const next = Math.max(0, Math.min(points.length - 1, now + direction));
      cursor.move(points[next].at, onMove, true);
    },
    leave: () => cursor.move(null, onMove),
    again: () => onMove(cursor.at, false, false),
  };
}

function timeScale(state, area) {
  const x = linear(state.from, state.to, area.left, area.right);
  x.invert = linear(area.left, area.right, state.from, state.to);
  return x;
}

export function createTimeChart({title, height = 190, series, cursor, format, tickFormat = format, minimum = 1}) {
  const state = {points: [], from: 0, to: 1, x: null, y: null};
  const ids = series.map((each) => each.id);
  const hand = follow(cursor, state, show);
  const plot = createPlot({height, label: title, draw, ...hand});
  const values = series.map((each) => h('span', {class: 'legend-value'}));
  const legend = h('ul', {class: 'legend'}, series.map((each, at) => h('li', null,
    s('svg', {class: 'legend-mark', viewBox: '0 0 18 10', 'aria-hidden': 'true'},
      s('path', {class: 'line ' + each.className, d: 'M0 5h18', 'stroke-dasharray': each.dash})),
    each.label, values[at])));

  function draw(area) {
    const ticks = niceTicks(Math.max(minimum, greatest(state.points, ids)), 4);
    state.x = timeScale(state, area);
    state.y = linear(0, ticks.at(-1), area.bottom, area.top);
    const {grid, marks} = plot.layers;
    fill(grid);
    yAxis(grid, ticks, state.y, tickFormat, area);
    xAxis(grid, timeTicks(state.from, state.to, area.width / 90), state.x, area);
    fill(marks, series.map((each) => [
      each.area && s('path', {class: 'area ' + each.className,
        d: areaPath(state.points, each.id, state.x, state.y, area.bottom)}),
      s('path', {class: 'line ' + each.className, d: linePath(state.points, each.id, state.x, state.y),
        'stroke-dasharray': each.dash}),
    ]));
    hand.again();
  }

  function show(index, mine, speak) {
    const point = state.points[index];
    if (!point || !state.x) {
      fill(plot.layers.over);
      plot.hideReadout();
      return;
    }
    const area = plot.area();
    const x = state.x(point.at);
    fill(plot.layers.over, s('line', {class: 'cursor', x1: x, x2: x, y1: area.top, y2: area.bottom}),
      series.filter((each) => Number.isFinite(point.values[each.id]))
        .map((each) => s('circle', {class: 'dot ' + each.className, cx: x, cy: state.y(point.values[each.id]), r: 3})));
    plot.showReadout(x, (area.top + area.bottom) / 2, [
      h('div', {class: 'readout-title'}, when(point.at)),
      series.every((each) => point.values[each.id] === undefined)
        ? h('div', null, 'not measured')
        : series.map((each) => h('div', {class: 'readout-line'}, h('span', null, each.label),
          h('span', null, format(point.values[each.id])))),
    ], {speak: mine && speak});
  }

  return {
    element: plot.element,
    legend,
    update(now) {
      Object.assign(state, now);
      series.forEach((each, at) => fill(values[at], format(last(state.points, each.id))));
      plot.describe(`${title}, ${clockTime(state.from)} to ${clockTime(state.to)}. ` +
        series.map((each) => `${each.label}: ${summary(state.points, each.id, format)}.`)
          .join(' ') + ' Arrow keys read the values.');
      plot.redraw();
    },
  };
}

const stripHeight = 34;

export function createStrips({title, cursor, format, mark, label}) {
  const element = h('div', {class: 'strips'});
  const strips = new Map();
  const state = {points: [], from: 0, to: 1, ids: [], step: 1000, max: 1, x: null};

  function newStrip(id, lowest) {
    const bottom = lowest ? 22 : 1;
    const hand = follow(cursor, state, show);
    const plot = createPlot({height: stripHeight + bottom, label: title, draw, left: 0, right: 10, top: 4, bottom,
      ...hand});
    const value = h('span', {class: 'strip-value'});
    const row = h('div', {class: 'strip'}, h('div', {class: 'strip-label'}, mark(id),
      h('span', {class: 'strip-name'}, label(id)), value), plot.element);

    function draw(area) {
      state.x = timeScale(state, area);
      const y = linear(0, state.max, area.bottom, area.top);
      fill(plot.layers.grid, s('line', {class: 'axis', x1: area.left, x2: area.right, y1: area.bottom,
        y2: area.bottom}));
      if (lowest) xAxis(plot.layers.grid, timeTicks(state.from, state.to, area.width / 90), state.x, area);
      const width = Math.max(1, (area.right - area.left) * state.step / (state.to - state.from) - 0.7);
      fill(plot.layers.marks, s('path', {class: 'kind-' + id, d: barPath(state.points, id, state.x, y, width)}));
      hand.again();
    }

    function show(index, mine, speak) {
      const point = state.points[index];
      const area = plot.area();
      fill(value, format(point ? point.values[id] : last(state.points, id)), h('span', {class: 'note'}, '/s'));
      if (!point || !state.x) {
        fill(plot.layers.over);
        plot.hideReadout();
        return;
      }
      fill(plot.layers.over, s('line', {class: 'cursor', x1: state.x(point.at), x2: state.x(point.at), y1: 0,
        y2: area.bottom}));
      if (mine) plot.showReadout(state.x(point.at), area.top,
        [h('div', null, `${when(point.at)}: ${label(id)} ${format(point.values[id])}/s`)], {speak});
      else plot.hideReadout();
    }

    return {row, lowest, update() {
      plot.describe(`${title}: ${label(id)}, ${summary(state.points, id, format)} per second.`);
      fill(value, format(last(state.points, id)), h('span', {class: 'note'}, '/s'));
      plot.redraw();
    }};
  }

  return {
    element,
    update(now) {
      Object.assign(state, now);
      state.max = greatest(state.points, state.ids) || 1;
      state.ids.forEach((id, at) => {
        const lowest = at === state.ids.length - 1;
        if (strips.get(id)?.lowest !== lowest) strips.set(id, newStrip(id, lowest));
      });
      const rows = state.ids.map((id) => strips.get(id).row);
      if (rows.length !== element.childElementCount ||
        rows.some((row, at) => row !== element.children[at])) fill(element, rows);
      for (const id of state.ids) strips.get(id).update();
    },
  };
}
