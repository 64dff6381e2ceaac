// Building elements. Everything from the API is shown in text nodes: no code of the dashboard parses HTML.
//
//   h(tag, props, ...children)   an HTML element      h('td', {class: 'number'}, 34)
//   s(tag, props, ...children)   an SVG element       s('path', {d: 'M0 0'})
//   fill(node, ...children)      replaces the children
//   isPhone()                    whether tables are cards (parts.css), now
//   setText(node, text)          changes the text only if it differs, to avoid needless announcements and painting
//
// Children are nodes, texts, numbers, or arrays of them; null, undefined and false are left out.
// Props are attributes, except: class (a text, or an array whose falsy members are left out), on ({event: listener}),
// style ({property: value}, by the CSSOM: the Content-Security-Policy forbids style attributes), data (the dataset),
// and value and disabled (properties). true sets an attribute without a value; false, null and
// undefined set none. A link may lead only to this gateway: h throws for any other href, so no text of a client can
// become one.

const svgNamespace = 'http://www.w3.org/2000/svg';
const properties = new Set(['value', 'disabled']);

export function h(tag, props, ...children) {
  return furnish(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return furnish(document.createElementNS(svgNamespace, tag), props, children);
}

export function fill(node, ...children) {
  node.replaceChildren(...flatten(children));
  return node;
}

export const isPhone = () => matchMedia('(max-width: 720px)').matches;

export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
  return node;
}

export function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? '' : String(value));
  }
  return node;
}

function furnish(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) setProp(node, name, value);
  const nodes = flatten(children);
  if (nodes.length > 0) node.append(...nodes);
  return node;
}

function setProp(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  switch (name) {
    case 'class':
      node.setAttribute('class', Array.isArray(value) ? value.filter(Boolean).join(' ') : value);
      return;
    case 'on':
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
      return;
    case 'style':
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
      return;
    case 'data':
      Object.assign(node.dataset, value);
      return;
    case 'href':
      if (new URL(value, document.baseURI).origin !== location.origin) {
        throw new Error('a link that leads elsewhere: ' + value);
      }
  }
  if (properties.has(name)) node[name] = value;
  else node.setAttribute(name, value === true ? '' : String(value));
}

function flatten(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}
