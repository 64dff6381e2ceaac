// The HTTP API: every route of openapi.yaml, with its parameters, bodies and answers. Routes and schemas are built when
// they are opened. The address of the page may name a route by its operationId.
//
// Reading an OpenAPI document. Pure.
//
//   operationsOf(document) → [{id, method, path, tag, summary, description, parameters, request, responses}], by path
//     parameters as fields; responses: [{status, response}]
//   fieldsOf(document, schema) → [{name, in, type, required, description}]: the properties of an object, or of a list's
//   namedIn(document, schema) → the names of the schemas that its fields refer to
//   typeOf(schema) → a text: 'array of Lock', 'integer, 1 to 1000, default 100', 'free | held'
//   resolve(document, schema) → what a $ref leads to
//   proseOf(text) → paragraphs, each of pieces {text}, {code} and {strong}

import {get} from '../api.js';
import {fill, h} from '../dom.js';
import {createFilters} from '../filters.js';
import {plural} from '../format.js';
import {emptyMessage, errorMessage, heading, loading, panel} from '../parts.js';
import {link} from '../router.js';
import {createTable} from '../table.js';

export const title = 'API';

export function mount(container, {name: opened, query}, app) {
  const body = h('div', {class: 'page'}, loading());
  fill(container, heading('API', {intro: ['The routes of this gateway, as ',
    h('a', {href: 'openapi.yaml'}, 'openapi.yaml'), ' describes them for tools.']}), body);
  app.run(async () => show(await get('/ui/openapi.json')), (error) => fill(body, errorMessage(error)));

  function show(document) {
    const operations = operationsOf(document);
    const routes = operations.map((operation) => ({...operation, element: route(document, operation)}));
    const tags = document.tags.map((tag) => ({routes: routes.filter((each) => each.tag === tag.name),
      element: panel(tag.name, {note: inline(tag.description)}, h('div', {class: 'panel-body'},
        routes.filter((each) => each.tag === tag.name).map((each) => each.element)))}));
    const none = h('section', {class: 'panel', 'aria-label': 'Routes'}, emptyMessage('No route matches.'));
    const filters = createFilters({label: 'Filter routes', query, fields: [{name: 'contains', label: 'Route contains'}],
      onChange(values) {
        app.setQuery(values);
        filter(values.contains ?? '');
      }});

    function filter(text) {
      const wanted = text.toLowerCase();
      for (const each of routes) {
        each.element.hidden = ![each.method, each.path, each.summary].join(' ').toLowerCase().includes(wanted);
      }
      for (const tag of tags) tag.element.hidden = tag.routes.every((each) => each.element.hidden);
      none.hidden = tags.some((tag) => !tag.element.hidden);
      app.announce(plural(routes.filter((each) => !each.element.hidden).length, 'route'));
    }

    fill(body, filters.element, h('section', {class: 'panel panel-body', 'aria-label': 'Introduction'},
      details('What all routes have in common', () => prose(document.info.description)),
      details('The body of errors', () => described(document, 'Problem', {$ref: '#/components/schemas/Problem'}))),
    tags.map((tag) => tag.element), none);
    filter(filters.get().contains ?? '');
    const target = routes.find((each) => each.id === opened);
    if (!target) return;
    target.element.open = true;
    target.element.scrollIntoView();
  }
}

// details is closed, and builds its content when it is opened first.
function details(summary, content) {
  const inner = h('div', {class: 'stack'});
  return h('details', {class: 'described', on: {toggle: () => inner.childElementCount > 0 || fill(inner, content())}},
    h('summary', null, summary), inner);
}

function route(document, operation) {
  return details([h('code', {class: 'route'}, h('strong', null, operation.method), ' ', operation.path), ' ',
    h('span', {class: 'note'}, operation.summary)], () => [
    prose(operation.description ?? operation.summary),
    h('p', {class: 'note'}, h('a', {href: link('api', operation.id)}, 'Link to this route')),
    operation.parameters.length > 0 && fields('Parameters', operation.parameters),
    operation.request && bodies(document, 'Request body', operation.request),
    operation.responses.map(({status, response}) => [
      h('h3', null, status, ' ', h('span', {class: 'note'}, inline(response.description ?? ''))),
      response.content && status < '400' && bodies(document, `Answer ${status}`, response)]),
  ]);
}

function bodies(document, caption, {content}) {
  return Object.entries(content).map(([type, {schema, example}]) => h('div', {class: 'stack'},
    h('p', null, caption, ': ', h('code', null, type), schema && [' ', h('code', null, typeOf(schema))]),
    schema && described(document, caption, schema),
    example !== undefined && h('pre', {class: 'value', tabindex: '0', role: 'group', 'aria-label': 'Example'},
      typeof example === 'string' ? example : JSON.stringify(example, null, 2))));
}

// described shows the fields of a schema, and of each schema that they name when it is opened.
function described(document, caption, schema) {
  const rows = fieldsOf(document, schema);
  return [rows.length > 0 && fields(caption, rows), namedIn(document, schema).map((name) =>
    details(h('code', null, name), () => {
      const of = resolve(document, {$ref: '#/components/schemas/' + name});
      return [of.description && prose(of.description), h('p', {class: 'note'}, typeOf(of)),
        described(document, name, of)];
    }))];
}

function fields(caption, rows) {
  const table = createTable({caption, key: (row) => row.name + row.in, pageSize: () => rows.length, columns: [
    {id: 'name', label: 'Name', class: 'whole', cell: (row) => [h('code', null, row.name),
      row.required && h('span', {class: 'note'}, ' required')]},
    ...(rows.some((row) => row.in) ? [{id: 'in', label: 'In', class: 'tight', cell: (row) => row.in}] : []),
    {id: 'type', label: 'Type', class: 'grow', cell: (row) => h('code', null, row.type)},
    {id: 'description', label: 'Meaning', class: 'grow', cell: (row) => h('span', null, inline(row.description))},
  ], empty: () => emptyMessage('None.')});
  table.update(rows);
  return table.element;
}

function prose(text) {
  return proseOf(text).map((pieces) => h('p', null, pieces.map(node)));
}

function inline(text) {
  return (proseOf(text)[0] ?? []).map(node);
}

function node({code, strong, text}) {
  if (code !== undefined) return h('code', null, code);
  return strong === undefined ? text : h('strong', null, strong);
}

const schemas = '#/components/schemas/';

export function resolve(document, node) {
  let found = node;
  while (found?.$ref) found = found.$ref.slice(2).split('/').reduce((at, key) => at?.[key], document);
  return found ?? {};
}

export function operationsOf(document) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).filter(([, operation]) => operation.operationId).map(([method, operation]) => ({
      id: operation.operationId, method: method.toUpperCase(), path, tag: operation.tags[0],
      summary: operation.summary ?? '', description: operation.description,
      parameters: [...(item.parameters ?? []), ...(operation.parameters ?? [])].map((each) => resolve(document, each))
        .map((each) => ({name: each.name, in: each.in, required: each.required === true,
          type: typeOf(each.schema ?? {}), description: each.description ?? ''})),
      request: operation.requestBody && resolve(document, operation.requestBody),
      responses: Object.entries(operation.responses)
        .map(([status, response]) => ({status, response: resolve(document, response)})),
    })));
}

// properties are those of a schema, its parts (allOf) or its alternatives, by name.
function properties(document, schema, seen = new Set()) {
  const of = resolve(document, schema);
  if (seen.has(of)) return {all: {}, required: []};
  seen.add(of);
  const parts = [...(of.allOf ?? []), ...(of.oneOf ?? of.anyOf ?? []), ...(of.items ? [of.items] : [])]
    .map((part) => properties(document, part, seen));
  return {all: Object.assign({}, ...parts.map((part) => part.all), of.properties),
    required: [...(of.required ?? []), ...parts.flatMap((part) => part.required)]};
}

export function fieldsOf(document, schema) {
  const {all, required} = properties(document, schema);
  return Object.entries(all).map(([name, field]) => ({name, required: required.includes(name), type: typeOf(field),
    description: field.description ?? resolve(document, field).description ?? ''}));
}

export function namedIn(document, schema) {
  const names = Object.values(properties(document, schema).all).flatMap(refsOf);
  return [...new Set(names)].filter((name) => fieldsOf(document, {$ref: schemas + name}).length > 0);
}

function refsOf(schema) {
  if (schema.$ref) return schema.$ref.startsWith(schemas) ? [schema.$ref.slice(schemas.length)] : [];
  return [...(schema.allOf ?? []), ...(schema.oneOf ?? []), ...(schema.anyOf ?? []),
    ...(schema.items ? [schema.items] : []), ...(typeof schema.additionalProperties === 'object' ? [schema.additionalProperties] : [])].flatMap(refsOf);
}

export function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split('/').at(-1);
  if (schema.allOf) return schema.allOf.map(typeOf).find((text) => text !== 'any') ?? 'any';
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (alternatives) return alternatives.map(typeOf).join(' | ');
  if (schema.enum) return schema.enum.join(' | ') + usual(schema);
  if (schema.type === 'array') return 'array of ' + typeOf(schema.items ?? {});
  return [schema.type ?? 'any', bounds(schema.minimum, schema.maximum),
    bounds(schema.minLength, schema.maxLength, ' characters')].filter(Boolean).join(', ') + usual(schema);
}

const usual = (schema) => (schema.default === undefined ? '' : `, default ${schema.default}`);

function bounds(least, most, unit = '') {
  if (most === undefined) return least === undefined ? '' : `at least ${least}${unit}`;
  return (least === undefined ? 'at most ' : `${least} to `) + most + unit;
}

export function proseOf(text) {
  return text.split(/\n\s*\n/).map((paragraph) => paragraph.replace(/\s+/g, ' ').trim()).filter(Boolean)
    .map((paragraph) => paragraph.split(/(`[^`]+`|\*\*[^*]+\*\*)/).filter(Boolean).map((piece) => {
      if (piece.startsWith('`')) return {code: piece.slice(1, -1)};
      return piece.startsWith('**') ? {strong: piece.slice(2, -2)} : {text: piece};
    }));
}
