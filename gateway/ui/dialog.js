// A dialog with a form whose answer replaces the form.
//
//   const dialog = formDialog(app, {
//     title, submit: 'Create', danger: false,
//     fields: (item) => nodes,                      // made anew each time that the dialog opens
//     send: async (item, values) => answer,         // values: of the fields, by name; throws an Error to show
//     done: (answer, item) => nodes,                // what is shown then
//   });
//   dialog.element · dialog.open(item)

import {fill, h} from './dom.js';
import {button, errorMessage} from './parts.js';

let ids = 0;

export function formDialog(app, {title, submit: label, danger, fields, send, done}) {
  const id = 'dialog-' + ++ids;
  const body = h('div', {class: 'stack'});
  const result = h('div', {class: 'stack', 'aria-live': 'polite'});
  const submit = h('button', {type: 'submit', class: danger && 'danger'}, label);
  const cancel = button('Cancel', () => element.close());
  const form = h('form', {on: {submit(event) {
    event.preventDefault();
    if (!submit.disabled) sendForm();
  }}}, body, result, h('div', {class: 'actions end'}, cancel, submit));
  const element = h('dialog', {'aria-labelledby': id, on: {close: empty}}, h('h2', {id}, title), form);
  let item = null;

  // empty leaves nothing in the page of what was typed or answered.
  function empty() {
    fill(body);
    fill(result);
  }

  function sendForm() {
    const values = Object.fromEntries(new FormData(form));
    submit.disabled = true;
    fill(result);
    app.run(async () => {
      const answer = await send(item, values);
      fill(body);
      fill(result, done(answer, item));
      submit.hidden = true;
      fill(cancel, 'Close');
      cancel.focus();
    }, (error) => {
      fill(result, errorMessage(error));
      submit.disabled = false;
    });
  }

  app.onEnd(() => element.close());
  return {
    element,
    open(about) {
      item = about;
      fill(body, fields(item));
      fill(result);
      submit.hidden = submit.disabled = false;
      fill(cancel, 'Cancel');
      element.showModal();
    },
  };
}
