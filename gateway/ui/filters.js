// A row of filters that are part of the page's address, so that the view can be linked.
//
//   const filters = createFilters({
//     label: 'Filter rejections',
//     fields: [{name: 'owner_id', label: 'Owner', placeholder: 'any', list: ['w1']},    // a text; list: suggestions
//              {name: 'code', label: 'Code', options: [['', 'any'], ['token_stale', 'token_stale']]}],    // a choice
//     query,                  // the current values, by name
//     onChange(query) {…},    // changed by the user (texts: a third of a second after the last key, or at Enter)
//   });
//   filters.element, folded on a phone · filters.get() → {name: value} without empty ones
//   filters.set(query) · filters.suggest(name, texts)
//   pick(query, names) → the values of a query with these names, without empty ones

import {fill, h, isPhone} from './dom.js';

export function pick(query, names) {
  return Object.fromEntries(names.filter((name) => query[name]).map((name) => [name, query[name]]));
}

export function createFilters({label, fields, query, onChange}) {
  let timer = 0;
  const inputs = new Map(fields.map((field) => [field.name, inputOf(field)]));
  const clear = h('button', {type: 'button', class: 'quiet', on: {click: () => {
    set({});
    changed();
    inputs.values().next().value.focus();
  }}}, 'Clear');
  const element = h('form', {class: 'filters', role: 'search', 'aria-label': label, on: {submit(event) {
    event.preventDefault();
    changed();
  }}}, fields.map((field) => h('label', {class: 'field'}, h('span', null, field.label), inputs.get(field.name),
    field.suggestions)), clear);

  function inputOf(field) {
    if (field.options) {
      return h('select', {name: field.name, on: {change: changed}},
        field.options.map(([value, text]) => h('option', {value}, text)));
    }
    const list = `list-${field.name}`;
    field.suggestions = h('datalist', {id: list}, (field.list ?? []).map((value) => h('option', {value})));
    return h('input', {type: 'search', name: field.name, placeholder: field.placeholder ?? 'any', autocomplete: 'off',
      spellcheck: 'false', maxlength: 512,
      list, on: {input() {
        clearTimeout(timer);
        timer = setTimeout(changed, 350);
      }}});
  }

  function get() {
    return pick(Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()])), [...inputs.keys()]);
  }

  function set(values) {
    for (const [name, input] of inputs) if (input.value !== (values[name] ?? '')) input.value = values[name] ?? '';
    clear.hidden = Object.keys(get()).length === 0;
  }

  let last = '';
  function changed() {
    clearTimeout(timer);
    const values = get();
    clear.hidden = Object.keys(values).length === 0;
    const text = JSON.stringify(values);
    if (text === last) return;
    last = text;
    onChange(values);
  }

  set(query);
  last = JSON.stringify(get());
  return {
    element: isPhone() ? h('details', {open: Object.keys(get()).length > 0}, h('summary', null, 'Filter'), element) : element,
    get,
    set(values) {
      set(values);
      last = JSON.stringify(get());
    },
    suggest(name, texts) {
      const field = fields.find((each) => each.name === name);
      if (field?.suggestions) fill(field.suggestions, texts.map((value) => h('option', {value})));
    },
  };
}
