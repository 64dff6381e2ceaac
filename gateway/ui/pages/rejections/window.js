// The time range of the page: the last hour or so, or from one instant to another; chosen by buttons or by dragging, or
// to fit the data.
//
//   const range = createWindow({query, onChange})     range.element
//   range.choose('1h' | 'all' | …), range.zoom(from, to), range.set(query)
//   range.isOpen() → whether nothing is chosen yet     range.fit(ms) chooses the shortest range that goes so far back
//   range.query() → its part of the page's address     range.times(now) → {since, until} for the API
//   range.bounds(now, rows) → {from, to} for the timeline, in milliseconds
//   range.moves(pixels) → whether the passing of time would be visible

import {fill, h} from '../../dom.js';
import {when} from '../../format.js';
import {button} from '../../parts.js';
import {fitting} from './words.js';

const hour = 3_600_000;
const lengths = new Map([['15m', hour / 4], ['1h', hour], ['6h', 6 * hour], ['24h', 24 * hour], ['all', null]]);
const usual = '1h';

export function createWindow({query, onChange}) {
  let chosen = usual, before = usual, open = true, since = null, until = null, drawnAt = 0;
  const choices = new Map([...lengths.keys()].map((label) => [label, button(label, () => choose(label))]));
  const reset = button('', () => choose(before), {class: 'quiet'});
  const element = h('div', {class: 'actions'}, reset,
    h('div', {class: 'segments', role: 'group', 'aria-label': 'Time shown'}, [...choices.values()]));

  function set(now) {
    const [from, to] = [Date.parse(now.since ?? ''), Date.parse(now.until ?? '')];
    since = Number.isNaN(from) ? null : from;
    until = Number.isNaN(to) ? null : to;
    chosen = since === null && until === null ? (lengths.has(now.range) ? now.range : usual) : null;
    open = chosen !== null && !lengths.has(now.range);
    show();
  }

  function show() {
    for (const [label, choice] of choices) choice.setAttribute('aria-pressed', String(label === chosen));
    reset.hidden = chosen !== null;
    const [from, to] = [since === null ? '' : when(since), until === null ? 'now' : when(until)];
    if (chosen === null) fill(reset, `✕ ${from} – ${to}`);
    reset.setAttribute('aria-label', `Back to ${before}`);
  }

  function choose(label) {
    [chosen, since, until, open] = [label, null, null, false];
    show();
    onChange();
  }

  // fit does not call onChange.
  function fit(ms) {
    const length = fitting(ms, [...lengths.values()]);
    chosen = ms > length ? 'all' : [...lengths].find(([, each]) => each === length)[0];
    open = false;
    show();
  }

  set(query);
  return {
    element,
    set,
    choose,
    fit,
    isOpen: () => open,
    zoom(from, to) {
      if (chosen !== null) before = chosen;
      [chosen, since, until] = [null, from, Math.max(to, from + 10)];
      show();
      onChange();
    },
    query() {
      if (chosen !== null) return {range: chosen};
      return {since: since === null ? '' : new Date(since).toISOString(),
        until: until === null ? '' : new Date(until).toISOString()};
    },
    times(now) {
      if (chosen === null) return this.query();
      const length = lengths.get(chosen);
      return length === null ? {} : {since: new Date(now - length).toISOString()};
    },
    bounds(now, rows) {
      drawnAt = now;
      const length = chosen === null ? null : lengths.get(chosen);
      const to = until ?? now + (length ?? 0) * 0.01; // a mark at the edge is hard to see
      if (length) return {from: now - length, to};
      // All: from the oldest, with a margin.
      const oldest = rows.reduce((least, row) => Math.min(least, row.firstMS), to - 60_000);
      return {from: since ?? oldest - (to - oldest) * 0.02, to};
    },
    // Until a pixel's worth of time has passed, there is nothing to redraw.
    moves(pixels, now = Date.now()) {
      if (until !== null) return false;
      const length = (chosen !== null && lengths.get(chosen)) || 24 * hour;
      return Math.abs(now - drawnAt) > length / pixels;
    },
  };
}
