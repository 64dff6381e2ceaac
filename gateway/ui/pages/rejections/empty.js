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
  return emptyMessage('No write has been rejected so far.',
    h('p', null,
      'A write is rejected if a newer lease of its lock was granted before it arrived: its sender paused, was ' +
      'disconnected, or did not notice that its lease had ended. This page shows each rejected write: its owner, its ' +
      'token, the token that superseded it, and how late it was.'),
    h('p', null, 'To see one, run this:'),
    command(`fencegate demo zombie --gateway ${location.origin} --rounds 1`));
}
