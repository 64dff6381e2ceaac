// For how long this process may rely on a lease.
import { FencegateError, Loss, NotHolderError, local } from './errors.js';

/** The longest time between two looks at the wall clock: timers miss a suspended system. */
const checkEveryMs = 1000;
export const beatsPerTTL = 3;
/** Reasons of gateways which no renewal would have prevented. */
const lostWithoutPause = ['broken', 'released'];

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
  monotonic = performance.now();
  #wall = Date.now();

  /** The milliseconds since then, by the clock that says more. */
  elapsed() {
    return Math.max(performance.now() - this.monotonic, Date.now() - this.#wall);
  }
}

/**
 * The window of a lease: it lasts at least until its TTL after the moment before it was requested. The times in answers
 * are never used.
 */
export class Validity {
  #controller = new AbortController();
  #what;
  /** @type {{since: Clocks, lengthMs: number}[]} */
  #windows = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  ttlMs = 0;
  loss = new Loss();
  #beatsFail;
  /** When the timer should run, by the monotonic clock; Infinity: it is not armed. */
  #due = Infinity;
  /** The longest pause in the window: by how much the timer was late, and when it was due. */
  #pause = { at: 0, ms: 0 };

  /** @param {string} what @param {() => boolean} beatsFail */
  constructor(what, beatsFail) {
    this.#what = what;
    this.#beatsFail = beatsFail;
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
    this.#lookAtClock();
    this.ttlMs = ttlMs;
    this.#windows = [{ since, lengthMs: window(ttlMs) }];
    if (holdLeftMs !== undefined) this.#windows.push({ since, lengthMs: window(holdLeftMs) });
    this.#arm();
  }

  /**
   * Reads the clocks, ends the validity if its window is over, and returns why it has ended.
   *
   * @returns {FencegateError | undefined}
   */
  check() {
    this.#lookAtClock();
    const over = this.#windows.some(({ since, lengthMs }) => since.elapsed() >= lengthMs);
    if (over && !this.#controller.signal.aborted) {
      this.end(this.lost('its TTL may have run out before a renewal was answered', 'expired'));
    }
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
    this.#lookAtClock();
    this.#due = Infinity;
    if (!this.#controller.signal.aborted) this.#controller.abort(cause);
    return this.#controller.signal.reason;
  }

  #arm() {
    clearTimeout(this.#timer);
    if (this.check()) return;
    const left = Math.min(this.leftMs(), checkEveryMs);
    this.#due = performance.now() + left;
    this.#timer = setTimeout(() => this.#arm(), left);
  }

  /**
   * Makes the error of a loss.
   *
   * @param {string} why @param {string} reason @param {unknown} [cause]
   */
  lost(why, reason, cause) {
    this.noteLoss(reason);
    const error = local('lease_lost', `${this.#what} is lost: ${why}`, cause ? { reason, cause } : { reason });
    return /** @type {NotHolderError} */ (error).to(this.loss, new Error());
  }

  /**
   * Notes the pause if it explains the loss: the window is over, and would not be without it. A pause that is shorter
   * than the time between two heartbeats leaves time for one.
   *
   * @param {string} reason
   */
  noteLoss(reason) {
    const [ttlWindow] = this.#windows;
    if (!ttlWindow || this.loss.pausedMs || lostWithoutPause.includes(reason) || this.#beatsFail()) return;
    this.#lookAtClock();
    const overMs = ttlWindow.since.elapsed() - ttlWindow.lengthMs;
    const { ms } = this.#pause;
    if (ms >= this.ttlMs / beatsPerTTL && overMs >= 0 && overMs < ms) this.loss.pausedMs = ms;
  }

  #lookAtClock() {
    const [ttlWindow] = this.#windows;
    if (ttlWindow && this.#pause.at < ttlWindow.since.monotonic) this.#pause = { at: 0, ms: 0 };
    const late = performance.now() - this.#due;
    if (late > this.#pause.ms) this.#pause = { at: this.#due, ms: late };
  }
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
