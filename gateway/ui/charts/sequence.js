// The drawing of one rejection: two lanes, the writer and the next holder, and the steps from the grant to the rejected
// write. Steps are equally far apart, since seconds and hours may lie between them; the times between are texts.
//
//   drawSequence({events, silentMS}, {writer, next}, width) → svg, hidden from screen readers: a list says the same
//     events as in pages/rejections/events.js; writer and next are texts for the lanes

import {s} from '../dom.js';
import {duration, isolated} from '../format.js';

const lanes = [46, 104];
const height = 152;

export function drawSequence({events, silentMS}, {writer, next}, width) {
  const step = Math.min(120, (width - 60) / Math.max(1, events.length - 1));
  const x = (at) => Math.round(30 + at * step);
  const at = (id) => events.findIndex((event) => event.id === id);
  const end = x(events.length - 1);
  const [granted, ended, taken, refused] = ['granted', 'ended', 'taken', 'refused'].map(at);
  const from = at('renewed') >= 0 ? at('renewed') : granted;
  const line = (lane, a, b, name) => s('path', {class: name, d: `M${a} ${lanes[lane]}H${b}`});
  const isCrowded = step < 64; // then only the main steps have labels
  const label = (event, place) => !(isCrowded && ['renewed', 'wrote'].includes(event.id)) && s('text', {x: x(place), y: lanes[event.lane] + 20, 'text-anchor': 'middle',
    class: event.id === 'refused' ? 'bad' : null}, event.label);
  return s('svg', {class: 'sequence', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'},
    s('text', {class: 'lane-name', x: 8, y: 16}, isolated(writer, 40)),
    granted >= 0 && line(0, x(granted), ended >= 0 ? x(ended) : end, 'held'),
    line(0, ended >= 0 ? x(ended) : x(Math.max(0, granted)), end, ended >= 0 || granted < 0 ? 'lost' : 'held'),
    silentMS !== null && [s('path', {class: 'silent', d: `M${x(from)} ${lanes[0] - 9}H${x(refused)}`}),
      s('text', {x: (x(from) + x(refused)) / 2, y: lanes[0] - 14, 'text-anchor': 'middle'},
        `no renewal for ${duration(silentMS)}`)],
    taken >= 0 && line(1, x(taken), end, 'held next'),
    taken >= 0 && [s('path', {class: 'handover', d: `M${x(taken)} ${lanes[0]}V${lanes[1]}`}),
      s('text', {class: 'lane-name', x: Math.min(x(taken) + 8, width - 220), y: lanes[1] - 14}, isolated(next, 40))],
    events.map((event, place) => [mark(event, x(place)), label(event, place)]),
    events.slice(1).map((event, place) => gap(events[place], event, (x(place) + x(place + 1)) / 2)));
}

function mark(event, x) {
  const y = lanes[event.lane];
  if (event.id === 'refused' || event.id === 'again') {
    return s('path', {class: 'refused', d: `M${x - 5} ${y - 5}l10 10M${x + 5} ${y - 5}l-10 10`});
  }
  return s('circle', {class: ['step', event.lane === 1 && 'next'], cx: x, cy: y, r: event.id === 'wrote' ? 3.5 : 5});
}

function gap(before, after, x) {
  if (before.at === null || after.at === null) return null;
  return s('text', {class: 'gap', x, y: height - 6, 'text-anchor': 'middle'}, '+' + duration(Math.max(0, after.at - before.at)));
}
