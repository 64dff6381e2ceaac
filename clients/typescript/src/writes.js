// Many independent writes, by arrays of POST /v1/writes.
import { jsonText } from './calls.js';
import { ApiError, FencegateError, ForeignAnswer, isRetryable, local, ofProblem } from './errors.js';
import { Doubt, retry, untilAnswered } from './retry.js';

/** @typedef {import('./calls.js').Answer} Answer */

/**
 * One write, with the fields of POST /v1/writes in docs/api.md.
 *
 * @typedef {{
 *   op: 'put' | 'delete', resource: string, key: string, value?: unknown, value_base64?: string, content_type?: string,
 *   if_version?: number, fencing_token: number, sequence?: number, lease_id?: string
 * }} BulkWrite
 */

/**
 * What became of one write: result, or error.
 *
 * @typedef {{
 *   result?: {version: number, fencingToken: number, sequence: number, replayed: boolean}, error?: FencegateError
 * }} WriteOutcome
 */

/** @typedef {{index: number, text: string, numbered: boolean, doubt: Doubt}} Sent */

const writesMax = 1000;
const bytesMax = 4 * 2 ** 20;

/** One call of Client.writes. */
export class Writes {
  #send;
  /** @type {WriteOutcome[]} */
  #outcomes = [];

  /** @param {(call: import('./calls.js').Call, read: (answer: Answer) => any) => Promise<any>} send */
  constructor(send) {
    this.#send = send;
  }

  /** @param {BulkWrite[]} writes @param {AbortSignal} [signal] @returns {Promise<WriteOutcome[]>} */
  async run(writes, signal) {
    this.#outcomes = writes.map(() => ({ error: local('unavailable', 'it was not sent: a write before it got no answer') }));
    /** @type {Sent[]} */
    let part = [];
    let size = 2; // the brackets
    const texts = writes.map(jsonText); // before anything is sent
    for (const [index, text] of texts.entries()) {
      const bytes = new TextEncoder().encode(text).length;
      if (part.length === writesMax || (part.length && size + bytes >= bytesMax)) {
        if (!await this.#sendPart(part, signal)) return this.#outcomes;
        [part, size] = [[], 2];
      }
      part.push({ index, text, numbered: writes[index]?.sequence !== undefined, doubt: new Doubt() });
      size += bytes + 1;
    }
    if (part.length) await this.#sendPart(part, signal);
    return this.#outcomes;
  }

  /**
   * Makes the writes of one request. Resolves to false if some of them got no answer.
   *
   * @param {Sent[]} left @param {AbortSignal} [signal]
   */
  async #sendPart(left, signal) {
    try {
      await retry(untilAnswered, async () => {
        const [again, why] = await this.#try(left, signal);
        left = again;
        if (why) throw same(why);
      }, { signal });
      return true;
    } catch (error) {
      if (!(error instanceof FencegateError)) throw error;
      return false;
    }
  }

  /**
   * Sends writes once. Returns those to be sent again, and why.
   *
   * @param {Sent[]} writes @param {AbortSignal} [signal] @returns {Promise<[Sent[], FencegateError | undefined]>}
   */
  async #try(writes, signal) {
    /** @type {any[]} */
    let results = [];
    /** @type {FencegateError | undefined} */
    let failed;
    try {
      results = await this.#post(writes, signal);
    } catch (error) {
      if (!(error instanceof FencegateError)) throw error;
      failed = error;
    }
    /** @type {Sent[]} */
    const again = [];
    /** @type {FencegateError | undefined} */
    let why;
    for (const [i, write] of writes.entries()) {
      if (!failed && !results[i].problem) {
        const { version, fencing_token: fencingToken, sequence = 0, replayed } = results[i].result;
        this.#outcomes[write.index] = { result: { version, fencingToken, sequence, replayed } };
        continue;
      }
      const error = failed ? same(failed) : ofProblem(results[i].problem);
      const unknown = error.outcomeUnknown;
      write.doubt.addTo(error);
      this.#outcomes[write.index] = { error };
      if (isRetryable(error) && (write.numbered || !unknown)) {
        again.push(write);
        why ??= error;
      }
    }
    return [again, why];
  }

  /** @param {Sent[]} writes @param {AbortSignal} [signal] @returns {Promise<any[]>} */
  #post(writes, signal) {
    const call = {
      method: 'POST', path: '/v1/writes', headers: { 'Content-Type': 'application/json' }, signal,
      body: `[${writes.map((write) => write.text).join(',')}]`,
      once: true, // each result of a later answer says nothing of one that was lost
    };
    return this.#send(call, (answer) => {
      const { results } = JSON.parse(new TextDecoder().decode(answer.body));
      const complete = (/** @type {any} */ one) => one.problem?.code || one.result?.version;
      if (results.length !== writes.length || !results.every(complete)) throw new Error('it has not a result for each write');
      return results;
    });
  }
}

/**
 * Returns the same error. What is known of earlier attempts differs between writes.
 *
 * @param {FencegateError} error
 */
function same(error) {
  const again = error instanceof ApiError ?
    ofProblem(error.problem, { retryAfterMs: error.retryAfterMs, cause: error }) : new ForeignAnswer(error.message);
  again.outcomeUnknown = error.outcomeUnknown;
  again.retryable = error.retryable;
  return again;
}
