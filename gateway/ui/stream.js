// A stream of server-sent events that connects again by itself and loses nothing silently.
//
//   const stream = openStream({
//     path: '/v1/rejections/stream', query: {code: 'token_stale'},
//     on: {rejection(data, id) {…}, missed(data) {…}},   // data is the JSON of the event
//     connected({resumed}) {…},                          // after every connect
//     status({state, since, retryAt, error}) {…},        // see below; openStream's caller in app.js shows it
//   });
//   stream.close();   stream.retryNow();
//
// connected({resumed: false}) means: events may have been lost (or this is the first time), so fetch what you show anew, now: the stream tells all that
// comes after. resumed is true where the gateway was told the last event's id: it tells what came since, or "missed". So a page that
// loads in `connected` and in `on.missed` has no gap. A connection that can't be made calls `connected` only when it is made at last;
// a page that wants to show something meanwhile loads at the first status 'lost'.
//
// States: connecting (the first time), live, asleep (the tab is hidden: the connection is given back, browsers have six for a host), lost (with since,
// retryAt and error: it tries again, see backoff), refused (with error: the gateway will not have this request, however often it is sent).

import {address, ApiError, isAborted, open} from './api.js';
import {backoff, eventReader} from './sse.js';

const silenceMax = 60_000; // the gateway shows every 15 s (--event-keep-alive) that a stream lives
const hiddenGrace = 5_000; // a tab that is left only for a glance keeps its stream

export function openStream(spec) {
  let closed = false, lastID = null, attempt = 0, lostSince = null;
  let abort = null, retryTimer = 0, sleepTimer = 0, asleep = false;

  function tell(state, more) {
    if (!closed) spec.status?.({state, ...more});
  }

  async function run() {
    const controller = abort = new AbortController();
    let failure = null;
    try {
      const answer = await open(address(spec.path, {...spec.query, last_event_id: lastID}),
        {signal: controller.signal, headers: {Accept: 'text/event-stream'}});
      const resumed = lastID !== null;
      lostSince = null;
      tell('live');
      guarded(() => spec.connected?.({resumed}));
      await read(answer.body.getReader(), controller);
      failure = new ApiError('The gateway ended the stream.');
    } catch (error) {
      failure = error;
    }
    if (closed || abort !== controller || asleep) return;
    abort = null;
    if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500 && !failure.retryable) tell('refused', {error: failure});
    else retryLater(isAborted(failure) ? new ApiError('The stream fell silent.') : failure);
  }

  function deliver(event, data, id) {
    guarded(() => spec.on[event]?.(JSON.parse(data), id));
  }

  async function read(reader, controller) {
    const feed = eventReader();
    const decoder = new TextDecoder();
    let silence = 0;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => controller.abort(), silenceMax);
    };
    try {
      for (listen(); ; listen()) {
        const {value, done} = await reader.read();
        if (done || closed || controller.signal.aborted) return;
        attempt = 0; // only now: a gateway that accepts and drops at once is not to be hammered
        for (const {event, data, id} of feed(decoder.decode(value, {stream: true}))) {
          if (id !== null) lastID = id;
          if (data === null) continue;
          if (event === 'end') return;
          deliver(event, data, id);
          if (closed) return;
        }
      }
    } finally {
      clearTimeout(silence);
      controller.abort();
    }
  }

  function retryLater(error) {
    lostSince ??= Date.now();
    const wait = backoff(attempt++, Math.random());
    tell('lost', {since: lostSince, retryAt: Date.now() + wait, error});
    clearTimeout(retryTimer);
    retryTimer = setTimeout(run, wait);
  }

  function retryNow() {
    if (closed || asleep || abort) return;
    clearTimeout(retryTimer);
    run();
  }

  function hang() {
    clearTimeout(retryTimer);
    clearTimeout(sleepTimer);
    const controller = abort;
    abort = null;
    controller?.abort();
  }

  function visibility() {
    clearTimeout(sleepTimer);
    if (document.hidden) {
      sleepTimer = setTimeout(() => {
        asleep = true;
        hang();
        tell('asleep');
      }, hiddenGrace);
    } else if (asleep) {
      asleep = false;
      attempt = 0;
      run();
    }
  }

  document.addEventListener('visibilitychange', visibility);
  window.addEventListener('online', retryNow);
  tell('connecting');
  run();
  return {
    retryNow,
    close() {
      closed = true;
      document.removeEventListener('visibilitychange', visibility);
      window.removeEventListener('online', retryNow);
      hang();
    },
  };
}

// guarded reports what a page does wrong, and keeps that apart from what goes wrong with the connection.
function guarded(work) {
  try {
    work();
  } catch (error) {
    reportError(error);
  }
}
