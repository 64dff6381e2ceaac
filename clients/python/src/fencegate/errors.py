"""The errors of the client: one class for each code of the API."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, Mapping, Optional, Tuple, Type


class FencegateError(Exception):
    """Each error of this package is one."""

    #: Whether a change may have been applied although the call failed.
    outcome_unknown: bool = False
    #: Whether the same call may succeed the next time.
    retryable: bool = False


class ClientClosed(FencegateError):
    """The client is closed."""


class LeaseReleased(FencegateError):
    """This process has released the lease."""


class ForeignAnswer(FencegateError):
    """The answer is not fencegate's: a proxy's page, or another service. A change may have been applied."""

    def __init__(self, text: str, *, outcome_unknown: bool, retryable: bool = True) -> None:
        super().__init__(text)
        self.outcome_unknown, self.retryable = outcome_unknown, retryable


class ApiError(FencegateError):
    """A gateway has refused the call, or no gateway has answered. A code that has no class of its own is a plain
    ApiError: decide on code and retryable then."""

    code = ""

    def __init__(
        self, problem: Mapping[str, Any], *, retry_after: float = 0, outcome_unknown: Optional[bool] = None
    ) -> None:
        #: All fields of the problem document, as docs/api.md describes them.
        self.problem: Dict[str, Any] = dict(problem)
        self.code = str(problem.get("code", self.code))
        self.reason: str = problem.get("reason", "")
        self.detail: str = problem.get("detail", "")
        self.status: int = problem.get("status", 0)
        self.retryable = problem.get("retryable", False)
        #: The pause in seconds that the gateway asks for.
        self.retry_after = retry_after
        self.outcome_unknown = problem.get("outcome") == "unknown" if outcome_unknown is None else outcome_unknown
        super().__init__(f"{self.code}: {self.detail}")


class InvalidRequest(ApiError):
    """The request is malformed; detail names the field and the limit."""

    code = "invalid_request"


class InvalidName(ApiError):
    """A lock, resource or key has no valid name."""

    code = "invalid_name"


class InvalidToken(ApiError):
    code = "invalid_token"


class Unauthenticated(ApiError):
    """There is no credential, or a bad one."""

    code = "unauthenticated"


class Forbidden(ApiError):
    """The caller may not do this on this name."""

    code = "forbidden"


class NotFound(ApiError):
    """There is no such lock or record."""

    code = "not_found"


class LockHeld(ApiError):
    """Another lease holds the lock, or waiters are ahead in its queue."""

    code = "lock_held"

    @property
    def holder(self) -> Optional[str]:
        """The owner that holds the lock; None if it is free and others wait before the caller."""
        holder = self.problem.get("holder")
        return holder["owner_id"] if holder else None


class Deadlock(ApiError):
    """The wait would close a cycle of owners that wait for each other: problem["cycle"]."""

    code = "deadlock"


class Loss:
    """What this process knows about the loss of a lease. All errors of the lease share it."""

    def __init__(self) -> None:
        self.paused = 0.0
        self.holder: Optional[str] = None
        self.held_since: Optional[str] = None

    def __str__(self) -> str:
        parts = []
        if self.paused:
            parts.append(f"this process or its event loop did not run for at least {self.paused:.1f} s")
        if self.holder is not None:
            parts.append(f"{self.holder} has held the lock since {self.held_since}")
        return f" ({'; '.join(parts)})" if parts else ""


class NotHolder(ApiError):
    """The caller is not the holder: stop. It is the parent of LeaseLost and TokenStale, whichever comes first after a
    loss, and of TokenUnknown, LeaseMismatch and LeaseExpired."""

    #: Set by the lease that was lost.
    _loss = Loss()

    def __str__(self) -> str:
        return f"{super().__str__()}{self._loss}"

    @property
    def paused(self) -> float:
        """For how many seconds this process or its event loop did not run, at least, if that is why the lease was not
        renewed; 0: it is not, or was not measured. The clock is monotonic, and may miss a suspended system."""
        return self._loss.paused

    @property
    def holder(self) -> Optional[str]:
        """The owner of the newer lease on the lock, at the moment at which a call has found the loss. None: there was
        none, the caller may not see it, or no gateway answered within half a second."""
        return self._loss.holder

    @property
    def held_since(self) -> Optional[str]:
        """When that lease was granted, by the database's clock (RFC 3339)."""
        return self._loss.held_since


class LeaseLost(NotHolder):
    """The lease is not the lock's current one any more. Stop the work that it protected."""

    code = "lease_lost"


class TokenStale(NotHolder):
    """The token may not write any more, or its number is used; see reason. The caller is not the holder: stop."""

    code = "token_stale"


class TokenUnknown(NotHolder):
    """The token was never granted on this name."""

    code = "token_unknown"


class TokenRequired(ApiError):
    code = "token_required"


class LeaseMismatch(NotHolder):
    code = "lease_mismatch"


class LeaseExpired(NotHolder):
    """The policy demands a live lease, and this one has expired."""

    code = "lease_expired"


class VersionMismatch(ApiError):
    """A condition on the record does not hold."""

    code = "version_mismatch"

    @property
    def version(self) -> int:
        """The record's current version; 0: there is no record."""
        return int(self.problem.get("version", 0))


class RowsMismatch(ApiError):
    code = "rows_mismatch"


class ConstraintViolation(ApiError):
    """A constraint of a protected table has refused a row."""

    code = "constraint_violation"


class TooLarge(ApiError):
    code = "too_large"


class RateLimited(ApiError):
    """The caller sends too much; try again after retry_after."""

    code = "rate_limited"


class Unavailable(ApiError):
    """No gateway was reached, or it can't serve now. outcome_unknown says whether a change may have been applied.
    retryable is false if no retry can succeed, as where the certificate is of an unknown authority."""

    code = "unavailable"


class Internal(ApiError):
    """The gateway has a defect; its log has the details."""

    code = "internal"


_CLASSES: Dict[str, Type[ApiError]] = {
    each.code: each for each in [*ApiError.__subclasses__(), *NotHolder.__subclasses__()]
}


def of_problem(problem: Mapping[str, Any], *, retry_after: float = 0) -> ApiError:
    """Makes the error of a problem document."""
    return _CLASSES.get(str(problem["code"]), ApiError)(problem, retry_after=retry_after)


def local(code: str, detail: str, *, outcome_unknown: bool = False, permanent: bool = False) -> ApiError:
    """Makes an error that no gateway has sent."""
    problem = {"code": code, "detail": detail, "retryable": code == Unavailable.code and not permanent}
    error = of_problem(problem)
    error.outcome_unknown = outcome_unknown
    return error


#: The refusals that prove nothing of an earlier attempt: they come before the gateway looks for it.
_BEFORE_THE_LOOK = (Unavailable, Internal, RateLimited, Unauthenticated, Forbidden)


def settles(error: BaseException) -> bool:
    """Says whether a refusal proves that no earlier attempt of the same call was applied. The gateway looks for the
    same write or request_id first: an applied attempt would have been answered as a replay. token_stale hides an
    earlier write where the fence has seen a newer one."""
    if not isinstance(error, ApiError) or isinstance(error, _BEFORE_THE_LOOK) or error.code == "unknown_host":
        return False
    if not isinstance(error, TokenStale):
        return True
    problem = error.problem
    if problem.get("token") is None or problem.get("last_token") is None:
        return False
    sent: Tuple[int, int] = (problem["token"], problem.get("sequence") or 0)
    return sent > (problem["last_token"], problem.get("last_sequence") or 0)


def is_retryable(error: BaseException) -> bool:
    """Says whether the same call may succeed the next time."""
    if isinstance(error, (Unavailable, RateLimited, ForeignAnswer)):
        return error.retryable
    return isinstance(error, asyncio.TimeoutError)
