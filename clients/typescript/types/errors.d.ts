/**
 * Makes the error of a problem document.
 *
 * @param {Problem} problem @param {{retryAfterMs?: number, cause?: unknown}} [more] @returns {ApiError}
 */
export function ofProblem(problem: Problem, more?: {
    retryAfterMs?: number;
    cause?: unknown;
}): ApiError;
/**
 * Makes an error that no gateway has sent.
 *
 * @param {string} code @param {string} detail
 * @param {{outcomeUnknown?: boolean, permanent?: boolean, reason?: string, cause?: unknown}} [more]
 */
export function local(code: string, detail: string, more?: {
    outcomeUnknown?: boolean;
    permanent?: boolean;
    reason?: string;
    cause?: unknown;
}): ApiError;
/**
 * Says whether a refusal proves that no earlier attempt of the same call was applied. The gateway looks for the same
 * write or request_id first: an applied attempt would have been answered as a replay. token_stale hides an earlier
 * write where the fence has seen a newer one.
 *
 * @param {unknown} error
 */
export function settles(error: unknown): boolean;
/** Each error of this package is one. */
export class FencegateError extends Error {
    /** @param {string} message @param {ErrorOptions} [options] */
    constructor(message: string, options?: ErrorOptions);
    /** Whether a change may have been applied although the call failed. */
    outcomeUnknown: boolean;
    /** Whether the same call may succeed the next time. */
    retryable: boolean;
}
/** The client is closed. */
export class ClientClosed extends FencegateError {
}
/** This process has released the lease. */
export class LeaseReleased extends FencegateError {
}
/** The answer is not fencegate's: a proxy's page, or another service. A change may have been applied. */
export class ForeignAnswer extends FencegateError {
}
/**
 * The problem document of a refusal. docs/api.md describes all fields.
 *
 * @typedef {{
 *   code: string, detail?: string, status?: number, retryable?: boolean, reason?: string, outcome?: string,
 *   token?: number, sequence?: number, last_token?: number, last_sequence?: number, version?: number,
 *   holder?: {owner_id: string, expires_at: string}, queue_length?: number, recommended_retry_ms?: number,
 *   [field: string]: unknown
 * }} Problem
 */
/**
 * A gateway has refused the call, or no gateway has answered. A code that has no class of its own is a plain ApiError:
 * decide on code and retryable then.
 */
export class ApiError extends FencegateError {
    /** @param {Problem} problem @param {{retryAfterMs?: number, cause?: unknown}} [more] */
    constructor(problem: Problem, more?: {
        retryAfterMs?: number;
        cause?: unknown;
    });
    /** All fields of the problem document. */
    problem: Problem;
    code: string;
    reason: string;
    /** The pause that the gateway asks for. */
    retryAfterMs: number;
}
/** The request is malformed; the message names the field and the limit. */
export class InvalidRequest extends ApiError {
}
/** A lock, resource or key has no valid name. */
export class InvalidName extends ApiError {
}
export class InvalidToken extends ApiError {
}
/** There is no credential, or a bad one. */
export class Unauthenticated extends ApiError {
}
/** The caller may not do this on this name. */
export class Forbidden extends ApiError {
}
/** There is no such lock or record. */
export class NotFound extends ApiError {
}
/** Another lease holds the lock, or waiters are ahead in its queue. */
export class LockHeld extends ApiError {
    /** The owner that holds the lock; undefined if it is free and others wait before the caller. */
    get holder(): string | undefined;
}
/** The wait would close a cycle of owners that wait for each other: problem.cycle. */
export class Deadlock extends ApiError {
}
/** What this process knows about the loss of a lease. All errors of the lease share it. */
export class Loss {
    pausedMs: number;
    /** @type {{owner_id: string, granted_at: string} | undefined} */
    holder: {
        owner_id: string;
        granted_at: string;
    } | undefined;
    toString(): string;
}
/**
 * The caller is not the holder: stop. It is the parent of LeaseLost and TokenStale, whichever comes first after a loss,
 * and of TokenUnknown, LeaseMismatch and LeaseExpired.
 */
export class NotHolderError extends ApiError {
    /**
     * For how long this process or its event loop did not run, at least, if that is why the lease was not renewed; 0: it
     * is not, or was not measured. The clock is monotonic, and may miss a suspended system.
     */
    get pausedMs(): number;
    /**
     * The owner of the newer lease on the lock, at the moment at which a call has found the loss; undefined: there was
     * none, the caller may not see it, or no gateway answered within half a second.
     */
    get holder(): string | undefined;
    /** When that lease was granted, by the database's clock (RFC 3339). */
    get heldSince(): string | undefined;
    /**
     * Returns the same error with what is known about the loss, and with the stack of a caller.
     *
     * @internal @param {Loss} loss @param {Error} caller
     */
    to(loss: Loss, caller: Error): NotHolderError;
    #private;
}
/** The lease is not the lock's current one any more. Stop the work that it protected. */
export class LeaseLost extends NotHolderError {
}
/** The token may not write any more, or its number is used; see reason. The caller is not the holder: stop. */
export class TokenStale extends NotHolderError {
}
/** The token was never granted on this name. */
export class TokenUnknown extends NotHolderError {
}
export class TokenRequired extends ApiError {
}
export class LeaseMismatch extends NotHolderError {
}
/** The policy demands a live lease, and this one has expired. */
export class LeaseExpired extends NotHolderError {
}
/** A condition on the record does not hold. */
export class VersionMismatch extends ApiError {
    /** The record's current version; 0: there is no record. */
    get version(): number;
}
export class RowsMismatch extends ApiError {
}
/** A constraint of a protected table has refused a row. */
export class ConstraintViolation extends ApiError {
}
export class TooLarge extends ApiError {
}
/** The caller sends too much; try again after retryAfterMs. */
export class RateLimited extends ApiError {
}
/**
 * No gateway was reached, or it can't serve now. outcomeUnknown says whether a change may have been applied. retryable is
 * false if no retry can succeed, as where the certificate is of an unknown authority.
 */
export class Unavailable extends ApiError {
}
/** The gateway has a defect; its log has the details. */
export class Internal extends ApiError {
}
export function isNotServed(error: unknown): error is ForeignAnswer | Unavailable;
export function isRetryable(error: unknown): boolean;
/**
 * The problem document of a refusal. docs/api.md describes all fields.
 */
export type Problem = {
    code: string;
    detail?: string;
    status?: number;
    retryable?: boolean;
    reason?: string;
    outcome?: string;
    token?: number;
    sequence?: number;
    last_token?: number;
    last_sequence?: number;
    version?: number;
    holder?: {
        owner_id: string;
        expires_at: string;
    };
    queue_length?: number;
    recommended_retry_ms?: number;
    [field: string]: unknown;
};
