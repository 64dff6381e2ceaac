import { Caller, asObject, withJSON } from './calls.js';
import { ClientClosed, FencegateError, LeaseLost, LockHeld, Loss, NotHolderError, isRetryable } from './errors.js';
import { Lease, leaseCall } from './lease.js';
import { namePath, recordPath } from './names.js';
import { lostAnswers, pauseAfter, retry, sleep, untilAnswered } from './retry.js';
import { Clocks, anySignal } from './validity.js';
import { Writes } from './writes.js';

/** @typedef {import('./calls.js').Answer} Answer */
/** @typedef {import('./lease.js').Granted} Granted */

/**
 * Options of a client. failover has the URLs of more gateways of the same database. owner is shown to others as the
 * holder: two processes must not share one. token is an API key, or a function that returns the current one.
 * answerTimeoutMs bounds the time of one gateway for its answer, beyond the time that it was asked to wait for a lock.
 * answerBytesMax bounds the body of an answer, by default 256 MiB: a longer one is a ForeignAnswer.
 *
 * @typedef {{
 *   failover?: string[], owner?: string, token?: import('./calls.js').Token, headers?: Record<string, string>,
 *   answerTimeoutMs?: number, answerBytesMax?: number, fetch?: typeof fetch
 * }} ClientOptions
 */

/**
 * Options of an acquire. ttlMs: how long the lease lasts without a renewal, by default 30 s. waitMs: how long to wait
 * in the lock's queue; 0, the default, is one try, and Infinity waits without an end. heartbeat: whether the lease is
 * renewed in the background, by default yes. A shared lease is one of many, and can't write. A subtree lease is on the
 * name and all names below it. signal ends the wait: it leaves the queue.
 *
 * @typedef {{
 *   ttlMs?: number, waitMs?: number, heartbeat?: boolean, shared?: boolean, subtree?: boolean, owner?: string,
 *   metadata?: Record<string, unknown>, signal?: AbortSignal
 * }} AcquireOptions
 */

/**
 * The longest wait of one request. A gateway lets one wait for 10 minutes, but fetch of Node.js and browsers gives up
 * an answer after 5.
 */
const requestWaitMaxMs = 240_000;
/** Bounds the release of a lease that no caller got. */
const abandonMs = 5000;
const newestTokensMax = 10_000;

/** Node.js 18 has no global crypto. The name keeps bundlers for browsers from looking for the module. */
const nodeCrypto = 'node:crypto';
const randomSource = globalThis.crypto ?? (await import(/* @vite-ignore */ nodeCrypto)).webcrypto;

/** @param {number} bytes */
function randomText(bytes) {
  const values = randomSource.getRandomValues(new Uint8Array(bytes));
  return Array.from(values, (/** @type {number} */ value) => value.toString(16).padStart(2, '0')).join('');
}

/** A stored record, and the token of the write that stored it. */
export class StoredRecord {
  /** @param {Answer} answer */
  constructor({ headers, body }) {
    const [token, sequence] = (headers.get('Fencing-Token') ?? '').split('.').map(Number);
    // A proxy that compresses the answer marks the ETag as weak.
    const version = Number(/^(?:W\/)?"(\d+)"$/.exec(headers.get('ETag') ?? '')?.[1]);
    if (!token || !version) throw new Error('a record without its version or the token of its write');
    this.value = body;
    this.contentType = headers.get('Content-Type') ?? '';
    this.version = version;
    this.fencingToken = token;
    this.sequence = sequence;
  }

  /** The value as text. */
  text() {
    return new TextDecoder().decode(this.value);
  }

  /** The value as JSON. @returns {any} */
  json() {
    return JSON.parse(this.text());
  }
}

/**
 * Calls the gateways of one database. Make one and keep it: it remembers which gateway works. A lease that is held
 * keeps a process of Node.js running, as an open connection does.
 */
export class Client {
  #caller;
  /** @type {Map<string, number>} */
  #newest = new Map();
  #closed = new AbortController();
  /** @type {Set<Lease>} */
  #leases = new Set();

  /** @param {string} url @param {ClientOptions} [options] */
  constructor(url, options = {}) {
    const { failover = [], owner, token, headers = {}, answerTimeoutMs = 30_000 } = options;
    const { answerBytesMax = 256 * 2 ** 20 } = options;
    const send = options.fetch ?? ((...request) => globalThis.fetch(...request));
    this.#caller = new Caller([url, ...failover], { token, headers, answerTimeoutMs, answerBytesMax, fetch: send });
    /** The owner of this client's leases. */
    this.owner = owner ?? `js:${randomText(8)}`;
  }

  /**
   * Ends heartbeats and waits. It releases nothing: release before, or let the TTLs end the leases. What was granted
   * can still be released and written under.
   */
  close() {
    const cause = new ClientClosed('the client is closed');
    this.#closed.abort(cause);
    for (const lease of this.#leases) lease.end(cause);
  }

  /**
   * Acquires a lease on a lock.
   *
   * LockHeld: another lease holds the lock. Deadlock: the wait would never end. Unavailable: no gateway could serve. If
   * the signal ends the wait, acquire rejects with its reason.
   *
   * @param {string} lock @param {AcquireOptions} [options] @returns {Promise<Lease>}
   */
  async acquire(lock, options = {}) {
    const { ttlMs = 30_000, waitMs = 0, heartbeat = true, shared, subtree, owner, metadata } = options;
    const body = {
      owner_id: owner ?? this.owner, ttl_ms: ttlMs, mode: shared ? 'shared' : 'exclusive',
      scope: subtree ? 'subtree' : 'node', ...(metadata && { metadata }),
    };
    const either = anySignal([options.signal, this.#closed.signal]);
    const caller = new Error();
    try {
      const lease = await this.#awaitGrant(lock, body, performance.now() + waitMs, either.signal);
      if (heartbeat) void lease.beat();
      return lease;
    } catch (error) {
      throw error instanceof NotHolderError ? error.to(new Loss(), caller) : error;
    } finally {
      either.done();
    }
  }

  /**
   * Runs work while it holds the lock, and returns what work returns. By default it waits for the lock without an end.
   *
   * The signal that work gets aborts when the lease is lost or the caller's signal aborts: work must stop then. If the
   * lease was lost before work ended, do rejects with LeaseLost, a NotHolderError: effects of work that no fence guards
   * may have happened beside another holder's.
   *
   * @template T
   * @param {string} lock
   * @param {(lease: Lease, signal: AbortSignal) => T | Promise<T>} work
   * @param {AcquireOptions} [options]
   * @returns {Promise<T>}
   */
  async do(lock, work, options = {}) {
    const caller = new Error();
    const lease = await this.acquire(lock, { waitMs: Infinity, ...options, heartbeat: true });
    const either = anySignal([lease.signal, options.signal]);
    try {
      return await work(lease, either.signal);
    } finally {
      either.done();
      await lease.explained(() => lease.finish(), caller);
    }
  }

  /**
   * Returns a record. NotFound: there is none. A durable read returns what no failover can take back.
   *
   * @param {string} resource @param {string} key @param {{durable?: boolean, signal?: AbortSignal}} [options]
   */
  async get(resource, key, { durable, signal } = {}) {
    const path = recordPath(resource, key) + (durable ? '?consistency=durable' : '');
    return this.#caller.send({ method: 'GET', path, signal }, (answer) => new StoredRecord(answer));
  }

  /**
   * Makes any number of independent writes, each with the fields of POST /v1/writes in docs/api.md, and returns the
   * outcome of each, in their order. Writes to one resource are decided in their order.
   *
   * Up to 1,000 writes and 4 MiB are one request, and one request follows the other; a larger write is TooLarge. Some 30
   * seconds long, what got no answer is sent again: a write with a sequence is applied at most once. One without is not
   * sent again if it may have been applied, and its error has outcomeUnknown. If writes stay without an answer, those of
   * later requests are not sent. If the signal aborts, writes rejects with its reason.
   *
   * A fence remembers its last accepted write only. If an answer was lost, all but the last of several writes to one
   * resource may be TokenStale with outcomeUnknown, though they were applied: read the records.
   *
   * @param {import('./writes.js').BulkWrite[]} writes @param {{signal?: AbortSignal}} [options]
   */
  async writes(writes, { signal } = {}) {
    return new Writes((call, read) => this.#caller.send(call, read)).run(writes, signal);
  }

  /**
   * Returns the state of a lock, its holders and its queue, as docs/api.md describes it.
   *
   * @param {string} lock @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{
   *   lock: string, state: 'free' | 'held' | 'expired', fencing_token: number, holders: Record<string, unknown>[],
   *   queue: Record<string, unknown>[]
   * }>}
   */
  async lockState(lock, { signal } = {}) {
    return this.#caller.send({ method: 'GET', path: `/v1/locks/${namePath(lock)}`, signal }, asObject('state'));
  }

  /**
   * Ends the lease of a lock, and closes the fence behind it: for administrators.
   *
   * @param {string} lock @param {string} reason
   */
  async breakLock(lock, reason) {
    await this.#caller.send(withJSON('POST', `/v1/locks/${namePath(lock)}/break`, { reason }), asObject());
  }

  /**
   * Sends acquires until one is granted, or refused for good, or the wait has ended.
   *
   * @param {string} lock @param {object} body @param {number} until @param {AbortSignal} signal
   * @returns {Promise<Lease>}
   */
  async #awaitGrant(lock, body, until, signal) {
    const waitLeft = () => Math.max(0, Math.min(requestWaitMaxMs, Math.floor(until - performance.now())));
    for (let request = { ...body, request_id: randomText(16) }, since = new Clocks(), failed = 0; ;) {
      const sent = performance.now();
      const waitMs = waitLeft();
      try {
        if (signal.aborted) throw signal.reason;
        const granted = await retry(lostAnswers, () => this.#sendAcquire(lock, request, waitLeft(), signal), {
          again: (error) => error.outcomeUnknown && isRetryable(error), signal,
        });
        return await this.#adopt(granted, since);
      } catch (error) {
        if (!(error instanceof FencegateError) || signal.aborted) {
          void this.#abandon(lock, request);
          throw error;
        }
        if (error instanceof LeaseLost && waitLeft() > 0) {
          // The grant was so old when it arrived that the lease was lost.
          request = { ...body, request_id: randomText(16) };
          since = new Clocks();
          continue;
        }
        const held = error instanceof LockHeld;
        if (waitLeft() === 0 || !(held || isRetryable(error))) {
          if (error.outcomeUnknown) void this.#abandon(lock, request);
          throw error;
        }
        const waited = held && performance.now() - sent >= waitMs / 2;
        failed = waited ? 0 : failed + 1;
        // A signal that ends the pause is found at the loop's start.
        if (!waited) await sleep(pauseAfter({ baseMs: 100, longestMs: 2000 }, failed), signal).catch(() => {});
      }
    }
  }

  /**
   * @param {string} lock @param {object} request @param {number} waitMs @param {AbortSignal} [signal]
   * @returns {Promise<Granted>}
   */
  async #sendAcquire(lock, request, waitMs, signal) {
    const newest = this.#newest;
    const body = { ...request, wait_ms: waitMs, newest_token: newest.get(lock) ?? 0 };
    const call = { ...withJSON('POST', `/v1/locks/${namePath(lock)}/acquire`, body), waitMs, signal };
    /** @type {Granted} */
    const granted = await this.#caller.send(call, asObject('lock', 'owner_id', 'lease_id', 'fencing_token', 'ttl_ms'));
    if (newest.size >= newestTokensMax && !newest.has(lock)) newest.delete(newest.keys().next().value ?? '');
    newest.set(lock, Math.max(newest.get(lock) ?? 0, granted.fencing_token));
    return granted;
  }

  /** @param {Granted} granted @param {Clocks} since */
  async #adopt(granted, since) {
    const lease = new Lease((call, read) => this.#caller.send(call, read), granted);
    try {
      await lease.confirm(since);
    } catch (error) {
      this.#caller.send(leaseCall(granted, 'release'), asObject()).catch(() => {});
      throw error;
    }
    this.#leases.add(lease);
    lease.signal.addEventListener('abort', () => this.#leases.delete(lease), { once: true });
    return lease;
  }

  /**
   * Finds out whether a lease was granted whose answer was lost, and releases it.
   *
   * @param {string} lock @param {object} request
   */
  async #abandon(lock, request) {
    const policy = { ...untilAnswered, withinMs: abandonMs };
    await retry(policy, async () => {
      const granted = await this.#sendAcquire(lock, request, 0);
      await this.#caller.send(leaseCall(granted, 'release'), asObject());
    }).catch(() => {});
  }
}
