// The small parts of pages. All functions return elements; texts from the API become text nodes.
//
//   heading(title, {intro, actions})     the h1 of a page
//   panel(title, {actions, note, class}, ...children)   a section with an h2
//   tile(label, {unit, hint, href}) → {element, set(value, {detail, tone})}   a figure; tone '', 'warn' or 'bad'
//   badge(text, tone)                    a small label; tone '', 'good', 'warn', 'bad', 'info', each with a mark:
//                                        never by colour alone
//   kindBadge(kind)                      the kind of a rejection: its shape, colour and name, as in the charts
//   rejectionButton(row, onOpen, {code})  the same, with the code unless it is false, as a button: onOpen(row.id, opener)
//   timeAt(instant)                      <time>; clock.js has those that change
//   name(text, {href, whole})            a name chosen by a client: isolated (RTL), broken at its separators, and cut in
//                                        its middle where it is long, unless it is whole; its title is complete
//   owner({owner_id, principal})         the owner, with a link to its page, and the principal whose request it was, if
//                                        that is another name
//   ownerText({owner_id, principal})     the same as text
//   json(value, {whole})                 a value chosen by a client, as JSON; cut as a name is
//   fact(label, ...values)               a term and its description, for a dl with the class "facts"
//   emptyMessage(title, ...children) · errorMessage(error, retry) · loading(text)   instead of content
//   button(label, onClick, props)
//   command(text)                        a command, with a button that copies it

import {h, s, setText} from './dom.js';
import {segments, short, when} from './format.js';
import {codes, glyph, kindLabel, kinds} from './kinds.js';
import {link} from './router.js';

let ids = 0;

export function heading(title, {intro, actions} = {}) {
  return h('div', {class: 'heading'}, h('div', null, h('h1', null, title), intro && h('p', {class: 'intro'}, intro)),
    actions && h('div', {class: 'actions'}, actions));
}

export function panel(title, {actions, note, class: more} = {}, ...children) {
  const id = 'panel-' + ++ids;
  return h('section', {class: ['panel', more], 'aria-labelledby': id},
    h('div', {class: 'panel-head'}, h('h2', {id}, title), note && h('span', {class: 'note'}, note),
      actions && h('div', {class: 'actions'}, actions)),
    ...children);
}

export function tile(label, {unit = '', hint = '', href = null} = {}) {
  const value = h('span', {class: 'tile-value'}, '–');
  const detail = h('span', {class: 'tile-detail'});
  const element = h(href === null ? 'div' : 'a', {class: 'tile', href, title: hint},
    h('span', {class: 'tile-label'}, label), h('span', {class: 'tile-figure'}, value,
      unit && h('span', {class: 'tile-unit'}, unit)), detail);
  return {
    element,
    set(text, {detail: more = '', tone = ''} = {}) {
      setText(value, text);
      setText(detail, more);
      element.dataset.tone = tone;
    },
  };
}

const toneMarks = {good: '✓', warn: '▲', bad: '✕', info: 'i'};

export function badge(text, tone = '') {
  return h('span', {class: 'badge', data: {tone}},
    toneMarks[tone] && h('span', {class: 'badge-mark', 'aria-hidden': 'true'}, toneMarks[tone]), text);
}

export function kindBadge(kind) {
  return h('span', {class: 'kind', title: kinds[kind]?.meaning}, kindMark(kind), kindLabel(kind));
}

export function kindMark(kind) {
  return s('svg', {class: ['kind-mark', 'kind-' + (kinds[kind] ? kind : 'other')], viewBox: '-6 -6 12 12',
    'aria-hidden': 'true'}, s('path', {d: glyph(kind, 0, 0, 4.6)}));
}

export function rejectionButton(row, onOpen, {code = true} = {}) {
  return button([kindBadge(row.kind), code && h('span', {class: 'note', title: codes[row.code]},
    [row.code, row.reason].filter(Boolean).join(' '))], (event) => onOpen(row.id, event.currentTarget),
  {class: 'open', 'aria-haspopup': 'dialog', data: {rejection: row.id}});
}

export function timeAt(instant, {milliseconds = true} = {}) {
  const at = new Date(instant);
  return h('time', {datetime: at.toISOString(), title: at.toISOString()}, when(at, Date.now(), {milliseconds}));
}

const nameMax = 48;

export function name(text, {href = null, whole = false} = {}) {
  const parts = segments(whole ? text : short(text, nameMax));
  return h(href === null ? 'span' : 'a', {class: 'name', href, title: text},
    h('bdi', null, parts.map((part, at) => [at > 0 && h('wbr'), part])));
}

export function owner({owner_id: id, principal}) {
  return [name(id, {href: link('owners', id)}),
    !namesPrincipal(id, principal) && h('span', {class: 'note'}, ' of ', name(principal))];
}

export function ownerText({owner_id: id, principal}) {
  return namesPrincipal(id, principal) ? id : `${id} of ${principal}`;
}

function namesPrincipal(id, principal) {
  return !principal || principal === id || id.startsWith(principal + '/');
}

const jsonMax = 120;

export function json(value, {whole = false} = {}) {
  const text = JSON.stringify(value);
  return h('code', {title: text}, h('bdi', null, whole ? text : short(text, jsonMax)));
}

export function fact(label, ...values) {
  return [h('dt', null, label), h('dd', null, values)];
}

export function emptyMessage(title, ...children) {
  return h('div', {class: 'message empty'}, h('p', {class: 'message-title'}, title), ...children);
}

export function errorMessage(error, retry = null) {
  return h('div', {class: 'message error', role: 'alert'},
    h('p', {class: 'message-title'}, h('span', {'aria-hidden': 'true'}, '✕ '), error.message),
    error.code && h('p', {class: 'note'}, 'Code: ', h('code', null, error.code)),
    retry && button('Try again', retry));
}

export function loading(text = 'Loading…') {
  return h('div', {class: 'message loading'}, text);
}

// command selects its text to copy it: the clipboard of scripts needs TLS, or this computer.
export function command(text) {
  const code = h('pre', null, text);
  const copy = button('Copy', () => {
    getSelection().selectAllChildren(code);
    setText(copy, document.execCommand('copy') ? 'Copied' : 'Press Ctrl+C');
  });
  return h('div', {class: 'command'}, code, copy);
}

export function button(label, onClick, props = {}) {
  return h('button', {type: 'button', ...props, on: {click: onClick}}, label);
}
