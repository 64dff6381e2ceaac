// The dialog that shows the value of a record. The gateway gives it only to a caller with the scope read on the name.
//
//   const dialog = valueDialog(app, resource);     dialog.element · dialog.open(record), a row of the list of records

import {fill, h} from '../dom.js';
import {bytes as sizeOf, count} from '../format.js';
import {button, errorMessage, fact, loading, name} from '../parts.js';
import {nameInPath} from '../api.js';
import {firstBytes, shownValue} from '../value.js';

const bytesMax = 64 * 1024;

export function valueDialog(app, resource) {
  const title = h('h2', {id: 'value-title'});
  const body = h('div', {class: 'stack'});
  const element = h('dialog', {class: 'wide', 'aria-labelledby': 'value-title', on: {close: () => fill(body)}},
    h('div', {class: 'drawer-head'}, title, button('Close', () => element.close())), body);
  let shown = null;

  function load(record) {
    app.run(async () => {
      const answer = await app.open(`/v1/resources/${nameInPath(resource)}/records/${nameInPath(record.key)}`);
      const read = await firstBytes(answer.body, bytesMax);
      if (shown === record) fill(body, content(record, answer.headers, read));
    }, (error) => {
      if (shown === record) fill(body, errorMessage(error, () => load(record)));
    });
  }

  app.onEnd(() => element.close());
  return {
    element,
    open(record) {
      shown = record;
      fill(title, 'Value of ', name(record.key, {whole: true}));
      fill(body, loading());
      element.showModal();
      load(record);
    },
  };
}

function content(record, headers, read) {
  const value = shownValue(read);
  const size = Number(headers.get('Content-Length') ?? record.size);
  const cut = value.kind === 'binary' && read.bytes.length > 512 ? 'the first 512 bytes'
    : !read.whole && 'the first ' + sizeOf(bytesMax);
  return [
    h('dl', {class: 'facts'},
      fact('Size', sizeOf(size), size >= 1024 && h('span', {class: 'note'}, ` ${count(size)} bytes`)),
      fact('Content type', name(headers.get('Content-Type') ?? record.content_type)),
      fact('Token', headers.get('Fencing-Token'))),
    size === 0 ? h('p', {class: 'note'}, 'The value is empty.')
      : h('pre', {class: ['value', value.kind === 'binary' && 'hex'], tabindex: '0', role: 'group',
        'aria-label': value.kind === 'binary' ? 'The value as hexadecimal' : 'The value'}, value.text),
    cut && h('p', {class: 'note'}, `Only ${cut} are shown.`),
  ];
}
