// Loading the rejections: the stream, the list in pages, and the summary.
//
//   const loader = createLoader({app, query: () => filters of the list, onChange(changes),
//                                onSummary(summary, writesOfAll), onError(error)})
//   loader.restart(streamFilters)   drops all groups, connects the stream and reads the list
//   loader.load()                   reads the list again and merges it: after a gap, no shown group disappears
//   loader.ready()                  something was read or received
//   loader.groups                   see below
//   loader.isFresh(row)             arrived by the stream a moment ago
//   loader.note()                   what is missing
//
// If the stream has missed something, the changes since are read, the latest first, every few seconds at most: a storm
// of rejections is no reason to read all of them again and again.
//
// The rejection groups that the page has. Pure.
//
// A group is a row of the API: writes of one token that were rejected alike, with a count. The same group arrives in
// lists and in the stream, in any order; the greater count is the newer one. The rows here also have firstMS and
// lastMS: the group's times in milliseconds since 1970.
//
//   const groups = createGroups(max)
//   groups.merge(rows) → how many were new or newer      groups.all() → rows, sorted      groups.sort({id, order})
//   groups.clear(), groups.size, groups.dropped        beyond max the oldest are dropped; dropped is then true
//   matcher(query) → (row) → whether the filters select it
//   keys: the sortable columns

import {count} from '../../format.js';

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

export const keys = {
  first: (row) => row.firstMS,
  last: (row) => row.lastMS,
  late: (row) => row.late_ms ?? -1,
  count: (row) => row.count,
  token: (row) => row.token ?? 0,
};

export function createGroups(max) {
  let known = new Map();
  let sorted = null;
  let order = {id: 'first', order: 'desc'};
  let dropped = false;

  function trim() {
    // A tenth at a time, so that a stream at the limit does not sort for every event.
    if (known.size <= max * 1.1) return;
    const rows = [...known.values()].sort((a, b) => b.id - a.id).slice(0, max);
    known = new Map(rows.map((row) => [row.id, row]));
    dropped = true;
  }

  return {
    merge(rows) {
      let changes = 0;
      for (const row of rows) {
        const before = known.get(row.id);
        if (before && before.count >= row.count) continue;
        known.set(row.id, {...row, firstMS: Date.parse(row.first_at), lastMS: Date.parse(row.last_at)});
        changes++;
      }
      if (changes > 0) {
        trim();
        sorted = null;
      }
      return changes;
    },
    all() {
      if (sorted === null) {
        const key = keys[order.id];
        const sign = order.order === 'asc' ? 1 : -1;
        sorted = [...known.values()].map((row) => [key(row), row])
          .sort(([a, x], [b, y]) => sign * (a - b || x.id - y.id)).map(([, row]) => row);
      }
      return sorted;
    },
    sort(by) {
      order = by;
      sorted = null;
    },
    get order() {
      return order;
    },
    get size() {
      return known.size;
    },
    get dropped() {
      return dropped;
    },
    clear() {
      known.clear();
      sorted = null;
      dropped = false;
    },
  };
}

export function matcher(query) {
  const since = query.since ? Date.parse(query.since) : -Infinity;
  const until = query.until ? Date.parse(query.until) : Infinity;
  const wanted = ['resource', 'key', 'code', 'reason', 'kind', 'source', 'owner_id'].filter((field) => query[field]);
  return (row) => row.lastMS >= since && row.firstMS < until &&
    wanted.every((field) => row[field] === query[field]) && (!query.prefix || row.resource.startsWith(query.prefix));
}
