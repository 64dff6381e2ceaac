// The drawer that explains one rejection: a sentence, the sequence of events as a drawing and as a list, and all facts.
//
//   const drawer = createDrawer(app, {onClose});
//   drawer.element · drawer.open(id, opener) · drawer.close()
//
// It is a modal dialog: the browser moves the focus in, keeps it there, and closes it at Escape. The focus then returns
// to the opener, or to the button that has replaced it ([data-rejection], see openButton of parts.js).

import {fill, h} from './dom.js';
import {count, duration, short, token} from './format.js';
import {kinds} from './kinds.js';
import {button, errorMessage, fact, kindBadge, loading, name, owner, timeAt} from './parts.js';
import {link} from './router.js';
import {codes} from './codes.js';
import {drawSequence} from './charts/sequence.js';
import {eventsOf} from './pages/rejections/events.js';
import {inWords} from './pages/rejections/words.js';

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
