// The stories of rejected writes that the page knows. Pure.
//
// A story is a row of the API: writes of one token that were shut out alike, with a count. The same story comes by lists and by the stream, in
// any order; the greater count is the newer one.
//
//   const stories = createStories(max)
//   stories.merge(rows) → how many were new or newer      stories.all() → rows, as sorted last      stories.sort({id, order})
//   stories.clear(), stories.size, stories.dropped        beyond max the oldest are dropped: dropped tells that some were
//   matches(row, query)                                   whether a row is among those that the filters ask for
//   keys: what can be sorted by

const time = (text) => Date.parse(text) || 0;

export const keys = {
  first: (row) => time(row.first_at),
  last: (row) => time(row.last_at),
  late: (row) => row.late_ms ?? -1,
  count: (row) => row.count,
  token: (row) => row.token ?? 0,
};

export function createStories(max) {
  let known = new Map();
  let sorted = null;
  let order = {id: 'first', order: 'desc'};
  let dropped = false;

  function trim() {
    // Dropped in tenths, so that a stream at the limit does not sort for every event.
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
        known.set(row.id, row);
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
        sorted = [...known.values()].map((row) => [key(row), row]).sort(([a, x], [b, y]) => sign * (a - b || x.id - y.id)).map(([, row]) => row);
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

export function matches(row, query) {
  return (!query.resource || row.resource === query.resource) &&
    (!query.prefix || row.resource.startsWith(query.prefix)) &&
    (!query.code || row.code === query.code) &&
    (!query.reason || row.reason === query.reason) &&
    (!query.door || row.door === query.door) &&
    (!query.owner_id || row.owner_id === query.owner_id) &&
    (!query.since || time(row.last_at) >= time(query.since)) &&
    (!query.until || time(row.last_at) < time(query.until));
}
