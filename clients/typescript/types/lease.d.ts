/** @param {Granted} granted @param {string} verb @returns {Call} */
export function leaseCall({ lock, owner_id, lease_id, fencing_token }: Granted, verb: string): Call;
/**
 * A lock that was granted to this process. It ends by release(), by its loss, or with its client, and stays ended. Its
 * writes are still sent then: the fence decides on them, not what this process believes.
 */
export class Lease {
    /** @param {Send} send @param {Granted} granted */
    constructor(send: Send, granted: Granted);
    /** The lease as it was granted. */
    info: Granted;
    name: string;
    /** A secret of the holder. */
    id: string;
    owner: string;
    /** Greater than every token granted on this name before. Pass it to each system that the work writes to. */
    fencingToken: number;
    /**
     * The error of the last heartbeat; undefined if it succeeded, or if there was none yet.
     *
     * @type {FencegateError | undefined}
     */
    heartbeatError: FencegateError | undefined;
    toString(): string;
    /**
     * Aborts when the lease ends, with the reason LeaseLost, LeaseReleased or ClientClosed: if it is lost, no later than
     * the moment at which another holder may be granted the lock. Reading the property reads the clocks: a process that
     * was frozen past the end sees it at once.
     */
    get signal(): AbortSignal;
    /** Why the lease has ended; undefined while it can be relied on, by the clocks and by all answers. */
    get error(): FencegateError | undefined;
    /** Whether the lease can be relied on at the moment of the call. */
    get valid(): boolean;
    /** For how many milliseconds the lease can be relied on without another renewal. */
    get expiresInMs(): number;
    /** Renews the lease now. A lease that has ended stays ended: LeaseLost. */
    renew(): Promise<void>;
    /**
     * Ends the lease, and closes the fence behind it: later writes are TokenStale. It is resent until it is answered,
     * for some 30 seconds, and may be called again. LeaseLost: it was broken, or has expired and was replaced.
     * Unavailable: no gateway answered, and the lease ends with its TTL.
     *
     * @param {{signal?: AbortSignal}} [options]
     */
    release({ signal }?: {
        signal?: AbortSignal;
    }): Promise<void>;
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
    put(key: string, value: string | Uint8Array, options?: WriteOptions): Promise<WriteResult>;
    /**
     * Is put of a value as application/json.
     *
     * @param {string} key @param {unknown} value @param {WriteOptions} [options]
     */
    putJSON(key: string, value: unknown, options?: WriteOptions): Promise<WriteResult>;
    /**
     * Removes a record, as put stores one. NotFound: there is none.
     *
     * @param {string} key @param {Pick<WriteOptions, 'ifVersion' | 'resource' | 'signal'>} [options]
     */
    delete(key: string, options?: Pick<WriteOptions, "ifVersion" | "resource" | "signal">): Promise<WriteResult>;
    /**
     * Applies all operations as one atomic change, or none, and returns the answer: docs/api.md has their fields. An
     * operation without a resource is on the lease's own.
     *
     * @param {Record<string, unknown>[]} ops
     * @param {{signal?: AbortSignal}} [options]
     * @returns {Promise<{results: Record<string, unknown>[], replayed: boolean}>}
     */
    transaction(ops: Record<string, unknown>[], { signal }?: {
        signal?: AbortSignal;
    }): Promise<{
        results: Record<string, unknown>[];
        replayed: boolean;
    }>;
    /**
     * Calls write with the lease's token and its next number, such as "34.5", for one write to another system that
     * checks fencing tokens. All writes of the lease share the numbers: the others wait until write has ended.
     *
     * @template T @param {(token: string) => Promise<T>} write @returns {Promise<T>}
     */
    numbered<T>(write: (token: string) => Promise<T>): Promise<T>;
    /**
     * Ends the lease for this process, and returns the cause of its first end.
     *
     * @internal @param {FencegateError} cause
     */
    end(cause: FencegateError): FencegateError;
    /**
     * Starts the window of a new lease. If its request was sent long ago, the lease is renewed first, and counts from
     * then on.
     *
     * @internal @param {Clocks} since
     */
    confirm(since: Clocks): Promise<void>;
    /**
     * Renews the lease at a third of its TTL, until it ends. Failed heartbeats are retried while it lasts.
     *
     * @internal
     */
    beat(): Promise<void>;
    /**
     * Releases within five seconds. It rejects only if the lease was lost: otherwise nothing is left to do.
     *
     * @internal
     */
    finish(): Promise<void>;
    /**
     * Runs call. If it rejects with a loss, the error says what is known about that, and has the stack of the caller: the
     * error may be made in a timer.
     *
     * @internal @template T @param {() => Promise<T>} call @returns {Promise<T>}
     */
    explained<T>(call: () => Promise<T>, caller?: Error): Promise<T>;
    #private;
}
export type Answer = import("./calls.js").Answer;
export type Call = import("./calls.js").Call;
export type Send = <T>(call: Call, read: (answer: Answer) => T) => Promise<T>;
/**
 * The answer to a write. replayed says that the write had been applied before, and that this is the first answer.
 */
export type WriteResult = {
    version: number;
    fencing_token: number;
    sequence: number;
    replayed: boolean;
};
/**
 * Options of a write. ifVersion: the record must have this version. ifAbsent: there must be none. resource: the name
 * of a resource below the lock's own, under a subtree lease. signal ends the retries.
 */
export type WriteOptions = {
    contentType?: string;
    ifVersion?: number;
    ifAbsent?: boolean;
    resource?: string;
    signal?: AbortSignal;
};
/**
 * The lease as a gateway sends it. Its times are by the database's clock.
 */
export type Granted = {
    lock: string;
    owner_id: string;
    lease_id: string;
    fencing_token: number;
    mode: string;
    scope: string;
    ttl_ms: number;
    granted_at: string;
    expires_at: string;
    hold_left_ms?: number;
    [field: string]: unknown;
};
import { FencegateError } from './errors.js';
import { Clocks } from './validity.js';
