// What stands at the top of a lock's page: how it stands now, and its fence. Also what all sections of that page have in common.

import {fill, h, setText} from '../dom.js';
import {count, duration, token} from '../format.js';
import {badge, emptyMessage, errorMessage, loading, name, panel, timeAgo, timeAt} from '../parts.js';
import {link} from '../router.js';
import {timeLeft} from '../left.js';
import {inWords, policyBadges} from './policies.js';
import {stateBadge, termBadges} from './locks.js';

const shownHolders = 20;

// part is a section that shows the answers of one address. An error takes the place of what it shows, unless the gateway is away: the banner says
// so, and what is seen is as it was then.
export function part(from, heading, {note, actions, table}, body, show) {
  const noteNode = h('span', {class: 'note'}, note);
  const element = panel(heading, {actions: [noteNode, actions]}, body);
  let empty = true;
  return {
    from, element,
    show(answer) {
      empty = false;
      show(answer, (text) => setText(noteNode, text));
    },
    fail(error, retry) {
      if (!empty && (error.status === 0 || error.status >= 500)) return;
      if (table) table.setError(error, retry);
      else fill(body, errorMessage(error, retry));
    },
  };
}

export function nowPart(lock, onState) {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('now', 'Now', {}, body, (state) => {
    onState(state);
    if (state === null) {
      fill(body, emptyMessage('This lock was never acquired.', h('p', null, 'As soon as it is, that is seen here.')));
      return;
    }
    fill(body, h('dl', {class: 'facts'},
      h('dt', null, 'State'), h('dd', null, stateBadge(state.state), ' ', h('span', {class: 'note'}, stateText(state))),
      state.holders.length !== 1 && [h('dt', null, 'Newest token'), h('dd', null, String(state.fencing_token))],
      state.holders.slice(0, shownHolders).map(holderFacts),
      state.holders.length > shownHolders && [h('dt', null, 'And'), h('dd', null, count(state.holders.length - shownHolders) + ' more')]));
  });
}

function stateText(state) {
  switch (state.state) {
    case 'held': return state.holders[0]?.mode === 'shared' ? 'read by ' + count(state.holders.length) : '';
    case 'expired': return 'its holder is late, and nobody has replaced it: it may still write, unless a policy asks for a live lease';
    default: return 'nobody may write';
  }
}

function holderFacts(holder) {
  return [
    h('dt', null, 'Holder'), h('dd', null, name(holder.owner_id, {href: link('locks', null, {owner_id: holder.owner_id})}), ' ', termBadges(holder)),
    h('dt', null, 'Token'), h('dd', null, String(holder.fencing_token)),
    h('dt', null, 'Granted'), h('dd', null, timeAt(holder.granted_at), ' · ', timeAgo(holder.granted_at)),
    h('dt', null, 'Time left'), h('dd', null, timeLeft(holder.expires_at, holder.ttl_ms), h('span', {class: 'note'}, ' of ' + duration(holder.ttl_ms))),
    holder.hold_until && [h('dt', null, 'May be held'), h('dd', null, timeLeft(holder.hold_until), h('span', {class: 'note'}, ' more, however often it is renewed'))],
    holder.metadata && [h('dt', null, 'Metadata'), h('dd', null, h('code', null, h('bdi', null, JSON.stringify(holder.metadata))))],
  ];
}

export function fencePart() {
  const body = h('div', {class: 'panel-body'}, loading());
  return part('fence', 'Fence', {note: 'which writes pass'}, body, (fence) => {
    if (fence === null) {
      fill(body, emptyMessage('There is no fence yet.', h('p', null, 'It is made by the first grant.')));
      return;
    }
    const external = fence.policy.authority === 'external';
    fill(body, h('dl', {class: 'facts'},
      h('dt', null, 'Granted token'), h('dd', null, external ? '–' : String(fence.granted_token)),
      h('dt', null, 'Gate'), h('dd', null, external ? badge('external tokens', 'info') : fence.open ? badge('open', 'good') : badge('closed', ''),
        h('span', {class: 'note'}, external ? '' : fence.open ? ` token ${fence.granted_token} alone may write` : ' no token may write until the next grant')),
      h('dt', null, 'Last write'), h('dd', null, fence.last_token > 0 ? token(fence.last_token, fence.last_sequence || undefined) : 'none yet'),
      h('dt', null, 'Policy'), h('dd', null, h('span', {class: 'badges'}, policyBadges(fence.policy)),
        h('span', {class: 'note'}, fence.policy.prefix === '' ? ' for every name' : [' of ', name(fence.policy.prefix)])),
      h('dt', null, 'In words'), h('dd', {class: 'stack'}, inWords(fence.policy).map((text) => h('span', {class: 'note'}, text)))));
  });
}
