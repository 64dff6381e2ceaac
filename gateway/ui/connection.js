// Whether the page is current: the mark in the header, and the banner.
//
//   showConnection(status, stream)   the state of the page's stream, see stream.js
//   noteFault(text)                  why the page is not current although its stream lives; null: it is
//   tickConnection()                 counts down to the next attempt

import {fill, h, setText} from './dom.js';
import {clockTime} from './format.js';

const element = (id) => document.getElementById(id);

const liveTexts = {
  idle: '', connecting: 'Connecting…', live: 'Live', asleep: 'Paused', lost: 'Not connected', refused: 'Not live',
  stale: 'Not current',
};
let connection = {state: 'idle'}, connectionStream = null, bannerTimer = 0;
let fault = null; // {since, text}: why the page is not current although its stream lives

export function noteFault(text) {
  if (text === (fault?.text ?? null)) return;
  fault = text && {since: fault?.since ?? Date.now(), text};
  showConnection(connection, connectionStream);
}

export function showConnection(status, stream = null) {
  connection = status;
  connectionStream = stream;
  const live = element('live');
  live.dataset.state = shownState();
  setText(live, liveTexts[live.dataset.state]);
  clearTimeout(bannerTimer);
  // A gateway that restarts behind a proxy returns within a moment, which needs no banner.
  if (shownState() === 'lost' && Date.now() - status.since < 1000) bannerTimer = setTimeout(showBanner, 1000);
  else showBanner();
}

// shownState is "stale" also while the gateway answers, but can't stream.
function shownState() {
  const {state, error} = connection;
  return (fault !== null && state === 'live') || (state === 'lost' && error.status > 0) ? 'stale' : state;
}

function showBanner() {
  const banner = element('banner');
  const {since, retryAt, error} = connection;
  const state = shownState();
  const bad = ['lost', 'refused', 'stale'].includes(state), retries = connection.state === 'lost';
  if (!bad) {
    const wasBad = banner.childElementCount > 0 && !banner.classList.contains('good');
    banner.classList.toggle('good', wasBad && state === 'live');
    if (wasBad && state === 'live') {
      fill(banner, h('span', null, 'Up to date again. No event was missed.'));
      bannerTimer = setTimeout(showBanner, 4000);
    } else if (state !== 'connecting') {
      banner.classList.remove('good');
      fill(banner);
    }
    return;
  }
  banner.classList.remove('good');
  const text = {
    lost: () => `Connection lost at ${clockTime(since)}: this page shows the state of that time. ${error.message}`,
    stale: () => `Not current since ${clockTime(since ?? fault.since)}. ${error?.message ?? fault.text}`,
    refused: () => `Not live: ${error.message}`,
  }[state]();
  // Screen readers announce changes, so the countdown is a separate element, hidden from them.
  if (banner.dataset.text !== text || banner.childElementCount < 2) {
    banner.dataset.text = text;
    fill(banner, h('span', null, text), h('span', {class: 'countdown', 'aria-hidden': 'true'}),
      retries && h('button', {type: 'button', on: {click: () => connectionStream?.retryNow()}}, 'Try now'));
  }
  const left = Math.ceil((retryAt - Date.now()) / 1000);
  const countdown = left > 0 ? `Trying again in ${left} s` : 'Trying again…';
  setText(banner.querySelector('.countdown'), retries ? countdown : '');
}

export function tickConnection() {
  if (connection.state === 'lost' && Date.now() - connection.since >= 1000) showBanner();
}
