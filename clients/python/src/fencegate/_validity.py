"""For how long this process may rely on a lease."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from .errors import FencegateError, LeaseLost, LeaseReleased, Loss, NotHolder

#: The longest time between two looks at the wall clock: timers miss a suspended system.
_CHECK_EVERY = 1.0
BEATS_PER_TTL = 3
#: Reasons of gateways which no renewal would have prevented.
_LOST_WITHOUT_PAUSE = ("broken", "released")


def window(ttl: float) -> float:
    """A hundredth of the TTL does not count: the database's clock may run faster than this machine's."""
    return ttl * 0.99


class Clocks(NamedTuple):
    """A point in time by both clocks of this machine. The monotonic one may stop while the system is suspended, and
    people and NTP set the wall clock."""

    monotonic: float
    wall: float

    @classmethod
    def read(cls) -> Clocks:
        return cls(time.monotonic(), time.time())

    def elapsed(self) -> float:
        """The time since then, by the clock that says more."""
        now = Clocks.read()
        return max(now.monotonic - self.monotonic, now.wall - self.wall)


class Validity:
    """The window of a lease: it lasts at least until its TTL after the moment before it was requested. The times in
    answers are never used. Any thread may check it, and the event loop moves it."""

    def __init__(self, what: str, beats_fail: Callable[[], bool] = lambda: False) -> None:
        self._what, self._beats_fail = what, beats_fail
        self._loop = asyncio.get_running_loop()
        self._mutex = threading.Lock()
        self._windows: List[Tuple[Clocks, float]] = []
        self._timer: Optional[asyncio.TimerHandle] = None
        self._cause: Optional[FencegateError] = None
        self._callbacks: List[Callable[[FencegateError], None]] = []
        self.ttl = 0.0
        self.loss = Loss()
        #: When the timer should run, by the monotonic clock; None: it is not armed.
        self._due: Optional[float] = None
        #: The longest pause in the window: by how much the timer was late, and when it was due.
        self._pause, self._paused_at = 0.0, 0.0

    def set(self, since: Clocks, ttl: float, hold_left: Optional[float]) -> None:
        """Moves the window after a grant or a renewal that was requested after since. hold_left is the rest of the
        longest time that the lease may be held, which no renewal moves."""
        windows = [(since, window(ttl))]
        if hold_left is not None:
            windows.append((since, window(hold_left)))
        with self._mutex:
            self._note_pause()
            self.ttl, self._windows = ttl, windows
        self._arm()

    def check(self) -> Optional[FencegateError]:
        """Reads the clocks, ends the validity if its window is over, and returns why it has ended."""
        with self._mutex:
            cause, windows = self._cause, self._windows
            self._note_pause()
        for since, length in windows:
            if cause is None and since.elapsed() >= length:
                cause = self.end(self.lost("its TTL may have run out before a renewal was answered", "expired"))
        return cause

    def left(self) -> float:
        """The seconds that are left of the window."""
        if self.check() is not None:
            return 0
        return max(0, min((length - since.elapsed() for since, length in self._windows), default=0))

    def end(self, cause: FencegateError) -> FencegateError:
        """Ends the validity, calls all callbacks, and returns the cause of its first end. A callback that raises is
        reported by the event loop: neither the others nor the caller that found the end are at fault."""
        with self._mutex:
            if self._cause is not None:
                return self._cause
            self._cause, callbacks = cause, self._callbacks
            self._note_pause()
            self._due = None
        for callback in callbacks:
            try:
                callback(cause)
            except Exception as error:
                self._report(error)
        return cause

    def on_end(self, callback: Callable[[FencegateError], None]) -> None:
        """Has callback called at the end, by the thread that finds it; at once if it has come."""
        with self._mutex:
            if self._cause is None:
                self._callbacks.append(callback)
                return
        callback(self._cause)

    def on_loss(self, callback: Callable[[FencegateError], None]) -> None:
        """Is on_end, but for a release by this process."""
        self.on_end(lambda cause: None if isinstance(cause, LeaseReleased) else callback(cause))

    def _report(self, error: Exception) -> None:
        context = {"message": f"a callback for the end of {self._what} failed", "exception": error}
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_exception_handler, context)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.check() is None:
            left = min(self.left(), _CHECK_EVERY)
            self._due = time.monotonic() + left
            self._timer = self._loop.call_later(left, self._arm)

    def lost(self, why: str, reason: str) -> LeaseLost:
        """Makes the error of a loss."""
        error = LeaseLost({"code": LeaseLost.code, "detail": f"{self._what} is lost: {why}", "reason": reason})
        self.note_loss(error)
        return error

    def note_loss(self, error: NotHolder) -> None:
        """Has an error say what is known about the loss."""
        error._loss = self.loss
        if not self.loss.paused and error.reason not in _LOST_WITHOUT_PAUSE and not self._beats_fail():
            self.loss.paused = self._paused()

    def _note_pause(self) -> None:
        """Looks at the clock. The mutex is held."""
        if self._windows and self._paused_at < self._windows[0][0].monotonic:
            self._pause = 0.0
        late = 0.0 if self._due is None else time.monotonic() - self._due
        if self._due is not None and late > self._pause:
            self._pause, self._paused_at = late, self._due

    def _paused(self) -> float:
        """For how long nothing ran, if the window is over, and would not be without that. A pause that is shorter than
        the time between two heartbeats leaves time for one."""
        with self._mutex:
            self._note_pause()
            if not self._windows:
                return 0.0
            since, length = self._windows[0]
            over = since.elapsed() - length
            return self._pause if self._pause >= self.ttl / BEATS_PER_TTL and 0 <= over < self._pause else 0.0
