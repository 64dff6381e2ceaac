// The first sentence of the overview: how many zombie writes were shut out, and the latest one. Then, as a warning, those
// that passed by SQL, because their table is in the mode observe, and what only a defect of a client causes.
//
//   createHeadline(app, {onOpen(id, opener)}) → {element, update({points, step, from, since}), newest(rows)}
//     the points are from then on; since: when they begin, if that is less than an hour ago, or null
//     newest gets the newest rejections whenever they were loaded
//   countsOf(points, step) → {zombie: 37, passed: 1, …}, without zeros      leadOf(counts, since) → {zombies, text, passed,
//   defects, others}. Pure.

import {fill, h} from '../../dom.js';
import {clockTime} from '../../format.js';
import {button} from '../../parts.js';
import {counted, isDefect, kindNames} from '../../kinds.js';
import {link} from '../../router.js';
import {inWords} from '../rejections/words.js';
import {pieces} from '../../drawer.js';

export function countsOf(points, step) {
  const counts = {};
  for (const kind of [...kindNames, 'passed']) {
    const sum = points.reduce((writes, point) => writes + (point.values[kind] ?? 0) * step / 1000, 0);
    if (sum > 0) counts[kind] = Math.max(1, Math.round(sum));
  }
  return counts;
}

// leadOf says "none stored" without asking, because the count includes no write that was: a gateway counts a write as
// rejected only when it answers so, and the transaction that decides that changes nothing but the record of the
// rejection (P12 of docs/concepts.md). By SQL, PostgreSQL rolls it back. What a table lets pass is counted as passed.
export function leadOf({passed = 0, ...counts}, since) {
  const time = since === null ? 'in the last hour' : 'since ' + clockTime(since);
  const zombies = counts.zombie ?? 0;
  const listed = (wanted) => Object.entries(counts).filter(([kind]) => kind !== 'zombie' && wanted(kind))
    .map(([kind, number]) => counted(kind, number)).join(', ');
  const defects = listed(isDefect), others = listed((kind) => !isDefect(kind));
  return {
    zombies,
    text: zombies > 0 ? `${counted('zombie', zombies)} shut out ${time}; none stored.`
      : passed > 0 ? `No zombie write was shut out ${time}.` : `No zombie wrote ${time}.`,
    passed: passed > 0 ? `${counted('zombie', passed)} by SQL passed: tables in the mode observe reject nothing.` : '',
    defects: defects && `Client bugs: ${defects}`,
    others: others && `Also rejected: ${others}.`,
  };
}

export function createHeadline(app, {onOpen}) {
  const lead = h('p', {class: 'headline-lead'});
  const more = h('p', {class: 'headline-more'});
  const element = h('section', {class: 'headline', 'aria-label': 'Zombie writes'}, lead, more);
  let state = null, rows = [], latest = null, leases = {}, shown = '', asking = false;

  const isRecent = (row) => Date.parse(row.last_at) >= state.from;

  function render() {
    const {zombies, text, passed, defects, others} = leadOf(countsOf(state.points, state.step), state.since);
    const row = zombies > 0 && latest && isRecent(latest) ? latest : null;
    const now = JSON.stringify([text, passed, defects, others, row, leases]);
    if (now === shown) return; // an unchanged sentence keeps its focus and selection
    shown = now;
    fill(lead, (zombies > 0 || !passed) && h('span', {class: 'headline-mark', 'aria-hidden': 'true'}, '✓'), text);
    fill(more, row && ['Latest: ', pieces(inWords(row, leases)), '. ',
      button('Show what happened', (event) => onOpen(row.id, event.currentTarget),
        {class: 'inline', 'aria-haspopup': 'dialog', data: {rejection: row.id}}), ' '],
    passed && h('span', {class: 'note defects'}, h('span', {'aria-hidden': 'true'}, '▲ '), passed + ' ',
      h('a', {href: link('rejections', null, {kind: 'zombie', source: 'sql'})}, 'Show them'), ' '),
    defects && h('span', {class: 'note defects'}, h('span', {'aria-hidden': 'true'}, '▲ '), defects + ' '),
    others && h('span', {class: 'note'}, others + ' '));
  }

  // follow takes a newer rejection, and asks who had taken over.
  function follow(row) {
    const other = row.id !== latest?.id || row.superseded_by !== latest.superseded_by;
    latest = row;
    if (other) {
      leases = {};
      app.run(async () => {
        const {lease, successor} = await app.get('/v1/rejections/' + row.id);
        if (latest.id === row.id) leases = {lease, successor};
        render();
      }, () => {}); // the sentence does without
    }
    render();
  }

  // search asks for the latest zombie if others hide it in the list of the newest rejections.
  function search() {
    if (asking) return;
    asking = true;
    app.run(async () => {
      const {rejections} = await app.get('/v1/rejections', {kind: 'zombie', sort: 'last_seen', limit: 20});
      asking = false;
      const row = rejections.find((each) => !each.observed);
      if (row) follow(row);
    }, () => {
      asking = false;
      render();
    });
  }

  // choose takes the latest zombie out of the newest rejections.
  function choose() {
    const row = rows.find((each) => each.kind === 'zombie' && !each.observed);
    if (row) follow(row);
    else if (countsOf(state.points, state.step).zombie > 0 && !(latest && isRecent(latest))) search();
    else render();
  }

  return {
    element,
    update(now) {
      const first = state === null;
      state = now;
      if (first) choose();
      else render();
    },
    newest(now) {
      rows = now;
      if (state !== null) choose();
    },
  };
}
