// What stands where there are no rejections: what the page will show, and how to see a zombie.
//
//   emptyStory({filtered, total, showAll}) → element

import {h} from '../../dom.js';
import {plural} from '../../format.js';
import {button, emptyMessage} from '../../parts.js';

export function emptyStory({filtered, total, showAll}) {
  if (total > 0) {
    return emptyMessage(filtered ? 'Nothing fits these filters in this time.' : 'No write was rejected in this time.',
      h('p', null, `${plural(total, 'write was', 'writes were')} rejected within all that is kept. `),
      button('Show everything', showAll));
  }
  const element = emptyMessage('No write has been rejected so far.',
    h('p', null, 'A write is shut out when a newer lease of its lock was granted before it came: its sender paused, was cut off, or never heard that its lease ' +
      'was over. Each will stand here as it comes: who sent it, with which token, which token shut it out, and how late it was.'),
    h('p', null, 'To see one now, run ', h('code', null, `fencegate demo zombie --gateway ${location.origin} --rounds 1`), ', or be the zombie yourself:'),
    h('pre', {tabindex: '0', 'aria-label': 'Commands that make a zombie'}, [
      `URL=${location.origin}`,
      '# A takes the lock for a second, and falls asleep.',
      `A=$(curl -s $URL/v1/locks/demo/acquire --json '{"owner_id":"A","ttl_ms":1000}' |`,
      `  grep -o '"fencing_token":[0-9]*' | cut -d: -f2)`,
      'sleep 2',
      '# B takes it over. From here on A is shut out.',
      `curl -s $URL/v1/locks/demo/acquire --json '{"owner_id":"B"}'`,
      '# A wakes up and writes: 412 token_stale, and a mark on this page.',
      `curl -s -X PUT $URL/v1/resources/demo/records/note -H "Fencing-Token: $A" -d 'from A'`,
    ].join('\n')));
  element.classList.add('wide');
  return element;
}
