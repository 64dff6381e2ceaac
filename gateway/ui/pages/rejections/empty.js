// Shown if there are no rejections: a description of the page, and how to make a zombie.
//
//   emptyState({filtered, total, showAll}) → element

import {h} from '../../dom.js';
import {plural} from '../../format.js';
import {button, command, emptyMessage} from '../../parts.js';

export function emptyState({filtered, total, showAll}) {
  if (total > 0) {
    return emptyMessage(filtered ? 'No rejection matches these filters in this time.'
      : 'No write was rejected in this time.',
      h('p', null, `${plural(total, 'write was', 'writes were')} rejected in the whole time that is kept. `),
      button('Show all', showAll));
  }
  const element = emptyMessage('No write has been rejected so far.',
    h('p', null,
      'A write is rejected if a newer lease of its lock was granted before it arrived: its sender paused, was ' +
      'disconnected, or did not notice that its lease had ended. This page shows each rejected write: its owner, its ' +
      'token, the token that superseded it, and how late it was.'),
    h('p', null, 'To see one, run ', 'this:'),
    command(`fencegate demo zombie --gateway ${location.origin} --rounds 1`),
    h('p', null, 'Or these commands:'),
    command([
      `URL=${location.origin}`,
      '# A acquires the lock for a second, and pauses.',
      `A=$(curl -s $URL/v1/locks/demo/acquire --json '{"owner_id":"A","ttl_ms":1000}' |`,
      `  grep -o '"fencing_token":[0-9]*' | cut -d: -f2)`,
      'sleep 2',
      '# B acquires it. From now on writes of A are rejected.',
      `curl -s $URL/v1/locks/demo/acquire --json '{"owner_id":"B"}'`,
      '# A resumes and writes: 412 token_stale, and a mark on this page.',
      `curl -s -X PUT $URL/v1/resources/demo/records/note -H "Fencing-Token: $A" -d 'from A'`,
    ].join('\n')));
  element.classList.add('wide');
  return element;
}
