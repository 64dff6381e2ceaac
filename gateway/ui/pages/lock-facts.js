// The top of a lock's page: its current state, and its fence. Also the common parts of all sections of that page.

import {fill, h, setText} from '../dom.js';
import {count, duration, token} from '../format.js';
import {badge, emptyMessage, errorMessage, fact, json, loading, name, owner, panel, timeAt} from '../parts.js';
import {link} from '../router.js';
import {timeAgo, timeLeft} from '../left.js';
import {inWords, policyBadges} from './policies.js';
import {stateBadge, termBadges} from './locks.js';

const shownHolders = 20;

// part is a section that shows the answers of one address. An error replaces its content, unless the gateway or the
// database can't be reached: then the content stays, and the banner says so once for all parts. A part with a scope needs
// that one besides observe.
export function part(from, heading, {note, actions, table, scope}, body, show) {
  const noteNode = h('span', {class: 'note'}, note);
  const element = panel(heading, {actions: [noteNode, actions]}, body);
  let empty = true;
  return {
    from, element, scope,
    refuse: () => fill(body, emptyMessage('Not shown.',
      h('p', null, 'This needs the scope ', h('code', null, scope), ' on this name.'))),
    show(answer) {
      empty = false;
      show(answer, (text) => setText(noteNode, text));
    },
    fail(error, retry) {
      const inBanner = error.status === 0 || error.status >= 500;
      if (!empty && inBanner) return;
      const shown = inBanner ? {message: 'Not loaded.'} : error;
      if (table) table.setError(shown, retry);
      else fill(body, errorMessage(shown, retry));
    },
  };
}

export function nowPart(lock, onState) {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('now', 'Now', {}, body, (state) => {
    onState(state);
    if (state === null) {
      fill(body, emptyMessage('This lock was never acquired.', h('p', null, 'This page updates when it is.')));
      return;
    }
    fill(body, h('dl', {class: 'facts'},
      fact('State', stateBadge(state.state), ' ', h('span', {class: 'note'}, stateText(state))),
      state.holders.length !== 1 && fact('Newest token', String(state.fencing_token)),
      state.holders.slice(0, shownHolders).map(holderFacts),
      state.holders.length > shownHolders && fact('And', count(state.holders.length - shownHolders) + ' more')));
  });
}

function stateText(state) {
  switch (state.state) {
    case 'held': return state.holders[0]?.mode === 'shared' ? 'shared by ' + count(state.holders.length) : '';
    case 'expired':
      return 'its holder is late and was not replaced: it may still write, unless a policy requires a live lease';
    default: return 'no token may write';
  }
}

function holderFacts(holder) {
  return [
    fact('Holder', owner(holder), ' ',
      termBadges(holder)),
    fact('Token', String(holder.fencing_token)),
    fact('Granted', timeAt(holder.granted_at), ' · ', timeAgo(holder.granted_at)),
    fact('Time left', timeLeft(holder.expires_at, holder.ttl_ms),
      h('span', {class: 'note'}, ' of ' + duration(holder.ttl_ms))),
    holder.hold_until && fact('Hold limit', timeLeft(holder.hold_until),
      h('span', {class: 'note'}, ' left, however often it is renewed')),
    holder.metadata && fact('Metadata', json(holder.metadata, {whole: true})),
  ];
}

function fenceState(fence, external) {
  if (external) return fact('State', badge('external tokens', 'info'));
  const note = fence.open ? `only token ${fence.granted_token} may write` : 'no token may write until the next grant';
  return fact('State', fence.open ? badge('open', 'good') : badge('closed', ''), ' ', h('span', {class: 'note'}, note));
}

export function fencePart() {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('fence', 'Fence', {note: 'which writes are admitted', scope: 'read'}, body, (fence) => {
    if (fence === null) {
      fill(body, emptyMessage('There is no fence yet.', h('p', null, 'The first grant creates it.')));
      return;
    }
    const external = fence.policy.authority === 'external';
    fill(body, h('dl', {class: 'facts'},
      fact('Granted token', external ? '–' : String(fence.granted_token)),
      fenceState(fence, external),
      fact('Last write', fence.last_token > 0 ? token(fence.last_token, fence.last_sequence || undefined) : 'none yet'),
      fact('Policy', h('span', {class: 'badges'}, policyBadges(fence.policy)),
        h('span', {class: 'note'}, fence.policy.prefix === '' ? ' for every name'
          : [' of ', name(fence.policy.prefix)])),
      fact('Meaning', h('span', {class: 'stack'}, inWords(fence.policy)
        .map((text) => h('span', {class: 'note'}, text))))));
  });
}
