// Retries of calls that may be sent again as they are.
import { ApiError, FencegateError, isRetryable, settles } from './errors.js';

/**
 * Bounds retries. Pauses are random, at most baseMs, 2·baseMs, 4·baseMs … longestMs. withinMs is how long after the
 * first try the last one may begin.
 *
 * @typedef {{attempts: number, baseMs: number, longestMs: number, withinMs: number}} Policy
 */

/** @type {Policy} */
export const untilAnswered = { attempts: 100, baseMs: 50, longestMs: 2000, withinMs: 30_000 };

/**
 * Short: the caller of a try wants its result, and a wait sends its next request.
 *
 * @type {Policy}
 */
export const lostAnswers = { attempts: 5, baseMs: 50, longestMs: 1000, withinMs: 10_000 };

/**
 * Returns the pause after the try with this number, from 1.
 *
 * @param {{baseMs: number, longestMs: number}} policy @param {number} attempt @param {number} [hintMs]
 */
export function pauseAfter(policy, attempt, hintMs = 0) {
  const longest = Math.min(policy.longestMs, policy.baseMs * 2 ** Math.min(attempt - 1, 30));
  return Math.min(hintMs, policy.longestMs) + Math.random() * longest;
}

/**
 * Resolves after a time, and rejects with the signal's reason if that ends first.
 *
 * @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** Whether an earlier attempt of a call may have been applied. */
export class Doubt {
  #unknown = false;

  /**
   * Notes the outcome of the latest attempt in its error, together with those before it.
   *
   * @param {FencegateError} error
   */
  addTo(error) {
    if (this.#unknown && !settles(error)) error.outcomeUnknown = true;
    this.#unknown ||= error.outcomeUnknown;
  }
}

/**
 * Calls send until it succeeds, or fails with an error that again does not accept, or the policy or signal ends it. The
 * error's outcomeUnknown is true if one of the tries may have been applied and no later one has settled it.
 *
 * @template T
 * @param {Policy} policy
 * @param {() => Promise<T>} send
 * @param {{again?: (error: FencegateError) => boolean, signal?: AbortSignal | undefined}} [options]
 * @returns {Promise<T>}
 */
export async function retry(policy, send, { again = isRetryable, signal } = {}) {
  const began = performance.now();
  const doubt = new Doubt();
  for (let attempt = 1; ; attempt++) {
    let pause = 0;
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof FencegateError)) throw error;
      doubt.addTo(error);
      pause = pauseAfter(policy, attempt, error instanceof ApiError ? error.retryAfterMs : 0);
      const late = performance.now() - began + pause > policy.withinMs;
      if (!again(error) || attempt >= policy.attempts || late) throw error;
    }
    await sleep(pause, signal);
  }
}
