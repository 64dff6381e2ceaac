"""How the client for threads ends a lease: python3 -m unittest tests.test_end."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any, Callable, List, Optional

from fencegate._validity import Clocks, Validity
from fencegate.client import LostEvent
from fencegate.errors import FencegateError


class Held:
    """What LostEvent needs of a lease."""

    def __init__(self, validity: Validity) -> None:
        self._validity = validity

    @property
    def valid(self) -> bool:
        return self.error is None

    @property
    def error(self) -> Optional[FencegateError]:
        return self._validity.check()

    def on_lost(self, callback: Callable[[FencegateError], None]) -> None:
        self._validity.on_loss(callback)


class TestEnd(unittest.TestCase):
    def test_every_thread_sees_the_end(self) -> None:
        """The event is set for a thread that looks while another one ends the lease, and is not that far."""
        asyncio.run(self._look_within_the_end())

    async def _look_within_the_end(self) -> None:
        seen: List[bool] = []
        validity = Validity("the lease")
        lost: Any = None
        validity.on_end(lambda _: seen.append(lost.is_set()))  # before the event's own
        lost = LostEvent(Held(validity))  # type: ignore[arg-type]
        validity.set(Clocks.read(), 0.0, None)
        self.assertIsNotNone(validity.check())
        self.assertEqual(seen, [True])


if __name__ == "__main__":
    unittest.main()
