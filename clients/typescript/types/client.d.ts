/** A stored record, and the token of the write that stored it. */
export class StoredRecord {
    /** @param {Answer} answer */
    constructor({ headers, body }: Answer);
    value: Uint8Array<ArrayBufferLike>;
    contentType: string;
    version: number;
    fencingToken: number;
    sequence: number | undefined;
    /** The value as text. */
    text(): string;
    /** The value as JSON. @returns {any} */
    json(): any;
}
/**
 * Calls the gateways of one database. Make one and keep it: it remembers which gateway works. A lease that is held
 * keeps a process of Node.js running, as an open connection does.
 */
export class Client {
    /** @param {string} url @param {ClientOptions} [options] */
    constructor(url: string, options?: ClientOptions);
    /** The owner of this client's leases. */
    owner: string;
    /**
     * Ends heartbeats and waits. It releases nothing: release before, or let the TTLs end the leases. What was granted
     * can still be released and written under.
     */
    close(): void;
    /**
     * Acquires a lease on a lock.
     *
     * LockHeld: another lease holds the lock. Deadlock: the wait would never end. Unavailable: no gateway could serve. If
     * the signal ends the wait, acquire rejects with its reason.
     *
     * @param {string} lock @param {AcquireOptions} [options] @returns {Promise<Lease>}
     */
    acquire(lock: string, options?: AcquireOptions): Promise<Lease>;
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
    do<T>(lock: string, work: (lease: Lease, signal: AbortSignal) => T | Promise<T>, options?: AcquireOptions): Promise<T>;
    /**
     * Returns a record. NotFound: there is none. A durable read returns what no failover can take back.
     *
     * @param {string} resource @param {string} key @param {{durable?: boolean, signal?: AbortSignal}} [options]
     */
    get(resource: string, key: string, { durable, signal }?: {
        durable?: boolean;
        signal?: AbortSignal;
    }): Promise<StoredRecord>;
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
    writes(writes: import("./writes.js").BulkWrite[], { signal }?: {
        signal?: AbortSignal;
    }): Promise<import("./writes.js").WriteOutcome[]>;
    /**
     * Returns the state of a lock, its holders and its queue, as docs/api.md describes it.
     *
     * @param {string} lock @param {{signal?: AbortSignal}} [options]
     * @returns {Promise<{
     *   lock: string, state: 'free' | 'held' | 'expired', fencing_token: number, holders: Record<string, unknown>[],
     *   queue: Record<string, unknown>[]
     * }>}
     */
    lockState(lock: string, { signal }?: {
        signal?: AbortSignal;
    }): Promise<{
        lock: string;
        state: "free" | "held" | "expired";
        fencing_token: number;
        holders: Record<string, unknown>[];
        queue: Record<string, unknown>[];
    }>;
    /**
     * Ends the lease of a lock, and closes the fence behind it: for administrators.
     *
     * @param {string} lock @param {string} reason
     */
    breakLock(lock: string, reason: string): Promise<void>;
    #private;
}
export type Answer = import("./calls.js").Answer;
export type Granted = import("./lease.js").Granted;
/**
 * Options of a client. failover has the URLs of more gateways of the same database. owner is shown to others as the
 * holder: two processes must not share one. token is an API key, or a function that returns the current one.
 * answerTimeoutMs bounds the time of one gateway for its answer, beyond the time that it was asked to wait for a lock.
 * answerBytesMax bounds the body of an answer, by default 256 MiB: a longer one is a ForeignAnswer.
 */
export type ClientOptions = {
    failover?: string[];
    owner?: string;
    token?: import("./calls.js").Token;
    headers?: Record<string, string>;
    answerTimeoutMs?: number;
    answerBytesMax?: number;
    fetch?: typeof fetch;
};
/**
 * Options of an acquire. ttlMs: how long the lease lasts without a renewal, by default 30 s. waitMs: how long to wait
 * in the lock's queue; 0, the default, is one try, and Infinity waits without an end. heartbeat: whether the lease is
 * renewed in the background, by default yes. A shared lease is one of many, and can't write. A subtree lease is on the
 * name and all names below it. signal ends the wait: it leaves the queue.
 */
export type AcquireOptions = {
    ttlMs?: number;
    waitMs?: number;
    heartbeat?: boolean;
    shared?: boolean;
    subtree?: boolean;
    owner?: string;
    metadata?: Record<string, unknown>;
    signal?: AbortSignal;
};
import { Lease } from './lease.js';
