/**
 * Returns a signal that aborts with the first of these, and what ends its listening.
 *
 * @param {(AbortSignal | undefined)[]} signals
 * @returns {{signal: AbortSignal, done: () => void}}
 */
export function anySignal(signals: (AbortSignal | undefined)[]): {
    signal: AbortSignal;
    done: () => void;
};
export const beatsPerTTL: 3;
/**
 * A point in time by both clocks of this machine. The monotonic one may stop while the system is suspended, and people
 * and NTP set the wall clock.
 */
export class Clocks {
    monotonic: number;
    /** The milliseconds since then, by the clock that says more. */
    elapsed(): number;
    #private;
}
/**
 * The window of a lease: it lasts at least until its TTL after the moment before it was requested. The times in answers
 * are never used.
 */
export class Validity {
    /** @param {string} what @param {() => boolean} beatsFail */
    constructor(what: string, beatsFail: () => boolean);
    ttlMs: number;
    loss: Loss;
    /** Aborts at the end, with the cause as its reason. */
    get signal(): AbortSignal;
    /**
     * Moves the window after a grant or a renewal that was requested after since. holdLeftMs is the rest of the longest
     * time that the lease may be held, which no renewal moves.
     *
     * @param {Clocks} since @param {number} ttlMs @param {number | undefined} holdLeftMs
     */
    set(since: Clocks, ttlMs: number, holdLeftMs: number | undefined): void;
    /**
     * Reads the clocks, ends the validity if its window is over, and returns why it has ended.
     *
     * @returns {FencegateError | undefined}
     */
    check(): FencegateError | undefined;
    /** The milliseconds that are left of the window. */
    leftMs(): number;
    /**
     * Ends the validity, and returns the cause of its first end.
     *
     * @param {FencegateError} cause
     * @returns {FencegateError}
     */
    end(cause: FencegateError): FencegateError;
    /**
     * Makes the error of a loss.
     *
     * @param {string} why @param {string} reason @param {unknown} [cause]
     */
    lost(why: string, reason: string, cause?: unknown): NotHolderError;
    /**
     * Notes the pause if it explains the loss: the window is over, and would not be without it. A pause that is shorter
     * than the time between two heartbeats leaves time for one.
     *
     * @param {string} reason
     */
    noteLoss(reason: string): void;
    #private;
}
import { Loss } from './errors.js';
import { FencegateError } from './errors.js';
import { NotHolderError } from './errors.js';
