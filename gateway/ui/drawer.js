// The drawer that explains one rejection: a sentence, the sequence of events as a drawing and as a list, and all facts.
//
//   const drawer = createDrawer(app, {onClose});
//   drawer.element · drawer.open(id, opener) · drawer.close()
//
// It is a modal dialog: the browser moves the focus in, keeps it there, and closes it at Escape. The focus then returns
// to the opener, or to the button that has replaced it ([data-rejection], see openButton of parts.js).
//
// The drawing of one rejection: two lanes, the writer and the next holder, and the steps from the grant to the rejected
// write. Steps are equally far apart, since seconds and hours may lie between them; the times between are texts.
//
//   drawSequence({events, silentMS}, {writer, next}, width) → svg, hidden from screen readers: a list says the same
//     events as in pages/rejections/words.js; writer and next are texts for the lanes

import {fill, h, s} from './dom.js';
import {count, duration, isolated, short, token} from './format.js';
import {codes, kinds} from './kinds.js';
import {eventsOf, inWords} from './pages/rejections/words.js';
import {button, errorMessage, fact, kindBadge, loading, name, owner, timeAt} from './parts.js';
import {link} from './router.js';

export function createDrawer(app, {onClose} = {}) {
  const title = h('h2', {id: 'drawer-title'}, 'Rejected write');
  const body = h('div', {class: 'stack'});
  const close = button('Close', () => element.close());
  const element = h('dialog', {class: 'drawer', 'aria-labelledby': 'drawer-title', on: {close: closed, click(event) {
    if (event.target === element) element.close(); // the backdrop
  }}}, h('div', {class: 'drawer-head'}, title, close), body);
  let shown = null, from = null, left = false;

  function closed() {
    if (left) return; // the address is another page's by now
    const back = from?.isConnected ? from : document.querySelector(`[data-rejection="${shown}"]`);
    shown = null;
    fill(body);
    back?.focus();
    onClose?.();
  }

  function load(id) {
    app.run(async () => {
      const detail = await app.get('/v1/rejections/' + id);
      if (shown === id) fill(body, content(detail, Math.min(560, element.clientWidth - 40)));
    }, (error) => {
      if (shown === id) fill(body, errorMessage(error, () => load(id)));
    });
  }

  app.onEnd(() => {
    left = true;
    element.close();
  });
  return {
    element,
    close: () => element.close(),
    open(id, opener = null) {
      if (shown === id) return;
      [shown, from] = [id, opener];
      fill(body, loading());
      if (!element.open) element.showModal();
      load(id);
    },
  };
}

export function pieces(all, options) {
  return all.map((piece) => (piece.name === undefined ? piece : name(piece.name, options)));
}

function content(detail, width) {
  const {rejection: row, lease, successor} = detail;
  const sequence = eventsOf(detail);
  const writer = short(row.owner_id || row.principal || 'unknown writer', 16) + (row.token === undefined ? '' : ` · ${row.token}`);
  const next = successor ? `${short(successor.owner_id, 16)} · ${successor.fencing_token}` : '';
  return [
    h('p', {class: 'drawer-lead'}, pieces(inWords(row, {lease, successor})), '.'),
    h('p', null, kindBadge(row.kind), ' ', h('span', {class: 'note'}, kinds[row.kind]?.meaning)),
    drawSequence(sequence, {writer, next}, width),
    h('p', {class: 'note'}, 'The drawing is not to scale: the times between its steps are below them.'),
    h('ol', {class: 'events', 'aria-label': 'What happened'}, sequence.events.map((event) =>
      h('li', null, event.at === null ? h('span', {class: 'note'}, 'in between') : timeAt(event.at),
        h('span', null, pieces(event.pieces, {whole: true}))))),
    lease === undefined && row.token !== undefined && h('p', {class: 'note'},
      'The lease of this token is not known: it was never granted, is not remembered, is of another name, or is on a name ' +
      'that you may not observe.'),
    h('dl', {class: 'facts'}, facts(row)),
    h('p', {class: 'actions'}, h('a', {class: 'button', href: link('locks', row.resource)}, 'The lock'),
      row.owner_id && h('a', {class: 'button', href: link('owners', row.owner_id)}, 'The owner'),
      h('a', {class: 'button', href: link('rejections', null, {rejection: row.id})}, 'Link')),
  ];
}

function facts(row) {
  return [
    fact('Code', h('code', null, row.code), row.reason && [' ', h('span', {class: 'note'}, row.reason)],
      h('p', {class: 'note'}, codes[row.code])),
    fact('Resource', name(row.resource, {whole: true})),
    row.key && fact(row.source === 'sql' ? 'Table' : 'Key', name(row.key, {whole: true})),
    fact('Owner', row.owner_id ? owner({owner_id: row.owner_id}) : 'unknown'),
    row.principal && fact('Principal', name(row.principal)),
    fact('Token', row.token === undefined ? 'none' : token(row.token, row.sequence)),
    row.granted_token > 0 && fact('Newest token', String(row.granted_token)),
    row.last_token > 0 && fact('Last write', token(row.last_token, row.last_sequence || undefined)),
    row.late_ms !== undefined && fact('Late', duration(row.late_ms)),
    fact('Writes', count(row.count)),
    fact('First, last', timeAt(row.first_at), ' – ', timeAt(row.last_at)),
    fact('Source', row.source, row.address && [' from ', name(row.address)]),
  ];
}

const lanes = [46, 104];
const height = 152;

export function drawSequence({events, silentMS}, {writer, next}, width) {
  const step = Math.min(120, (width - 60) / Math.max(1, events.length - 1));
  const x = (at) => Math.round(30 + at * step);
  const at = (id) => events.findIndex((event) => event.id === id);
  const end = x(events.length - 1);
  const [granted, ended, taken, refused] = ['granted', 'ended', 'taken', 'refused'].map(at);
  const from = at('renewed') >= 0 ? at('renewed') : granted;
  const line = (lane, a, b, name) => s('path', {class: name, d: `M${a} ${lanes[lane]}H${b}`});
  const isCrowded = step < 64; // then only the main steps have labels
  const label = (event, place) => !(isCrowded && ['renewed', 'wrote'].includes(event.id)) && s('text', {x: x(place), y: lanes[event.lane] + 20, 'text-anchor': 'middle',
    class: event.id === 'refused' ? 'bad' : null}, event.label);
  return s('svg', {class: 'sequence', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'},
    s('text', {class: 'lane-name', x: 8, y: 16}, isolated(writer, 40)),
    granted >= 0 && line(0, x(granted), ended >= 0 ? x(ended) : end, 'held'),
    line(0, ended >= 0 ? x(ended) : x(Math.max(0, granted)), end, ended >= 0 || granted < 0 ? 'lost' : 'held'),
    silentMS !== null && [s('path', {class: 'silent', d: `M${x(from)} ${lanes[0] - 9}H${x(refused)}`}),
      s('text', {x: (x(from) + x(refused)) / 2, y: lanes[0] - 14, 'text-anchor': 'middle'},
        `no renewal for ${duration(silentMS)}`)],
    taken >= 0 && line(1, x(taken), end, 'held next'),
    taken >= 0 && [s('path', {class: 'handover', d: `M${x(taken)} ${lanes[0]}V${lanes[1]}`}),
      s('text', {class: 'lane-name', x: Math.min(x(taken) + 8, width - 220), y: lanes[1] - 14}, isolated(next, 40))],
    events.map((event, place) => [mark(event, x(place)), label(event, place)]),
    events.slice(1).map((event, place) => gap(events[place], event, (x(place) + x(place + 1)) / 2)));
}

function mark(event, x) {
  const y = lanes[event.lane];
  if (event.id === 'refused' || event.id === 'again') {
    return s('path', {class: 'refused', d: `M${x - 5} ${y - 5}l10 10M${x + 5} ${y - 5}l-10 10`});
  }
  return s('circle', {class: ['step', event.lane === 1 && 'next'], cx: x, cy: y, r: event.id === 'wrote' ? 3.5 : 5});
}

function gap(before, after, x) {
  if (before.at === null || after.at === null) return null;
  return s('text', {class: 'gap', x, y: height - 6, 'text-anchor': 'middle'}, '+' + duration(Math.max(0, after.at - before.at)));
}
