// Times that count down or up each second, by the database's clock: what is left of a lease, how long somebody waits.
//
//   timeLeft(instant, most)  <time> until then, at most so many ms; "run out" from then on
//   timeSince(instant)       <time> since then, without "ago"
//   tickTimes(root)          makes those within root true again: call it each second
//   remaining(ms), elapsed(ms)   their texts. Pure.

import {h, setText} from './dom.js';
import {duration, when} from './format.js';
import {serverNow} from './clock.js';

export function remaining(ms) {
  if (ms <= 0) return 'run out';
  return ms < 1000 ? '<1 s' : steady(Math.floor(ms / 1000));
}

export function elapsed(ms) {
  return steady(Math.max(0, Math.floor(ms / 1000)));
}

// steady is a number of seconds in a text that changes no more than once a second, and not in length where that can be helped.
function steady(seconds) {
  if (seconds < 60) return seconds + ' s';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min ' + String(seconds % 60).padStart(2, '0') + ' s';
  return duration(seconds * 1000);
}

// timeLeft is never more than the TTL beside it: this page knows the database's clock only roughly.
export function timeLeft(instant, most = Infinity) {
  return moment('until', instant, {most});
}

export function timeSince(instant) {
  return moment('since', instant);
}

function moment(kind, instant, bounds) {
  const at = new Date(instant);
  const node = h('time', {datetime: at.toISOString(), title: when(at, Date.now(), {milliseconds: true}), data: {[kind]: at.getTime(), ...bounds}});
  show(node);
  return node;
}

function show(node) {
  const {until, since, most} = node.dataset;
  const text = until === undefined ? elapsed(serverNow() - Number(since)) : remaining(Math.min(Number(until) - serverNow(), Number(most)));
  setText(node, text);
}

export function tickTimes(root) {
  for (const node of root.querySelectorAll('time[data-until], time[data-since]')) show(node);
}
