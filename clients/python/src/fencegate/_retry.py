"""Retries of calls that may be sent again as they are."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Awaitable, Callable, Coroutine, NamedTuple, Optional, TypeVar

from .errors import ApiError, FencegateError, is_retryable, settles

T = TypeVar("T")


class Policy(NamedTuple):
    """Bounds retries. Pauses are random, at most base, 2·base, 4·base … longest."""

    attempts: int = 100
    base: float = 0.05
    longest: float = 2.0
    #: How long after the first try the last one may begin.
    within: float = 30.0

    def pause(self, attempt: int, hint: float = 0) -> float:
        longest = min(self.longest, self.base * float(2 ** min(attempt - 1, 30)))
        return min(hint, self.longest) + random.random() * longest


UNTIL_ANSWERED = Policy()
#: Short: the caller of a try wants its result, and a wait sends its next request.
LOST_ANSWERS = Policy(attempts=5, longest=1.0, within=10.0)


def hint_of(error: FencegateError) -> float:
    return error.retry_after if isinstance(error, ApiError) else 0


async def retry(
    policy: Policy, send: Callable[[], Awaitable[T]], again: Callable[[FencegateError], bool] = is_retryable
) -> T:
    """Calls send until it succeeds, or fails with an error that again does not accept, or the policy ends it. The
    error's outcome_unknown is true if one of the tries may have been applied and no later one has settled it."""
    began, attempt, doubt = time.monotonic(), 0, Doubt()
    while True:
        attempt += 1
        try:
            return await send()
        except FencegateError as error:
            doubt.add_to(error)
            pause = policy.pause(attempt, hint_of(error))
            if not again(error) or attempt >= policy.attempts or time.monotonic() - began + pause > policy.within:
                raise
        await asyncio.sleep(pause)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Is asyncio.wait_for, which before Python 3.12 may lose an error of work when it is canceled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        task.cancel()


class Doubt:
    """Whether an earlier attempt of a call may have been applied."""

    def __init__(self) -> None:
        self._unknown: Optional[FencegateError] = None

    def add_to(self, error: FencegateError) -> None:
        """Notes the outcome of the latest attempt in its error, together with those before it."""
        if self._unknown and not settles(error):
            error.outcome_unknown = True
        if error.outcome_unknown:
            self._unknown = error
