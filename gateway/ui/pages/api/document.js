// Reading an OpenAPI document. Pure.
//
//   operationsOf(document) → [{id, method, path, tag, summary, description, parameters, request, responses}], by path
//     parameters as fields; responses: [{status, response}]
//   fieldsOf(document, schema) → [{name, in, type, required, description}]: the properties of an object, or of a list's
//   namedIn(document, schema) → the names of the schemas that its fields refer to
//   typeOf(schema) → a text: 'array of Lock', 'integer, 1 to 1000, default 100', 'free | held'
//   resolve(document, schema) → what a $ref leads to
//   proseOf(text) → paragraphs, each of pieces {text}, {code} and {strong}

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
