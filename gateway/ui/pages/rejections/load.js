// Loading the rejections: the stream, the list in pages, and the summary.
//
//   const loader = createLoader({app, query: () => filters of the list, onChange(changes),
//                                onSummary(summary, writesOfAll), onError(error)})
//   loader.restart(streamFilters)   drops all groups, connects the stream and reads the list
//   loader.load()                   reads the list again and merges it: after a gap, no shown group disappears
//   loader.ready()                  something was read or received
//   loader.groups                   see groups.js
//   loader.isFresh(row)             arrived by the stream a moment ago
//   loader.note()                   what is missing
//
// If the stream has missed something, the changes since are read, the latest first, every few seconds at most: a storm
// of rejections is no reason to read all of them again and again.

import {count} from '../../format.js';
import {createGroups} from './groups.js';

const groupsMax = 10_000;
const pageSize = 1000;
const summaryEvery = 5_000;
const catchUpEvery = 5_000;
const freshFor = 2_400;
const retryAfter = 5_000;
const recordedWithin = 30_000; // a write is recorded, and so streamed, a little after it came

export function createLoader({app, query, onChange, onSummary, onError}) {
  const groups = createGroups(groupsMax);
  const fresh = new Map(); // id → when it arrived
  let generation = 0, loading = false, cut = false, loaded = false, failure = null, retryTimer = 0;

  // readAll reads pages until there are no more, or too many. It returns whether there are more.
  async function readAll(mine, filters) {
    let cursor = '', read = 0;
    do {
      const page = await app.get('/v1/rejections', {...filters, limit: pageSize, cursor});
      if (mine !== generation) return false;
      read += page.rejections.length;
      loaded = true;
      onChange(groups.merge(page.rejections));
      cursor = page.next_cursor ?? '';
    } while (cursor !== '' && read < groupsMax);
    return cursor !== '';
  }

  function load() {
    const mine = ++generation;
    loading = true;
    clearTimeout(retryTimer);
    app.run(async () => {
      cut = await readAll(mine, query());
      if (mine !== generation) return;
      loading = false;
      failure = null;
      onChange(0);
    }, (error) => failed(mine, error));
    summarise();
  }

  function failed(mine, error) {
    if (mine !== generation) return;
    loading = false;
    failure = error;
    if (error.retryable) retryTimer = setTimeout(load, retryAfter);
    if (loaded) onChange(0);
    else onError(error);
  }

  let catchUpTimer = 0, catchUpAt = -Infinity, missedSince = null;

  function missed({since}) {
    if (missedSince === null || since < missedSince) missedSince = since;
    clearTimeout(catchUpTimer);
    catchUpTimer = setTimeout(catchUp, Math.max(0, catchUpAt + catchUpEvery - performance.now()));
  }

  function catchUp() {
    const filters = query();
    const from = new Date(Date.parse(missedSince) - recordedWithin).toISOString();
    const since = filters.since && filters.since > from ? filters.since : from;
    missedSince = null;
    catchUpAt = performance.now();
    app.run(() => readAll(generation, {...filters, since, sort: 'last_seen'}), load);
    summariseSoon();
  }

  let summaryTimer = 0, summaryAt = -Infinity;

  function summarise() {
    clearTimeout(summaryTimer);
    const mine = generation;
    summaryAt = performance.now();
    app.run(async () => {
      const summary = await app.get('/v1/rejections/summary', query());
      const everything = summary.writes > 0 ? summary.writes : (await app.get('/v1/rejections/summary')).writes;
      if (mine === generation) onSummary(summary, everything);
    }, () => {}); // the list shows the error
  }

  function summariseSoon() {
    clearTimeout(summaryTimer);
    summaryTimer = setTimeout(summarise, Math.max(300, summaryAt + summaryEvery - performance.now()));
  }

  function received(row) {
    if (groups.merge([row]) === 0) return;
    const now = performance.now();
    for (const [id, at] of fresh) if (now - at > freshFor) fresh.delete(id);
    if (row.count === 1 || !fresh.has(row.id)) fresh.set(row.id, now);
    onChange(1);
    summariseSoon();
  }

  app.onEnd(() => {
    for (const timer of [summaryTimer, catchUpTimer, retryTimer]) clearTimeout(timer);
  });

  return {
    groups,
    load,
    // Before that, an empty list does not mean that there are no rejections.
    ready: () => loaded || groups.size > 0,
    restart(filters) {
      generation++;
      clearTimeout(catchUpTimer);
      clearTimeout(retryTimer);
      failure = null;
      groups.clear();
      fresh.clear();
      loaded = false;
      let begun = false;
      app.stream({path: '/v1/rejections/stream', query: filters, on: {rejection: received, missed},
        connected({resumed}) {
          begun = true;
          if (!resumed) load();
        },
        status({state}) {
          // Without a stream, show the list at least.
          if (!begun && (state === 'lost' || state === 'refused')) {
            begun = true;
            load();
          }
        }});
    },
    isFresh: (row) => performance.now() - (fresh.get(row.id) ?? -Infinity) < freshFor,
    note() {
      if (failure) return `not all could be read, trying again: ${failure.message}`;
      if (loading && groups.size > 0) return `reading… ${count(groups.size)} so far`;
      return cut || groups.dropped ? `only the newest ${count(groupsMax)} are shown: filter, or choose a shorter time`
        : '';
    },
  };
}
