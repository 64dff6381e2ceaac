// Policies: how strict the fence is for a name and all below it. They are set by the API and the command line; here they are told in words.

import {fill, h} from '../dom.js';
import {duration} from '../format.js';
import {badge, emptyMessage, heading, name, panel} from '../parts.js';
import {createTable} from '../table.js';

export const title = 'Policies';

const rules = {
  strict: 'A write must be newer than the last one: a token without a sequence admits one write, a numbered one each number once.',
  same_token: 'The holder may write any number of times with its token; a repeated or delayed write of its own is not told apart.',
};

const authorities = {
  builtin: 'Tokens are granted here: one that was never granted, or is not the newest any more, is shut out.',
  external: 'Tokens come from another lock service: only that they never fall is checked, and locks of these names can’t be acquired here.',
};

// inWords tells what a policy means.
export function inWords(policy) {
  return [
    rules[policy.rule] ?? policy.rule,
    authorities[policy.authority] ?? policy.authority,
    policy.require_lease_id && 'A write must bring the lease_id of its lease.',
    policy.max_hold_ms && `A lease ends ${duration(policy.max_hold_ms)} after its grant, however often it is renewed, and its fence closes.`,
    policy.require_live_lease && 'A write whose lease has expired is rejected, even where nobody has replaced its holder.',
  ].filter(Boolean);
}

// policyBadges name what departs from the default.
export function policyBadges(policy) {
  return [
    badge(policy.rule, policy.rule === 'strict' ? '' : 'warn'),
    badge(policy.authority, policy.authority === 'builtin' ? '' : 'info'),
    policy.require_lease_id && badge('lease_id required', 'info'),
    policy.require_live_lease && badge('live lease required', 'info'),
    policy.max_hold_ms && badge('held at most ' + duration(policy.max_hold_ms), 'info'),
  ];
}

const columns = [
  {id: 'prefix', label: 'Holds for', class: 'grow', cell: (policy) => (policy.prefix === ''
    ? h('strong', null, 'every name') : h('span', null, name(policy.prefix), h('span', {class: 'note'}, ' and all below it')))},
  {id: 'policy', label: 'Policy', cell: (policy) => h('span', {class: 'badges'}, policyBadges(policy))},
  {id: 'meaning', label: 'What it means', class: 'grow', cell: (policy) => h('span', {class: 'stack'}, inWords(policy).map((text) => h('span', null, text)))},
];

export function mount(container, params, app) {
  const table = createTable({
    caption: 'Policies', columns, key: (policy) => policy.prefix,
    changed: (before, now) => JSON.stringify(before) !== JSON.stringify(now),
    empty: () => emptyMessage('No policy was set: the default holds for every name.',
      h('p', null, 'An administrator sets one on a name, and it holds for all below it; of several the longest counts:'),
      h('pre', null, 'curl -X PUT -H "Content-Type: application/json" -d \'{"rule":"same_token"}\' ' + location.origin + '/v1/policies/imports')),
  });
  function load() {
    app.run(async () => table.update((await app.get('/v1/policies')).policies, {note: 'Where several hold for a name, the longest counts'}),
      (error) => table.setError(error, load));
  }
  const byDefault = {rule: 'strict', authority: 'builtin'};
  fill(container,
    heading('Policies', {intro: 'How strict the fence is for a name and all below it.'}),
    h('section', {class: 'panel', 'aria-label': 'Policies'}, table.element),
    panel('Where no policy was set', {}, h('div', {class: 'panel-body stack'}, h('p', {class: 'badges'}, policyBadges(byDefault)),
      inWords(byDefault).map((text) => h('p', null, text)))));
  app.stream({path: '/v1/overview/stream', query: {}, connected: load, on: {}});
  app.every(10_000, load);
}
