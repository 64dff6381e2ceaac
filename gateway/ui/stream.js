// A stream of server-sent events that reconnects by itself and never loses events silently.
//
//   const stream = openStream({
//     path: '/v1/rejections/stream', query: {code: 'token_stale'},
//     on: {rejection(data, id) {…}, missed(data) {…}},   // data is the JSON of the event
//     connected({resumed}) {…},                          // after every connect
//     status({state, since, retryAt, error}) {…},        // see below; app.js shows it
//   });
//   stream.close();   stream.retryNow();
//
// connected({resumed: false}) means that events may have been lost, or that this is the first connect: fetch the data
// again now; the stream sends all later events. resumed is true if the gateway received the last event's id: it sends
// the events since, or "missed". So a page that loads in `connected` and in `on.missed` has no gap. `connected` is only
// called once a connection succeeds; a page that should show something earlier loads at the first status 'lost'.
//
// States:
//   connecting   the first attempt
//   live
//   asleep       the tab is hidden, and the connection closed: browsers open six to a host
//   lost         with since, retryAt and error; it retries, see backoff
//   refused      with error: the gateway will never accept this request
//
// eventReader reads server-sent events, as the HTML standard describes them. Pure.
//
//   const feed = eventReader();
//   feed(text) → the events that are complete: [{event, data, id}]; id is null if there was none. data is null for an
//                id alone, which is no event, but from which a stream can be resumed.
//
// The page reads streams by fetch and not by EventSource. So it sees the status and the problem of a failed request,
// sees the keep-alive comments of an idle stream, and chooses when to reconnect.
//
// follow keeps a list live:
//
//   follow(app, {refresh, overview})     calls refresh about every two seconds, and after each connect. overview(data)
//                                        gets the events of the overview, if the caller may see it.
//
// Only a principal that may observe all names may see the overview. For others the page asks by itself; the stream of
// their rejections shows whether the gateway can be reached.

import {mayAll, mayAny} from './account.js';
import {ApiError, address, isAborted, open} from './api.js';

const silenceMax = 60_000; // the gateway sends a comment every 15 s (--event-keep-alive)
const hiddenGrace = 5_000; // a tab that is hidden only briefly keeps its stream

export function openStream(spec) {
  let closed = false, lastID = null, attempt = 0, lostSince = null;
  let abort = null, retryTimer = 0, sleepTimer = 0, asleep = false;

  function setStatus(state, more) {
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
      setStatus('live');
      guarded(() => spec.connected?.({resumed}));
      await read(answer.body.getReader(), controller);
      failure = new ApiError('The gateway ended the stream.');
    } catch (error) {
      failure = error;
    }
    if (closed || abort !== controller || asleep) return;
    abort = null;
    if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500 &&
      !failure.retryable) setStatus('refused', {error: failure});
    else retryLater(isAborted(failure) ? new ApiError('The stream is silent.') : failure);
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
        attempt = 0; // only now, or a gateway that accepts and drops at once would be hammered
        for (const {event, data, id} of feed(decoder.decode(value, {stream: true}))) {
          if (id !== null) lastID = id;
          if (data === null) continue;
          if (event === 'end') return;
          guarded(() => spec.on[event]?.(JSON.parse(data), id));
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
    setStatus('lost', {since: lostSince, retryAt: Date.now() + wait, error});
    clearTimeout(retryTimer);
    retryTimer = setTimeout(run, wait);
  }

  function retryNow() {
    if (closed || asleep || abort) return;
    clearTimeout(retryTimer);
    run();
  }

  function disconnect() {
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
        disconnect();
        setStatus('asleep');
      }, hiddenGrace);
    } else if (asleep) {
      asleep = false;
      attempt = 0;
      run();
    }
  }

  document.addEventListener('visibilitychange', visibility);
  window.addEventListener('online', retryNow);
  setStatus('connecting');
  run();
  return {
    retryNow,
    close() {
      closed = true;
      document.removeEventListener('visibilitychange', visibility);
      window.removeEventListener('online', retryNow);
      disconnect();
    },
  };
}

// guarded reports errors of the page, so that they are not taken for errors of the connection.
function guarded(work) {
  try {
    work();
  } catch (error) {
    reportError(error);
  }
}

export function eventReader() {
  let rest = '';
  let skipNewline = false; // the last text ended with \r: a \n after it belongs to it
  let event = '', data = [], id = null;

  function line(text, events) {
    if (text === '') {
      if (data.length > 0) events.push({event: event || 'message', data: data.join('\n'), id});
      else if (id !== null) events.push({event: '', data: null, id});
      event = '';
      data = [];
      id = null;
      return;
    }
    const colon = text.indexOf(':');
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? '' : text.slice(colon + (text[colon + 1] === ' ' ? 2 : 1));
    if (field === 'event') event = value;
    else if (field === 'data') data.push(value);
    else if (field === 'id' && !value.includes('\0')) id = value;
  }

  return function feed(text) {
    const events = [];
    if (skipNewline && text.startsWith('\n')) text = text.slice(1);
    if (text !== '') skipNewline = false;
    rest += text;
    const lines = rest.split(/\r\n|\n|\r/);
    skipNewline = rest.endsWith('\r');
    rest = lines.pop();
    for (const each of lines) line(each, events);
    return events;
  };
}

// backoff returns the pause before the attempt-th reconnect (the first is 0), in ms: a quarter of a second, doubled up
// to ten seconds. random (0 to 1) spreads half of it, so that not all pages reconnect to a gateway at once.
export function backoff(attempt, random) {
  const greatest = Math.min(10_000, 250 * 2 ** Math.min(attempt, 10));
  return Math.round(greatest / 2 + (greatest / 2) * random);
}

export function follow(app, {refresh, overview}) {
  if (mayAll('observe')) {
    app.stream({path: '/v1/overview/stream', connected: refresh, on: {overview(data) {
      overview?.(data);
      refresh();
    }}});
    return;
  }
  if (mayAny('observe')) app.stream({path: '/v1/rejections/stream', connected: refresh, on: {}});
  app.every(2000, refresh);
}
