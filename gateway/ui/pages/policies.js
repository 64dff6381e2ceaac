// Policies: the strictness of the fence for a name and everything below it. The API and the command line set them; this
// page describes them.

import {limitNote} from '../account.js';
import {fill, h} from '../dom.js';
import {duration} from '../format.js';
import {badge, command, emptyMessage, heading, name, panel} from '../parts.js';
import {follow} from '../stream.js';
import {byContent, createTable} from '../table.js';

export const title = 'Policies';

const rules = {
  strict: 'A write must be newer than the last one. A token without a sequence admits one write, a numbered token ' +
    'each number once.',
  same_token: 'The holder may write any number of times with its token. Its own repeated or delayed writes are ' +
    'not detected.',
};

const providers = {
  postgres: 'Leases are kept in PostgreSQL.',
  redis: 'Leases are kept in Redis. Two may overlap if Redis loses one; the newer token then rejects the older.',
  redlock: 'Leases are kept in a majority of Redis servers. Two may overlap if servers lose one, or their clocks jump; ' +
    'the newer token then rejects the older.',
};

const authorities = {
  builtin: 'fencegate grants the tokens. A token that was never granted, or is no longer the newest, is rejected.',
  external: 'Another lock service issues the tokens. fencegate only checks that they never decrease; locks of these ' +
    'names can’t be acquired here.',
};

// inWords describes a policy.
export function inWords(policy) {
  return [
    rules[policy.rule] ?? policy.rule,
    authorities[policy.authority] ?? policy.authority,
    policy.require_lease_id && 'A write must carry the lease_id of its lease.',
    policy.require_principal_owner &&
      'The owner_id of an acquire must be the name of the principal, or begin with it and a slash.',
    policy.max_hold_ms &&
      `A lease ends ${duration(policy.max_hold_ms)} after its grant, however often it is renewed.`,
    providers[policy.leases],
    policy.require_principal_owner &&
      'An acquire needs an owner that is the name of its principal, or begins with that and a slash.',
    policy.require_live_lease && 'A write whose lease has expired is rejected, even if its holder was not replaced.',
  ].filter(Boolean);
}

// policyBadges name the differences from the default.
export function policyBadges(policy) {
  return [
    badge(policy.rule, policy.rule === 'strict' ? '' : 'info'),
    badge(policy.authority, policy.authority === 'builtin' ? '' : 'info'),
    policy.require_lease_id && badge('lease_id required', 'info'),
    policy.require_live_lease && badge('live lease required', 'info'),
    policy.require_principal_owner && badge('owner is the principal', 'info'),
    policy.leases && badge('leases in ' + policy.leases, 'info'),
    policy.max_hold_ms && badge('held at most ' + duration(policy.max_hold_ms), 'info'),
  ];
}

const columns = [
  {id: 'prefix', label: 'Applies to', class: 'grow', cell: (policy) => (policy.prefix === ''
    ? h('strong', null, 'every name') : h('span', null, name(policy.prefix),
      h('span', {class: 'note'}, ' and everything below it')))},
  {id: 'policy', label: 'Policy', cell: (policy) => h('span', {class: 'badges'}, policyBadges(policy))},
  {id: 'meaning', label: 'Meaning', class: 'grow',
    cell: (policy) => h('span', {class: 'stack'}, inWords(policy).map((text) => h('span', null, text)))},
];

export function mount(container, params, app) {
  let loadedAt = 0;
  const table = createTable({
    caption: 'Policies', columns, key: (policy) => policy.prefix,
    changed: byContent,
    empty: () => emptyMessage('There is no policy: the default applies to every name.',
      h('p', null,
        'An administrator sets a policy on a name. It applies to everything below it; the longest matching name wins:'),
      command(`fencegate policy set imports --rule same_token --url ${location.origin}`)),
  });
  function rarely() {
    if (performance.now() - loadedAt > 10_000) load();
  }
  function load() {
    loadedAt = performance.now();
    app.run(async () => table.update((await app.get('/v1/policies')).policies,
      {note: 'If several apply to a name, the longest wins'}),
      (error) => table.setError(error, load));
  }
  const byDefault = {rule: 'strict', authority: 'builtin'};
  fill(container,
    heading('Policies', {intro: ['How strict the fence is for a name and everything below it.', limitNote('admin')]}),
    h('section', {class: 'panel', 'aria-label': 'Policies'}, table.element),
    panel('Default', {}, h('div', {class: 'panel-body stack'}, h('p', {class: 'badges'}, policyBadges(byDefault)),
      inWords(byDefault).map((text) => h('p', null, text)))));
  load();
  follow(app, {refresh: rarely});
}
