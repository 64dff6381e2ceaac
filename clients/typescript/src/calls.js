// Calls of the HTTP API: a request to the gateways in turn, and its answer or error.
import { FencegateError, ForeignAnswer, isNotServed, local, ofProblem } from './errors.js';
import { Doubt } from './retry.js';
import { anySignal } from './validity.js';

/**
 * A request. waitMs is for how long the gateway may wait before it answers; limitMs limits the time of one gateway
 * beyond that, instead of the client's answer timeout. Where once is set, no other gateway is asked after an attempt that
 * may have been applied.
 *
 * @typedef {{
 *   method: string, path: string, headers?: Record<string, string>, body?: string | Uint8Array, waitMs?: number,
 *   limitMs?: number | undefined, signal?: AbortSignal | undefined, once?: boolean
 * }} Call
 */

/** @typedef {{status: number, headers: Headers, body: Uint8Array}} Answer */

/**
 * A credential, or what returns the current one.
 *
 * @typedef {string | (() => string | Promise<string>)} Token
 */

/** @param {unknown} value */
export function jsonText(value) {
  const text = JSON.stringify(value);
  if (text === undefined) throw local('invalid_request', 'it can\'t be written as JSON');
  return text;
}

/** @param {string} method @param {string} path @param {unknown} body @returns {Call} */
export function withJSON(method, path, body) {
  return { method, path, headers: { 'Content-Type': 'application/json' }, body: jsonText(body) };
}

/**
 * Returns what reads an answer as a JSON object that has these fields.
 *
 * @param {...string} fields @returns {(answer: Answer) => any}
 */
export function asObject(...fields) {
  return (answer) => {
    const value = JSON.parse(new TextDecoder().decode(answer.body));
    if (typeof value !== 'object' || value === null || !fields.every((name) => name in value)) {
      throw new Error('it lacks what every gateway sends');
    }
    return value;
  };
}

/** What Node.js says where there was no connection. Deno says it in its message, and browsers do not tell. */
const notConnected = [
  'ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT',
];

/** Sends calls to the gateways of one database. It stays with one that works. */
export class Caller {
  #gateways;
  #preferred = 0;
  #options;

  /**
   * @param {string[]} urls
   * @param {{
   *   token: Token | undefined, headers: Record<string, string>, answerTimeoutMs: number,
   *   answerBytesMax: number, fetch: typeof fetch
   * }} options
   */
  constructor(urls, options) {
    this.#gateways = urls.map((url) => {
      const { protocol, username, search, hash } = new URL(url);
      if (!/^https?:$/.test(protocol) || username || search || hash) {
        throw new TypeError('the gateway\'s URL must be like http://host:port, without user, query and fragment');
      }
      return url.replace(/\/+$/, '');
    });
    this.#options = options;
  }

  /**
   * Asks the gateways in turn, until one serves. Every call may arrive twice, unless it is once: acquires have a request_id
   * and writes a number, and renewals, releases and reads may be repeated by their nature.
   *
   * @template T @param {Call} call @param {(answer: Answer) => T} read @returns {Promise<T>}
   */
  async send(call, read) {
    const count = this.#gateways.length;
    const first = this.#preferred;
    const doubt = new Doubt();
    /** @type {FencegateError | undefined} */
    let failed;
    for (let turn = 0; ; turn++) {
      const index = (first + turn) % count;
      try {
        const result = await this.#attempt(call, /** @type {string} */ (this.#gateways[index]), read);
        this.#preferred = index;
        return result;
      } catch (error) {
        if (!(error instanceof FencegateError)) throw error;
        doubt.addTo(error);
        this.#preferred = isNotServed(error) ? (index + 1) % count : index;
        if (!isNotServed(error)) throw error;
        const unknown = error.outcomeUnknown;
        if (!failed || error.retryable) failed = error; // of several errors, one that a retry may cure counts
        failed.outcomeUnknown ||= unknown;
        if (turn === count - 1 || (call.once && unknown)) throw failed;
      }
    }
  }

  /**
   * @template T @param {Call} call @param {string} gateway @param {(answer: Answer) => T} read @returns {Promise<T>}
   */
  async #attempt(call, gateway, read) {
    const answer = await this.#exchange(call, gateway);
    if (answer.status < 200 || answer.status > 299) throw refusal(call, gateway, answer);
    try {
      return read(answer);
    } catch (error) {
      throw foreign(call, gateway, answer, String(error));
    }
  }

  /** @param {Call} call @param {string} gateway @returns {Promise<Answer>} */
  async #exchange(call, gateway) {
    const { token, headers, answerTimeoutMs, answerBytesMax, fetch } = this.#options;
    const credential = typeof token === 'function' ? await token() : token;
    const late = new AbortController();
    const limitMs = (call.limitMs ?? answerTimeoutMs) + (call.waitMs ?? 0);
    const timer = setTimeout(() => late.abort(new Error('it is late')), limitMs);
    const either = anySignal([late.signal, call.signal]);
    try {
      const response = await fetch(gateway + call.path, {
        method: call.method,
        headers: { ...headers, ...call.headers, ...(credential && { Authorization: `Bearer ${credential}` }) },
        body: /** @type {BodyInit | null} */ (call.body ?? null),
        redirect: 'manual', // a redirected PUT could arrive as a GET, and the credential elsewhere
        cache: 'no-store',
        signal: either.signal,
      });
      const body = await readBody(response, answerBytesMax);
      const answer = { status: response.status, headers: response.headers, body: body ?? new Uint8Array() };
      if (!body) throw foreign(call, gateway, answer, `it is over the client's limit of ${answerBytesMax} bytes`);
      return answer;
    } catch (error) {
      if (error instanceof ForeignAnswer) throw error;
      if (call.signal?.aborted) throw call.signal.reason;
      throw noAnswer(call, gateway, error);
    } finally {
      clearTimeout(timer);
      either.done();
    }
  }
}

/**
 * Reads a body. Returns nothing, and reads no further, where it has more bytes than a limit.
 *
 * @param {Response} response @param {number} bytesMax @returns {Promise<Uint8Array | undefined>}
 */
async function readBody(response, bytesMax) {
  const reader = response.body?.getReader();
  const parts = [];
  let length = 0;
  for (let part; reader && !(part = await reader.read()).done;) {
    length += part.value.length;
    if (length > bytesMax) {
      reader.cancel().catch(() => {});
      return undefined;
    }
    parts.push(part.value);
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return body;
}

/** @param {Call} call */
const changes = (call) => call.method !== 'GET';

/** @param {Call} call @param {string} gateway @param {unknown} cause */
function noAnswer(call, gateway, cause) {
  const { cause: inner } = /** @type {{cause?: {code?: string, message?: string}}} */ (cause);
  const code = inner?.code ?? '';
  const why = inner?.message || code || String(cause);
  const [, cure, after] = permanent.find(([pattern]) => pattern.test(`${code} ${why}`)) ?? [];
  const notSent = notConnected.includes(code) || why.includes('client error (Connect)') || cure && !after;
  return local('unavailable', `no answer from ${gateway}: ${why}${cure ? `. ${cure}` : ''}`, {
    outcomeUnknown: changes(call) && !notSent, permanent: Boolean(cure), cause,
  });
}

/**
 * The errors of connections that no retry can cure, by the code of Node.js or the text of Deno; what to do; and whether
 * the request may have been sent. Browsers do not tell.
 *
 * @type {[RegExp, string, boolean?][]}
 */
const permanent = [
  [/DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(VERIFY|GET_ISSUER)|UnknownIssuer/,
    'Trust the authority that has signed the gateway\'s certificate: NODE_EXTRA_CA_CERTS names its file for Node.js, ' +
    'DENO_CERT for Deno.'],
  [/ERR_TLS_CERT_ALTNAME_INVALID|NotValidForName/,
    'Call the gateway by a name or an address that its certificate has.'],
  [/\bCERT_|invalid peer certificate/, 'The gateway needs another certificate.'],
  [/WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|RECORD_LAYER_FAILURE|InvalidContentType/,
    'It speaks no TLS there: begin the URL with http://.'],
  [/ERR_SSL_\w*ALERT|received fatal alert/,
    'The gateway refuses the TLS connection: does it require a certificate of the client (option fetch)?', true],
];

/** @param {Call} call @param {string} gateway @param {Answer} answer */
function refusal(call, gateway, answer) {
  if (!answer.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    const error = foreign(call, gateway, answer, 'it has no problem document');
    if (![502, 503, 504].includes(answer.status)) return error;
    // a proxy's word that no gateway has answered
    return local('unavailable', error.message, { outcomeUnknown: error.outcomeUnknown, cause: error });
  }
  try {
    const problem = asObject('code')(answer);
    const seconds = Number(answer.headers.get('Retry-After'));
    return ofProblem(problem, { retryAfterMs: problem.recommended_retry_ms ?? (seconds > 0 ? seconds * 1000 : 0) });
  } catch (error) {
    return foreign(call, gateway, answer, `its problem document can't be read: ${error}`);
  }
}

/** @param {Call} call @param {string} gateway @param {Answer} answer @param {string} fault */
function foreign(call, gateway, answer, fault) {
  const { status, headers } = answer;
  const isPermanent = status === 400; // of another protocol or service, as of a port that expects TLS
  const next = isPermanent ? 'If it speaks TLS there, begin the URL with https://.' :
    'Is it the gateway, or a proxy before it?';
  const what = `${status} ${headers.get('Content-Type') ?? ''}`.trim();
  const error = new ForeignAnswer(`${gateway} does not answer as a fencegate gateway (${what}): ${fault}. ${next}`);
  error.outcomeUnknown = changes(call);
  error.retryable = !isPermanent;
  return error;
}
