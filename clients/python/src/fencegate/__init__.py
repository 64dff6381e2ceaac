"""The client of fencegate: locks whose holders can't overwrite their successors' data."""

from ._lease import AsyncLease, Record, WriteResult
from .aio import AsyncClient
from .client import Client, Lease
from .errors import (
    ApiError, ClientClosed, ConstraintViolation, Deadlock, FencegateError, Forbidden, ForeignAnswer, Internal,
    InvalidName, InvalidRequest, InvalidToken, LeaseExpired, LeaseLost, LeaseMismatch, LeaseReleased, LockHeld,
    NotFound, NotHolder, RateLimited, RowsMismatch, TokenRequired, TokenStale, TokenUnknown, TooLarge,
    Unauthenticated, Unavailable, VersionMismatch,
)

__all__ = [
    "ApiError", "AsyncClient", "AsyncLease", "Client", "ClientClosed", "ConstraintViolation", "Deadlock",
    "FencegateError", "Forbidden", "ForeignAnswer", "Internal", "InvalidName", "InvalidRequest", "InvalidToken",
    "Lease", "LeaseExpired", "LeaseLost", "LeaseMismatch", "LeaseReleased", "LockHeld", "NotFound", "NotHolder",
    "RateLimited", "Record", "RowsMismatch", "TokenRequired", "TokenStale", "TokenUnknown", "TooLarge",
    "Unauthenticated", "Unavailable", "VersionMismatch", "WriteResult",
]
