// Problems, derived from the overview's document. Pure, except createProblems.
//
//   problems({database, gateways, nodes, inventory, alerts}) → [{text, tone, runbook}], tone 'bad' or 'warn'; runbook is the
//                              address of a page about an alert of Prometheus
//   createProblems(announce) → {element, update(document)}: a list that is announced when it changes, and empty if
//                              there is no problem

import {fill, h} from '../../dom.js';
import {plural} from '../../format.js';
import {badge} from '../../parts.js';

// longWait is a wait worth a look.
export const longWait = 60_000;

export function problems({database, gateways = [], nodes = [], inventory, alerts}) {
  const found = [];
  const add = (tone, text, runbook) => found.push(runbook ? {tone, text, runbook} : {tone, text});
  if (database.state === 'unavailable') add('bad',
    'The database is unavailable: no lock is granted and no write accepted.');
  if (database.state === 'read_only') add('bad',
    'The database is read only: no lock is granted and no write accepted.');
  if (database.state === 'ok' && database.synchronous_expected && database.synchronous_standbys === 0) {
    add('bad', 'Commits wait for a synchronous standby, and there is none.');
  }
  const silent = gateways.filter((gateway) => gateway.state === 'silent').map((gateway) => gateway.name);
  if (silent.length > 0 && database.state !== 'unavailable') add('bad',
    `${silent.length} of ${plural(gateways.length, 'gateway')} ${silent.length === 1 ? 'is' : 'are'} silent: ` +
      `${silent.join(', ')}`);
  const away = nodes.filter((node) => node.state !== 'ok').map((node) => node.address);
  if (away.length > 0) add('bad', `${away.length} of ${plural(nodes.length, 'node')} ` +
    `${away.length === 1 ? 'takes' : 'take'} no writes and grants no locks: ${away.join(', ')}`);
  const notNotified = gateways.filter((gateway) => gateway.state === 'serving' && !gateway.listening).length;
  if (notNotified > 0 && database.state !== 'unavailable') add('warn',
    plural(notNotified, 'gateway does', 'gateways do') +
      ' not receive the database’s notifications: waiters there are served late.');
  if (database.connections_max > 0 && database.connections >= database.connections_max * 0.9) {
    add('warn', `The database has ${database.connections} of ${database.connections_max} connections in use.`);
  }
  if (inventory?.tables_with_problems > 0) add('bad',
    `There is a problem with ${plural(inventory.tables_with_problems, 'protected table')}: see the page “Tables”, ` +
      'and “fencegate check”.');
  if (inventory && inventory.oldest_wait_ms >= longWait) add('warn',
    `The longest wait for a lock exceeds ${plural(Math.floor(inventory.oldest_wait_ms / 60_000), 'minute')}.`);
  for (const {name, severity, summary, runbook_url: runbook} of alerts?.firing ?? []) {
    add(severity === 'critical' ? 'bad' : 'warn', `${name} fires: ${summary}`, /^https?:/.test(runbook) && runbook);
  }
  if (alerts?.failed) add('warn', `Alerts are unknown: Prometheus can’t be read (${alerts.failed}).`);
  return found;
}

export function createProblems(announce) {
  const element = h('ul', {class: 'problems', 'aria-label': 'Problems'});
  let shown = '';
  return {
    element,
    update(document) {
      const found = problems(document);
      const text = JSON.stringify(found);
      if (text === shown) return;
      if (shown !== '') announce(found.length === 0 ? 'All problems are solved.'
        : found.map((problem) => problem.text).join(' '));
      shown = text;
      fill(element, found.map((problem) => h('li', {data: {tone: problem.tone}},
        badge(problem.tone === 'bad' ? 'error' : 'warning', problem.tone), h('span', null, problem.text,
          problem.runbook && [' ', h('a', {href: problem.runbook}, 'Runbook')]))));
    },
  };
}
