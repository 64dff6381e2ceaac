export { Client, StoredRecord } from './client.js';
export { Lease } from './lease.js';
export {
  ApiError, ClientClosed, ConstraintViolation, Deadlock, FencegateError, Forbidden, ForeignAnswer, Internal,
  InvalidName, InvalidRequest, InvalidToken, LeaseExpired, LeaseLost, LeaseMismatch, LeaseReleased, LockHeld, NotFound,
  NotHolderError, RateLimited, RowsMismatch, TokenRequired, TokenStale, TokenUnknown, TooLarge, Unauthenticated, Unavailable,
  VersionMismatch,
} from './errors.js';

/** @typedef {import('./client.js').ClientOptions} ClientOptions */
/** @typedef {import('./client.js').AcquireOptions} AcquireOptions */
/** @typedef {import('./lease.js').WriteOptions} WriteOptions */
/** @typedef {import('./lease.js').WriteResult} WriteResult */
/** @typedef {import('./writes.js').BulkWrite} BulkWrite */
/** @typedef {import('./writes.js').WriteOutcome} WriteOutcome */
