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
