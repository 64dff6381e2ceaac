// Times that count down or up each second, by the database's clock: the rest of a lease, the length of a wait.
//
//   timeLeft(instant, most)  <time> until then, at most so many ms; "expired" after it
//   timeSince(instant)       <time> since then, without "ago"
//   tickTimes(root)          updates those within root: call it each second
//   remaining(ms), elapsed(ms)   their texts. Pure.

import {h, setText} from './dom.js';
import {duration, when} from './format.js';
import {serverNow} from './clock.js';

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

// timeLeft never shows more than the TTL beside it: this page knows the database's clock only roughly.
export function timeLeft(instant, most = Infinity) {
  return timeNode('until', instant, {most});
}

export function timeSince(instant) {
  return timeNode('since', instant);
}

function timeNode(kind, instant, bounds) {
  const at = new Date(instant);
  const node = h('time', {datetime: at.toISOString(), title: when(at, Date.now(), {milliseconds: true}),
    data: {[kind]: at.getTime(), ...bounds}});
  show(node);
  return node;
}

function show(node) {
  const {until, since, most} = node.dataset;
  const text = until === undefined ? elapsed(serverNow() - Number(since))
    : remaining(Math.min(Number(until) - serverNow(), Number(most)));
  setText(node, text);
}

export function tickTimes(root) {
  for (const node of root.querySelectorAll('time[data-until], time[data-since]')) show(node);
}
