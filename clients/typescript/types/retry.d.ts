/**
 * Returns the pause after the try with this number, from 1.
 *
 * @param {{baseMs: number, longestMs: number}} policy @param {number} attempt @param {number} [hintMs]
 */
export function pauseAfter(policy: {
    baseMs: number;
    longestMs: number;
}, attempt: number, hintMs?: number): number;
/**
 * Resolves after a time, and rejects with the signal's reason if that ends first.
 *
 * @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>}
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<void>;
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
export function retry<T>(policy: Policy, send: () => Promise<T>, { again, signal }?: {
    again?: (error: FencegateError) => boolean;
    signal?: AbortSignal | undefined;
}): Promise<T>;
/**
 * Bounds retries. Pauses are random, at most baseMs, 2·baseMs, 4·baseMs … longestMs. withinMs is how long after the
 * first try the last one may begin.
 *
 * @typedef {{attempts: number, baseMs: number, longestMs: number, withinMs: number}} Policy
 */
/** @type {Policy} */
export const untilAnswered: Policy;
/**
 * Short: the caller of a try wants its result, and a wait sends its next request.
 *
 * @type {Policy}
 */
export const lostAnswers: Policy;
/** Whether an earlier attempt of a call may have been applied. */
export class Doubt {
    /**
     * Notes the outcome of the latest attempt in its error, together with those before it.
     *
     * @param {FencegateError} error
     */
    addTo(error: FencegateError): void;
    #private;
}
/**
 * Bounds retries. Pauses are random, at most baseMs, 2·baseMs, 4·baseMs … longestMs. withinMs is how long after the
 * first try the last one may begin.
 */
export type Policy = {
    attempts: number;
    baseMs: number;
    longestMs: number;
    withinMs: number;
};
import { FencegateError } from './errors.js';
