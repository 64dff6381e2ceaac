export { Lease } from "./lease.js";
export type ClientOptions = import("./client.js").ClientOptions;
export type AcquireOptions = import("./client.js").AcquireOptions;
export type WriteOptions = import("./lease.js").WriteOptions;
export type WriteResult = import("./lease.js").WriteResult;
export type BulkWrite = import("./writes.js").BulkWrite;
export type WriteOutcome = import("./writes.js").WriteOutcome;
export { Client, StoredRecord } from "./client.js";
export { ApiError, ClientClosed, ConstraintViolation, Deadlock, FencegateError, Forbidden, ForeignAnswer, Internal, InvalidName, InvalidRequest, InvalidToken, LeaseExpired, LeaseLost, LeaseMismatch, LeaseReleased, LockHeld, NotFound, NotHolderError, RateLimited, RowsMismatch, TokenRequired, TokenStale, TokenUnknown, TooLarge, Unauthenticated, Unavailable, VersionMismatch } from "./errors.js";
