import assert from 'node:assert/strict';
import {test} from 'node:test';

import {fieldsOf, namedIn, operationsOf, proseOf, typeOf} from '../pages/api/document.js';

const document = {
  paths: {'/v1/locks': {parameters: [{$ref: '#/components/parameters/limit'}], get: {operationId: 'listLocks',
    tags: ['leases'], summary: 'List locks', responses: {200: {$ref: '#/components/responses/Locks'}}}}},
  components: {
    parameters: {limit: {name: 'limit', in: 'query', schema: {type: 'integer', minimum: 1, maximum: 9, default: 3}}},
    responses: {Locks: {description: 'A page.'}},
    schemas: {
      Lock: {type: 'object', required: ['lock'], properties: {lock: {type: 'string', description: 'Its name.'},
        below: {type: 'array', items: {$ref: '#/components/schemas/Lock'}}}},
      Locks: {allOf: [{properties: {locks: {type: 'array', items: {$ref: '#/components/schemas/Lock'}}}}],
        properties: {next: {type: 'string'}}},
    },
  },
};

test('an operation has the parameters of its path, and what references lead to', () => {
  assert.deepEqual(operationsOf(document), [{id: 'listLocks', method: 'GET', path: '/v1/locks', tag: 'leases',
    summary: 'List locks', description: undefined, request: undefined,
    parameters: [{name: 'limit', in: 'query', required: false, type: 'integer, 1 to 9, default 3', description: ''}],
    responses: [{status: '200', response: {description: 'A page.'}}]}]);
});

test('the fields of a schema, its parts, and the schemas that they name, also in a circle', () => {
  assert.deepEqual(fieldsOf(document, {$ref: '#/components/schemas/Locks'}).map((field) => `${field.name}: ${field.type}`),
    ['locks: array of Lock', 'next: string']);
  assert.deepEqual(fieldsOf(document, {$ref: '#/components/schemas/Lock'})[0],
    {name: 'lock', required: true, type: 'string', description: 'Its name.'});
  assert.deepEqual(namedIn(document, {$ref: '#/components/schemas/Lock'}), ['Lock']);
  assert.equal(typeOf({enum: ['free', 'held'], default: 'free'}), 'free | held, default free');
});

test('prose has paragraphs, code and strong words', () => {
  assert.deepEqual(proseOf('**A** `b`\nc\n\nd'),
    [[{strong: 'A'}, {text: ' '}, {code: 'b'}, {text: ' c'}], [{text: 'd'}]]);
});
