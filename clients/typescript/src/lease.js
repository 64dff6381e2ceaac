// A lease, and the writes under its token.
import { asObject, jsonText, withJSON } from './calls.js';
import {
  ApiError, FencegateError, LeaseExpired, LeaseLost, LeaseReleased, NotFound, NotHolderError, TokenStale, isRetryable, local,
} from './errors.js';
import { namePath, recordPath } from './names.js';
import { pauseAfter, retry, sleep, untilAnswered } from './retry.js';
import { Clocks, Validity, beatsPerTTL } from './validity.js';

/** @typedef {import('./calls.js').Answer} Answer */
/** @typedef {import('./calls.js').Call} Call */
/** @typedef {<T>(call: Call, read: (answer: Answer) => T) => Promise<T>} Send */

/**
 * The answer to a write. replayed says that the write had been applied before, and that this is the first answer.
 *
 * @typedef {{version: number, fencing_token: number, sequence: number, replayed: boolean}} WriteResult
 */

/**
 * Options of a write. ifVersion: the record must have this version. ifAbsent: there must be none. resource: the name
 * of a resource below the lock's own, under a subtree lease. signal ends the retries.
 *
 * @typedef {{
 *   contentType?: string, ifVersion?: number, ifAbsent?: boolean, resource?: string, signal?: AbortSignal
 * }} WriteOptions
 */

/**
 * The lease as a gateway sends it. Its times are by the database's clock.
 *
 * @typedef {{
 *   lock: string, owner_id: string, lease_id: string, fencing_token: number, mode: string, scope: string,
 *   ttl_ms: number, granted_at: string, expires_at: string, hold_left_ms?: number, [field: string]: unknown
 * }} Granted
 */

/** The part of a TTL that one gateway may take to answer a heartbeat, so that time is left for another. */
const tryShare = 6;
const tryLimitMinMs = 50;
const releaseTryLimitMs = 2000;
const releaseOnceMs = 5000;
/** Bounds the request for the holder, by which the error of a loss may come later. */
const holderLookupMaxMs = 500;

/** @param {Granted} granted @param {string} verb @returns {Call} */
export function leaseCall({ lock, owner_id, lease_id, fencing_token }, verb) {
  return withJSON('POST', `/v1/locks/${namePath(lock)}/${verb}`, { owner_id, lease_id, fencing_token });
}

/** Lets one at a time do something, in the order of their calls. */
class Turns {
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  take(work) {
    const result = this.#last.then(work);
    this.#last = result.catch(() => {});
    return result;
  }
}

/**
 * A lock that was granted to this process. It ends by release(), by its loss, or with its client, and stays ended. Its
 * writes are still sent then: the fence decides on them, not what this process believes.
 */
export class Lease {
  #send;
  #validity;
  #renewing = new Turns();
  #writing = new Turns();
  #sequence = 0;
  #released = false;
  /** @type {Promise<void> | undefined} */
  #asked;

  /** @param {Send} send @param {Granted} granted */
  constructor(send, granted) {
    this.#send = send;
    /** The lease as it was granted. */
    this.info = granted;
    this.name = granted.lock;
    /** A secret of the holder. */
    this.id = granted.lease_id;
    this.owner = granted.owner_id;
    /** Greater than every token granted on this name before. Pass it to each system that the work writes to. */
    this.fencingToken = granted.fencing_token;
    /**
     * The error of the last heartbeat; undefined if it succeeded, or if there was none yet.
     *
     * @type {FencegateError | undefined}
     */
    this.heartbeatError = undefined;
    this.#validity = new Validity(String(this), () => this.heartbeatError !== undefined);
  }

  toString() {
    return `the lease on ${this.name} with token ${this.fencingToken}`;
  }

  /**
   * Aborts when the lease ends, with the reason LeaseLost, LeaseReleased or ClientClosed: if it is lost, no later than
   * the moment at which another holder may be granted the lock. Reading the property reads the clocks: a process that
   * was frozen past the end sees it at once.
   */
  get signal() {
    return this.#validity.signal;
  }

  /** Why the lease has ended; undefined while it can be relied on, by the clocks and by all answers. */
  get error() {
    return this.#validity.check();
  }

  /** Whether the lease can be relied on at the moment of the call. */
  get valid() {
    return this.error === undefined;
  }

  /** For how many milliseconds the lease can be relied on without another renewal. */
  get expiresInMs() {
    return this.#validity.leftMs();
  }

  /** Renews the lease now. A lease that has ended stays ended: LeaseLost. */
  async renew() {
    return this.explained(async () => {
      if (this.error) throw this.error;
      try {
        await retry(untilAnswered, () => this.#renewOnce(), { again: (error) => isRetryable(error) && this.valid });
      } catch (error) {
        throw isGone(error) ? this.#endWith(error) : error;
      }
    });
  }

  /**
   * Ends the lease, and closes the fence behind it: later writes are TokenStale. It is resent until it is answered,
   * for some 30 seconds, and may be called again. LeaseLost: it was broken, or has expired and was replaced.
   * Unavailable: no gateway answered, and the lease ends with its TTL.
   *
   * @param {{signal?: AbortSignal}} [options]
   */
  async release({ signal } = {}) {
    return this.explained(() => this.#release(signal));
  }

  /** @param {AbortSignal | undefined} signal */
  async #release(signal) {
    this.end(new LeaseReleased(`${this} was released`));
    if (this.#released) return;
    const call = { ...leaseCall(this.info, 'release'), limitMs: releaseTryLimitMs, signal };
    await retry(untilAnswered, () => this.#send(call, asObject()), { signal });
    this.#released = true;
  }

  /** Is release for "await using": within five seconds, and without an error. */
  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.finish().catch(() => {});
  }

  /**
   * Stores a record of the lease's resource, under the lease's token and the next number. Writes are sent one after
   * the other. If an answer is lost, the same write is sent again with the same number, until it is answered, for some
   * 30 seconds: it is applied once.
   *
   * TokenStale, LeaseMismatch and LeaseExpired say that the caller is not the holder: stop. An error whose
   * outcomeUnknown is true says that the write may have been applied.
   *
   * @param {string} key @param {string | Uint8Array} value @param {WriteOptions} [options]
   * @returns {Promise<WriteResult>}
   */
  async put(key, value, options = {}) {
    if (typeof value !== 'string' && !ArrayBuffer.isView(value)) {
      throw local('invalid_request', 'a value is a string or a Uint8Array: putJSON stores JSON');
    }
    const headers = { 'Content-Type': options.contentType ?? 'application/octet-stream' };
    const body = typeof value === 'string' ? new TextEncoder().encode(value) : value;
    return this.#write('PUT', key, headers, body, options);
  }

  /**
   * Is put of a value as application/json.
   *
   * @param {string} key @param {unknown} value @param {WriteOptions} [options]
   */
  async putJSON(key, value, options) {
    return this.put(key, jsonText(value), { ...options, contentType: 'application/json' });
  }

  /**
   * Removes a record, as put stores one. NotFound: there is none.
   *
   * @param {string} key @param {Pick<WriteOptions, 'ifVersion' | 'resource' | 'signal'>} [options]
   */
  delete(key, options = {}) {
    return this.#write('DELETE', key, {}, undefined, options);
  }

  /**
   * Applies all operations as one atomic change, or none, and returns the answer: docs/api.md has their fields. An
   * operation without a resource is on the lease's own.
   *
   * @param {Record<string, unknown>[]} ops
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{results: Record<string, unknown>[], replayed: boolean}>}
   */
  transaction(ops, { signal } = {}) {
    return this.explained(() => this.#writing.take(() => {
      const token = { fencing_token: this.fencingToken, sequence: ++this.#sequence, lease_id: this.id };
      const named = ops.map((op) => ({ resource: this.name, ...op }));
      const resources = new Set([this.name, ...named.map((op) => op.resource)]);
      const fences = [...resources].map((resource) => ({ resource, ...token }));
      const call = { ...withJSON('POST', '/v1/transactions', { fences, ops: named }), signal };
      return this.#decide(this.name, call, asObject('results'));
    }));
  }

  /**
   * Calls write with the lease's token and its next number, such as "34.5", for one write to another system that
   * checks fencing tokens. All writes of the lease share the numbers: the others wait until write has ended.
   *
   * @template T @param {(token: string) => Promise<T>} write @returns {Promise<T>}
   */
  numbered(write) {
    return this.#writing.take(() => write(`${this.fencingToken}.${++this.#sequence}`));
  }

  /**
   * @param {string} method @param {string} key @param {Record<string, string>} headers
   * @param {Uint8Array | undefined} body @param {WriteOptions} options @returns {Promise<WriteResult>}
   */
  async #write(method, key, headers, body, { ifVersion, ifAbsent, resource = this.name, signal }) {
    const path = recordPath(resource, key);
    if (ifVersion !== undefined) headers['If-Match'] = `"${ifVersion}"`;
    if (ifAbsent) headers['If-None-Match'] = '*';
    return this.explained(() => this.numbered((token) => {
      /** @type {Call} */
      const call = { method, path, headers: { ...headers, 'Fencing-Token': token, 'Lease-Id': this.id }, signal };
      if (body) call.body = body;
      return this.#decide(resource, call, asObject('version', 'fencing_token', 'sequence'));
    }));
  }

  /**
   * Sends a write until it is answered. A rejection which says that the lease has ended ends it.
   *
   * @param {string} resource @param {Call} call @param {(answer: Answer) => any} read
   */
  async #decide(resource, call, read) {
    try {
      return await retry(untilAnswered, () => this.#send(call, read), { signal: call.signal });
    } catch (error) {
      const stale = error instanceof TokenStale && ['superseded', 'released'].includes(error.reason);
      const ended = stale || error instanceof LeaseExpired || error instanceof LeaseLost;
      if (ended && resource === this.name && this.info.mode !== 'shared') this.#endWith(error);
      throw error;
    }
  }

  /** @param {number} [limitMs] */
  #renewOnce(limitMs) {
    return this.#renewing.take(async () => {
      const since = new Clocks();
      const call = { ...leaseCall(this.info, 'renew'), limitMs };
      const renewed = await this.#send(call, asObject('lease_id', 'fencing_token', 'ttl_ms'));
      this.#validity.set(since, renewed.ttl_ms, renewed.hold_left_ms);
    });
  }

  /** @param {ApiError} why */
  #endWith(why) {
    return this.end(this.#validity.lost(why.message, why.reason, why));
  }

  /**
   * Ends the lease for this process, and returns the cause of its first end.
   *
   * @internal @param {FencegateError} cause
   */
  end(cause) {
    return this.#validity.end(cause);
  }

  /**
   * Starts the window of a new lease. If its request was sent long ago, the lease is renewed first, and counts from
   * then on.
   *
   * @internal @param {Clocks} since
   */
  async confirm(since) {
    const { ttl_ms: ttlMs, hold_left_ms: holdLeftMs } = this.info;
    if (since.elapsed() <= Math.min(ttlMs, holdLeftMs ?? ttlMs) / 10) {
      this.#validity.set(since, ttlMs, holdLeftMs);
    } else {
      await retry(untilAnswered, () => this.#renewOnce());
    }
    if (this.error) throw this.error;
  }

  /**
   * Renews the lease at a third of its TTL, until it ends. Failed heartbeats are retried while it lasts.
   *
   * @internal
   */
  async beat() {
    for (let failed = 0; this.valid;) {
      const ttlMs = this.#validity.ttlMs;
      const pause = failed
        ? pauseAfter({ baseMs: ttlMs / 60, longestMs: ttlMs / 12 }, failed)
        : (ttlMs / beatsPerTTL) * (1 - Math.random() / 5);
      try {
        await sleep(pause, this.signal);
        await this.#renewOnce(Math.max(ttlMs / tryShare, tryLimitMinMs));
        failed = 0;
        this.heartbeatError = undefined;
      } catch (error) {
        if (!(error instanceof FencegateError)) throw error;
        if (isGone(error)) this.#endWith(error);
        if (this.valid) this.heartbeatError = error;
        failed++;
      }
    }
  }

  /**
   * Releases within five seconds. It rejects only if the lease was lost: otherwise nothing is left to do.
   *
   * @internal
   */
  async finish() {
    const before = this.error;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), releaseOnceMs);
    try {
      await this.#release(late.signal);
    } catch (error) {
      if (isGone(error) && !before) throw this.#validity.lost(error.message, error.reason, error);
    } finally {
      clearTimeout(timer);
    }
    if (before instanceof LeaseLost) throw before;
  }

  /**
   * Runs call. If it rejects with a loss, the error says what is known about that, and has the stack of the caller: the
   * error may be made in a timer.
   *
   * @internal @template T @param {() => Promise<T>} call @returns {Promise<T>}
   */
  async explained(call, caller = new Error()) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof NotHolderError)) throw error;
      if (error instanceof LeaseLost || this.error instanceof LeaseLost) {
        this.#validity.noteLoss(error.reason);
        if (this.info.mode !== 'shared') await (this.#asked ??= this.#askForHolder());
      }
      throw error.to(this.#validity.loss, caller);
    }
  }

  /** Asks which newer lease the lock has. */
  async #askForHolder() {
    const path = `/v1/locks/${namePath(this.name)}`;
    try {
      const call = { method: 'GET', path, signal: AbortSignal.timeout(holderLookupMaxMs) };
      const state = await this.#send(call, asObject('holders'));
      this.#validity.loss.holder = state.holders.find((/** @type {Granted} */ { fencing_token: token }) =>
        token > this.fencingToken);
    } catch {
      // The error does without.
    }
  }
}

/**
 * Says that a gateway has answered that the lease has ended.
 *
 * @param {unknown} error @returns {error is ApiError}
 */
const isGone = (error) => error instanceof LeaseLost || error instanceof NotFound;
