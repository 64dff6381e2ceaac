// The common parts of charts: a size that follows the page, axes, the readout at the pointer and by the keyboard.
//
//   const plot = createPlot({height, label, left, right, top, bottom, layers,
//                            draw(area), move(position), step(direction), leave(), choose()});
//   plot.element, plot.layers (an SVG group for each name in `layers`), plot.redraw(), plot.describe(text),
//   plot.showReadout(x, y, nodes), plot.hideReadout()
//   area is {width, height, left, right, top, bottom} in pixels: the edges of the values.
//   move receives {x, y} in pixels; step −1 or 1 (arrow keys; ±Infinity for Home and End). leave is called when the
//   pointer or the focus leaves.
//   xAxis(group, {ticks, step}, x, area) and yAxis(group, ticks, y, format, area) draw ticks with their labels.
//
// Scales and ticks. Pure.
//
//   linear(from, to, start, end) → (value) → position      logarithmic(from, to, start, end): from and to above 0
//   niceTicks(max, wanted) → [0, step, …], the last at or above max, with steps of 1, 2 or 5 times a power of ten
//   timeTicks(from, to, wanted) → {ticks: [milliseconds], step}, at whole units of time in this computer's zone
//   lateTicks(from, to) → [milliseconds] for a logarithmic axis of durations: 1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, …

import {fill, h, s, setAttributes} from '../dom.js';
import {clockTime, day} from '../format.js';

const padding = 14; // of .chart, at both sides: charts.css

export function createPlot(options) {
  const {height, left = 46, right = 10, top = 8, bottom = 22, layers = ['grid', 'marks', 'over']} = options;
  const groups = Object.fromEntries(layers.map((layer) => [layer, s('g', {class: layer})]));
  const svg = s('svg', {height, role: 'img', 'aria-label': options.label, tabindex: '0'}, Object.values(groups));
  const readout = h('div', {class: 'readout', 'aria-hidden': 'true', hidden: true});
  const spoken = h('div', {class: 'hidden', role: 'status', 'aria-live': 'polite'});
  const element = h('div', {class: 'chart'}, svg, readout, spoken);
  let width = 0;

  const area = () => ({width, height, left, right: width - right, top, bottom: height - bottom});

  function redraw() {
    if (width > 0) options.draw(area());
  }

  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    setAttributes(svg, {width, viewBox: `0 0 ${width} ${height}`});
    redraw();
  }).observe(element);

  const position = (event) => {
    const box = svg.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };
  svg.addEventListener('pointermove', (event) => options.move?.(position(event), event));
  svg.addEventListener('pointerleave', () => options.leave?.());
  svg.addEventListener('blur', () => options.leave?.());
  svg.addEventListener('keydown', (event) => {
    const direction = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    if (direction !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      options.step?.(direction);
    } else if (event.key === 'Escape') {
      options.leave?.();
    } else if (event.key === 'Enter') {
      options.choose?.();
    }
  });

  return {
    element,
    svg,
    layers: groups,
    area,
    position,
    redraw,
    describe: (text) => setAttributes(svg, {'aria-label': text}),
    showReadout(x, y, nodes, {speak = false} = {}) {
      fill(readout, nodes);
      readout.hidden = false;
      const box = readout.getBoundingClientRect();
      const beside = x + 14 + box.width > width ? x - 14 - box.width : x + 14;
      readout.style.setProperty('left', Math.max(0, Math.min(beside, width - box.width)) + padding + 'px');
      readout.style.setProperty('top', Math.max(0, Math.min(y - box.height / 2, height - box.height)) + 'px');
      // One text per line: a screen reader would join them.
      if (speak) spoken.textContent = [...readout.children].map((line) =>
        [...line.childNodes].map((node) => node.textContent).join(' ')).join(', ');
    },
    hideReadout() {
      readout.hidden = true;
    },
  };
}

export function yAxis(group, ticks, y, format, area) {
  for (const tick of ticks) {
    const at = Math.round(y(tick));
    group.append(s('line', {x1: area.left, x2: area.right, y1: at, y2: at, class: tick === 0 ? 'axis' : null}),
      s('text', {x: area.left - 6, y: at + 4, 'text-anchor': 'end'}, format(tick)));
  }
}

export function xAxis(group, {ticks, step}, x, area) {
  const format = (at) => (step >= 86_400_000 ? day(at).slice(5) : clockTime(at).slice(0, step >= 60_000 ? 5 : 8));
  for (const tick of ticks.filter((tick) => x(tick) > area.left + 14 && x(tick) < area.right - 14)) {
    const at = Math.round(x(tick));
    group.append(s('line', {x1: at, x2: at, y1: area.bottom, y2: area.bottom + 4, class: 'axis'}),
      s('text', {x: at, y: area.bottom + 17, 'text-anchor': 'middle'}, format(tick)));
  }
}

export function linear(from, to, start, end) {
  const factor = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * factor;
}

export function logarithmic(from, to, start, end) {
  const scale = linear(Math.log(from), Math.log(to), start, end);
  return (value) => scale(Math.log(Math.min(to, Math.max(from, value))));
}

export function niceTicks(max, wanted = 4) {
  if (!(max > 0)) max = 1;
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999999) * power;
  const ticks = [];
  for (let at = 0; ; at++) {
    ticks.push(Number((at * step).toPrecision(12)));
    if (at * step >= max * 0.999999) return ticks;
  }
}

const second = 1000, minute = 60 * second, hour = 60 * minute, dayLong = 24 * hour;
const timeSteps = [1, 2, 5, 10, 15, 30].map((n) => n * second)
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * minute), [1, 2, 3, 6, 12].map((n) => n * hour),
    [1, 2, 7, 14].map((n) => n * dayLong));

export function timeTicks(from, to, wanted = 6) {
  const step = timeSteps.find((each) => (to - from) / each <= wanted) ?? timeSteps.at(-1);
  // Days begin at midnight and hours at whole hours of this zone, which may differ from UTC by parts of an hour.
  const shift = new Date(from).getTimezoneOffset() * minute;
  const ticks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
  return {ticks, step};
}

const spans = [1, 10, 100, second, 10 * second, minute, 10 * minute, hour, 6 * hour, dayLong, 7 * dayLong,
  30 * dayLong];

export function lateTicks(from, to) {
  return spans.filter((span) => span >= from * 0.999 && span <= to * 1.001);
}
