// Reading of the rejections: the stream, the list in pages, and the summary.
//
//   const loader = createLoader({app, query: () => filters of the list, onChange(changes), onSummary(summary, writesOfAll), onError(error)})
//   loader.restart(streamFilters)   drops what is known, connects the stream and reads anew
//   loader.load()                   reads the list again and merges it: after a gap, nothing that is shown goes away
//   loader.stories (stories.js) · loader.isFresh(row): came by the stream a moment ago · loader.note(): what is not shown

import {count} from '../../format.js';
import {createStories} from './stories.js';

const storiesMax = 10_000;
const pageSize = 1000;
const summaryEvery = 5_000;
const freshFor = 2_400;

export function createLoader({app, query, onChange, onSummary, onError}) {
  const stories = createStories(storiesMax);
  const fresh = new Map(); // id → when it came
  let generation = 0, loading = false, cut = false, loaded = false;

  function load() {
    const mine = ++generation;
    loading = true;
    app.run(async () => {
      cut = false;
      let cursor = '', read = 0;
      do {
        const page = await app.get('/v1/rejections', {...query(), limit: pageSize, cursor});
        if (mine !== generation) return;
        read += page.rejections.length;
        stories.merge(page.rejections);
        loaded = true;
        cursor = page.next_cursor ?? '';
        onChange(0);
      } while (cursor !== '' && read < storiesMax);
      cut = cursor !== '';
      loading = false;
      onChange(0);
    }, (error) => {
      if (mine !== generation) return;
      loading = false;
      if (!loaded) onError(error);
    });
    summarise();
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
    }, () => {}); // the list says what is wrong
  }

  function summariseSoon() {
    clearTimeout(summaryTimer);
    summaryTimer = setTimeout(summarise, Math.max(300, summaryAt + summaryEvery - performance.now()));
  }

  function told(row) {
    if (stories.merge([row]) === 0) return;
    const now = performance.now();
    for (const [id, at] of fresh) if (now - at > freshFor) fresh.delete(id);
    if (row.count === 1 || !fresh.has(row.id)) fresh.set(row.id, now);
    onChange(1);
    summariseSoon();
  }

  app.onEnd(() => clearTimeout(summaryTimer));

  return {
    stories,
    load,
    restart(filters) {
      generation++;
      stories.clear();
      fresh.clear();
      loaded = false;
      let begun = false;
      app.stream({path: '/v1/rejections/stream', query: filters, on: {rejection: told, missed: load},
        connected({resumed}) {
          begun = true;
          if (!resumed) load();
        },
        status({state}) {
          // Without a stream the list is better than nothing.
          if (!begun && (state === 'lost' || state === 'refused')) {
            begun = true;
            load();
          }
        }});
    },
    isFresh: (row) => performance.now() - (fresh.get(row.id) ?? -Infinity) < freshFor,
    note() {
      if (loading && stories.size > 0) return `reading… ${count(stories.size)} so far`;
      return cut || stories.dropped ? `only the newest ${count(storiesMax)} are shown: filter, or take a shorter time` : '';
    },
  };
}
