// The HTTP API of the gateway that served this page.
//
//   address(path, query)                 the URL, as a text: address('/v1/locks', {prefix: 'a', limit: 100})
//   await get(path, query, {signal})     the answer's JSON
//   await send(method, path, body)       the same, with a JSON body: send('POST', '/v1/locks/a/break', {reason})
//   onUnauthenticated(fn)                calls fn when the gateway refuses the credential, or wants one
//   nameInPath(name)                     a name of a lock, resource or key for use in a path
//
// Query values that are "", null, undefined or false are left out. Every failure is an ApiError: `message` is the
// gateway's text (or that it can't be reached), `code` the API's code ("unreachable" if there was no answer), `status`
// 0 or the HTTP status, `retryable`, `problem` the whole answer. A request aborted by its signal throws an error named
// AbortError: isAborted(error).

import {noteServerTime} from './clock.js';

const base = new URL('../', import.meta.url);

let unauthenticated = () => {};

export function onUnauthenticated(work) {
  unauthenticated = work;
}

export class ApiError extends Error {
  constructor(message, {code = 'unreachable', status = 0, retryable = true, problem = null} = {}) {
    super(message);
    this.name = 'ApiError';
    Object.assign(this, {code, status, retryable, problem});
  }
}

export function isAborted(error) {
  return error?.name === 'AbortError';
}

export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ''), base);
  const pairs = query instanceof URLSearchParams ? query : Object.entries(query);
  for (const [name, value] of pairs) {
    if (value !== '' && value !== null && value !== undefined && value !== false) url.searchParams.append(name, value);
  }
  return url.href;
}

export function nameInPath(name) {
  return name.split('/').map(encodeURIComponent).join('/');
}

export async function get(path, query, {signal} = {}) {
  return request('GET', address(path, query), undefined, signal);
}

export async function send(method, path, body, {signal} = {}) {
  return request(method, address(path), body, signal);
}

// open sends a request and leaves the body to the caller. It throws an ApiError for every answer but 2xx.
export async function open(url, options) {
  let answer;
  try {
    answer = await fetch(url, {cache: 'no-store', credentials: 'same-origin', ...options});
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError('The gateway can’t be reached.');
  }
  const date = answer.headers.get('Date');
  if (date) noteServerTime(date);
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function request(method, url, body, signal) {
  const options = {method, signal, headers: {Accept: 'application/json'}};
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  const answer = await open(url, options);
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError('The gateway’s answer broke off.', {status: answer.status});
  }
}

async function problemOf(answer) {
  const problem = await answer.json().catch((error) => {
    if (isAborted(error)) throw error;
  });
  if (typeof problem?.code !== 'string') {
    // The answer of a proxy.
    return new ApiError(`The gateway answered ${answer.status} ${answer.statusText}.`.replace(' .', '.'),
      {code: 'unavailable', status: answer.status, retryable: answer.status >= 500});
  }
  if (problem.code === 'unauthenticated') unauthenticated();
  return new ApiError(problem.detail || problem.title || problem.code,
    {code: problem.code, status: answer.status, retryable: Boolean(problem.retryable), problem});
}
