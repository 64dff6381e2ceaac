// The database's clock, as far as this page knows it: leases end by that clock, and this computer's may be wrong.
//
//   noteServerTime(instant)   an answer made just now had the time `instant`
//   serverNow()               milliseconds since 1970 by that clock
//
// The header Date of any answer counts whole seconds, so differences below two seconds are ignored; "at" in a body is
// exact.
//
// Times that change each second, by the database's clock: ages, the rest of a lease, the length of a wait. app.js calls
// tickTimes, which updates those of the page.
//
//   timeAgo(instant)         <time> since then, in one unit
//   timeLeft(instant, most)  <time> until then, at most so many ms; "expired" after it
//   timeSince(instant)       <time> since then, without "ago"
//   remaining(ms), elapsed(ms)   the texts of the last two. Pure.

import {h, setText} from './dom.js';
import {age, duration, when} from './format.js';

let offset = 0;

export function noteServerTime(instant, {exact = false} = {}) {
  const server = new Date(instant).getTime();
  if (Number.isNaN(server)) return;
  const difference = server - Date.now();
  if (exact) offset = Math.abs(difference) < 250 ? 0 : difference;
  else if (Math.abs(difference - offset) > 2000) offset = difference;
}

export function serverNow() {
  return Date.now() + offset;
}

export function remaining(ms) {
  if (ms <= 0) return 'expired';
  return ms < 1000 ? '<1 s' : steady(Math.floor(ms / 1000));
}

export function elapsed(ms) {
  return steady(Math.max(0, Math.floor(ms / 1000)));
}

// steady formats seconds so that the text changes at most once a second and rarely in length.
function steady(seconds) {
  if (seconds < 60) return seconds + ' s';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min ' + String(seconds % 60).padStart(2, '0') + ' s';
  return duration(seconds * 1000);
}

export function timeAgo(instant) {
  const node = timeNode('age', instant);
  node.title += ' = ' + node.dateTime;
  return node;
}

// timeLeft never shows more than the TTL beside it: this page knows the database's clock only roughly.
export function timeLeft(instant, most = Infinity) {
  return timeNode('until', instant, {most});
}

export function timeSince(instant) {
  return timeNode('since', instant);
}

function timeNode(kind, instant, bounds) {
  const at = new Date(instant);
  return show(h('time', {datetime: at.toISOString(), title: when(at, Date.now(), {milliseconds: true}),
    data: {[kind]: at.getTime(), ...bounds}}));
}

function show(node) {
  const {age: at, until, since, most} = node.dataset;
  if (at) return setText(node, age(serverNow() - at));
  return setText(node, since ? elapsed(serverNow() - since) : remaining(Math.min(until - serverNow(), most)));
}

export function tickTimes() {
  for (const node of document.querySelectorAll('time[data-age], time[data-until], time[data-since]')) show(node);
}
