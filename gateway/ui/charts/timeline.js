// The timeline of rejected writes: their time, and their lateness (logarithmic). One mark per group: shape and colour
// show the kind, the size grows with the count, and a thin line leads to it from the group's first write. Groups
// without a lateness are in lanes below: those whose lease had not ended, and zombies, which were late by an unknown time.
//
//   const timeline = createTimeline({
//     height, details: (row) => nodes,           // the content of the readout
//     onChoose(row) {…}, onZoom(from, to) {…},   // a click or Enter on a mark; a drag over a time, in milliseconds
//   });
//   timeline.element · timeline.update({rows, from, to}) · timeline.highlight(row or null)
//
// Marks of one kind are one path, so that ten thousand of them are six elements. The arrow keys go from mark to mark.

import {index, lateRange, layout, paths, tails} from './marks.js';
import {createPlot, lateTicks, linear, logarithmic, timeTicks, xAxis} from './plot.js';
import {fill, s, setAttributes} from '../dom.js';
import {duration, plural, when} from '../format.js';
import {glyph} from '../kinds.js';
import {lateness} from '../pages/rejections/words.js';

const laneHeight = 44; // pixels, for groups without a lateness

const [unknown, inTime] = [
  {label: 'unknown', meaning: 'The writer had lost its lock; it is not known when.'},
  {label: 'not late', meaning: 'There was no lease, or it had not ended.'},
];
const lanes = [unknown, inTime];

function laneOf(row) {
  if (row.late_ms !== undefined) return null;
  return lateness(row) === 'unknown' ? unknown : inTime;
}

export function createTimeline({height = 280, details, onChoose, onZoom}) {
  let data = {rows: [], from: 0, to: 1};
  let marks = [], nearest = () => null, x = null, current = null, chosen = null, drag = null;
  const plot = createPlot({height, label: 'Rejected writes', left: 76, layers: ['grid', 'tails', 'marks', 'over'], draw,
    move, step, leave, choose: () => current && onChoose?.(current.row)});
  plot.svg.classList.add('timeline');

  function draw(area) {
    const used = lanes.filter((lane) => data.rows.some((row) => laneOf(row) === lane));
    const floor = area.bottom - used.length * laneHeight;
    const [least, most] = lateRange(data.rows);
    x = linear(data.from, data.to, area.left, area.right);
    const y = logarithmic(least, most, floor, area.top + 4);
    const {grid, tails: lines, marks: symbols} = plot.layers;
    fill(grid);
    for (const tick of lateTicks(least, most)) {
      const at = Math.round(y(tick));
      grid.append(s('line', {x1: area.left, x2: area.right, y1: at, y2: at}),
        s('text', {x: area.left - 7, y: at + 4, 'text-anchor': 'end'}, duration(tick)));
    }
    const middle = (lane) => floor + (used.indexOf(lane) + 0.5) * laneHeight;
    for (const lane of used) {
      grid.append(s('rect', {class: 'lane', x: area.left, y: middle(lane) - laneHeight / 2 + 3,
        width: area.right - area.left, height: laneHeight - 3}),
        s('text', {x: area.left - 7, y: middle(lane) + 5, 'text-anchor': 'end'}, lane.label,
          s('title', null, lane.meaning)));
    }
    grid.append(s('line', {class: 'axis', x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom}));
    xAxis(grid, timeTicks(data.from, data.to, area.width / 100), x, area);
    marks = layout(data.rows, x, y, (row) => middle(laneOf(row)) + 2)
      .filter((mark) => mark.x >= area.left - 1 && mark.x <= area.right + 1);
    nearest = index(marks);
    const dense = marks.length > 1500; // then lines and outlines only add noise
    plot.svg.classList.toggle('dense', dense);
    fill(lines, !dense && s('path', {class: 'tail', d: tails(marks, (at) => Math.max(area.left, x(at)), y)}));
    fill(symbols, Object.entries(paths(marks, glyph)).map(([kind, d]) => s('path', {class: 'mark kind-' + kind, d})));
    const known = (mark) => mark && marks.find((each) => each.row.id === mark.row.id);
    chosen = known(chosen) ?? null;
    current = known(current) ?? null;
    over();
  }

  // over draws on top of the marks: rings around the chosen and the current one, and the dragged range.
  function over() {
    const area = plot.area();
    fill(plot.layers.over,
      drag && s('rect', {class: 'drag', x: Math.min(drag.from, drag.to), y: area.top,
        width: Math.abs(drag.to - drag.from), height: area.bottom - area.top}),
      [chosen, current].filter(Boolean).map((mark) => s('circle',
        {class: 'ring', cx: mark.x, cy: mark.y, r: mark.r + 3.5})));
  }

  function show(mark, speak) {
    if (mark === current && !speak) return;
    current = mark;
    over();
    setAttributes(plot.svg, {'data-over': mark ? 'mark' : null});
    if (mark) plot.showReadout(mark.x, mark.y, details(mark.row), {speak});
    else plot.hideReadout();
  }

  function move(position) {
    if (drag) {
      const area = plot.area();
      drag.to = Math.max(area.left, Math.min(area.right, position.x));
      over();
      return;
    }
    show(nearest(position.x, position.y), false);
  }

  function step(direction) {
    const inOrder = [...marks].sort((a, b) => a.x - b.x || a.row.id - b.row.id);
    if (inOrder.length === 0) return;
    const start = direction > 0 ? -1 : inOrder.length;
    const at = current ? inOrder.findIndex((mark) => mark.row.id === current.row.id) : start;
    show(inOrder[Math.max(0, Math.min(inOrder.length - 1, at + direction))], true);
  }

  function leave() {
    if (!drag) show(null, false);
  }

  plot.svg.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.pointerType === 'touch' || !x) return;
    const {x: from} = plot.position(event);
    drag = {from, to: from};
    plot.svg.setPointerCapture(event.pointerId);
  });
  plot.svg.addEventListener('pointerup', (event) => {
    if (event.pointerType === 'touch') show(nearest(...Object.values(plot.position(event)), 22), false);
    if (!drag) return;
    const {from, to} = drag;
    drag = null;
    over();
    if (Math.abs(to - from) > 6) {
      const time = linear(plot.area().left, plot.area().right, data.from, data.to);
      onZoom?.(Math.round(time(Math.min(from, to))), Math.round(time(Math.max(from, to))));
    } else if (current) {
      onChoose?.(current.row);
    }
  });
  plot.svg.addEventListener('pointercancel', () => {
    drag = null;
    over();
  });

  return {
    element: plot.element,
    svg: plot.svg,
    update(now) {
      data = now;
      const late = now.rows.filter((row) => row.late_ms !== undefined).map((row) => row.late_ms);
      const range = (values) => `${duration(values.reduce((a, b) => Math.min(a, b)))} to ` +
        duration(values.reduce((a, b) => Math.max(a, b)));
      plot.describe(`Timeline of rejected writes, ${when(now.from)} to ${when(now.to)}: ` +
        plural(now.rows.length, 'group') + (late.length > 0 ? `, late by ${range(late)}` : '') +
        '. Arrow keys read them one by one; the table below has them all.');
      plot.redraw();
    },
    highlight(row) {
      chosen = row ? marks.find((mark) => mark.row.id === row.id) ?? null : null;
      over();
    },
  };
}
