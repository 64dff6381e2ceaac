// For how long this process may rely on a lease.
import { FencegateError, local } from './errors.js';

/** The longest time between two looks at the wall clock: timers miss a suspended system. */
const checkEveryMs = 1000;

/**
 * A hundredth of the TTL does not count: the database's clock may run faster than this machine's.
 *
 * @param {number} ttlMs
 */
const window = (ttlMs) => ttlMs * 0.99;

/**
 * A point in time by both clocks of this machine. The monotonic one may stop while the system is suspended, and people
 * and NTP set the wall clock.
 */
export class Clocks {
  #monotonic = performance.now();
  #wall = Date.now();

  /** The milliseconds since then, by the clock that says more. */
  elapsed() {
    return Math.max(performance.now() - this.#monotonic, Date.now() - this.#wall);
  }
}

/**
 * The window of a lease: it lasts at least until its TTL after the moment before it was requested. The times in answers
 * are never used.
 */
export class Validity {
  #controller = new AbortController();
  #what;
  /** @type {{since: Clocks, lengthMs: number, reason: string}[]} */
  #windows = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  ttlMs = 0;

  /** @param {string} what */
  constructor(what) {
    this.#what = what;
  }

  /** Aborts at the end, with the cause as its reason. */
  get signal() {
    this.check();
    return this.#controller.signal;
  }

  /**
   * Moves the window after a grant or a renewal that was requested after since. holdLeftMs is the rest of the longest
   * time that the lease may be held, which no renewal moves.
   *
   * @param {Clocks} since @param {number} ttlMs @param {number | undefined} holdLeftMs
   */
  set(since, ttlMs, holdLeftMs) {
    this.ttlMs = ttlMs;
    this.#windows = [{ since, lengthMs: window(ttlMs), reason: 'expired' }];
    if (holdLeftMs !== undefined) this.#windows.push({ since, lengthMs: window(holdLeftMs), reason: 'max_hold' });
    this.#arm();
  }

  /**
   * Reads the clocks, ends the validity if its window is over, and returns why it has ended.
   *
   * @returns {FencegateError | undefined}
   */
  check() {
    const over = this.#windows.find(({ since, lengthMs }) => since.elapsed() >= lengthMs);
    if (over) this.end(lost(this.#what, 'its TTL may have run out before a renewal was answered', over.reason));
    return this.#controller.signal.reason;
  }

  /** The milliseconds that are left of the window. */
  leftMs() {
    if (this.check() || this.#windows.length === 0) return 0;
    return Math.max(0, Math.min(...this.#windows.map(({ since, lengthMs }) => lengthMs - since.elapsed())));
  }

  /**
   * Ends the validity, and returns the cause of its first end.
   *
   * @param {FencegateError} cause
   * @returns {FencegateError}
   */
  end(cause) {
    clearTimeout(this.#timer);
    if (!this.#controller.signal.aborted) this.#controller.abort(cause);
    return this.#controller.signal.reason;
  }

  #arm() {
    clearTimeout(this.#timer);
    if (!this.check()) this.#timer = setTimeout(() => this.#arm(), Math.min(this.leftMs(), checkEveryMs));
  }
}

/** @param {string} what @param {string} why @param {string} reason @param {unknown} [cause] */
export function lost(what, why, reason, cause) {
  return local('lease_lost', `${what} is lost: ${why}`, cause ? { reason, cause } : { reason });
}

/**
 * Returns a signal that aborts with the first of these, and what ends its listening.
 *
 * @param {(AbortSignal | undefined)[]} signals
 * @returns {{signal: AbortSignal, done: () => void}}
 */
export function anySignal(signals) {
  const controller = new AbortController();
  const listeners = signals.map((signal) => {
    const abort = () => controller.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    return () => signal?.removeEventListener('abort', abort);
  });
  return { signal: controller.signal, done: () => listeners.forEach((end) => end()) };
}
