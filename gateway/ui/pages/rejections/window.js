// The time range of the page: the last hour or so, or from one instant to another; chosen by buttons, in a dialog, by
// dragging, or to fit the data.
//
//   const range = createWindow({query, onChange})     range.element, range.dialog
//   range.choose('1h' | 'all' | …), range.zoom(from, to), range.set(query)
//   range.isOpen() → whether nothing is chosen yet     range.fit(ms) chooses the shortest range that goes so far back
//   range.query() → its part of the page's address     range.times(now) → {since, until} for the API
//   range.bounds(now, rows) → {from, to} for the timeline, in milliseconds
//   range.moves(pixels) → whether the passing of time would be visible

import {fill, h} from '../../dom.js';
import {clockTime, day, when} from '../../format.js';
import {button} from '../../parts.js';
import {fitting} from './words.js';

const hour = 3_600_000;
const lengths = new Map([['15m', hour / 4], ['1h', hour], ['6h', 6 * hour], ['24h', 24 * hour], ['all', null]]);
const usual = '1h';

export function createWindow({query, onChange}) {
  let chosen = usual, before = usual, open = true, since = null, until = null, drawnAt = 0;
  const choices = new Map([...lengths.keys()].map((label) => [label, button(label, () => choose(label))]));
  const reset = button('', () => choose(before), {class: 'quiet'});
  const other = button('Other…', ask, {'aria-haspopup': 'dialog', title: 'From one time to another'});
  const element = h('div', {class: 'actions'}, reset,
    h('div', {class: 'segments', role: 'group', 'aria-label': 'Time shown'}, [...choices.values(), other]));
  const from = instantField('since', 'From');
  const to = instantField('until', 'To; empty: now');
  const dialog = h('dialog', {'aria-labelledby': 'range-title'}, h('h2', {id: 'range-title'}, 'Time shown'),
    h('form', {on: {submit: take, input: () => to.input.setCustomValidity('')}}, from.label, to.label,
      h('div', {class: 'actions end'}, button('Cancel', () => dialog.close()),
        h('button', {type: 'submit'}, 'Show'))));

  // ask begins with the range that is shown.
  function ask() {
    const length = lengths.get(chosen);
    from.input.value = localText(since ?? (length ? Date.now() - length : null));
    to.input.value = localText(until);
    to.input.setCustomValidity('');
    dialog.showModal();
  }

  function take(event) {
    event.preventDefault();
    const [first, last] = [from, to].map(({input}) => (input.value === '' ? null : new Date(input.value).getTime()));
    const isReversed = first !== null && last !== null && last <= first;
    to.input.setCustomValidity(isReversed ? 'This is not after the first time.' : '');
    if (!to.input.reportValidity()) return;
    dialog.close();
    if (first === null && last === null) choose('all');
    else zoom(first, last);
  }

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
    const [from, to] = [since === null ? 'the first' : when(since), until === null ? 'now' : when(until)];
    if (chosen === null) fill(reset, `✕ ${from} – ${to}`);
    reset.setAttribute('aria-label', `Back to ${before}`);
  }

  function choose(label) {
    [chosen, since, until, open] = [label, null, null, false];
    show();
    onChange();
  }

  function zoom(first, last) {
    if (chosen !== null) before = chosen;
    [chosen, since, until] = [null, first, last === null ? null : Math.max(last, (first ?? -Infinity) + 10)];
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
    dialog,
    zoom,
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

function instantField(name, label) {
  const input = h('input', {type: 'datetime-local', name, step: 1});
  return {input, label: h('label', {class: 'field wide'}, h('span', null, label), input)};
}

// localText is an instant in this computer's zone, as an input of the type datetime-local has it.
function localText(instant) {
  return instant === null ? '' : `${day(instant)}T${clockTime(instant)}`;
}
