"""How the client for threads ends a lease: python3 -m unittest tests.test_end."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any, Callable, List, Optional

from fencegate._lease import AsyncLease
from fencegate._validity import Clocks, Validity
from fencegate.aio import AsyncClient
from fencegate.client import LostEvent
from fencegate.errors import ClientClosed, FencegateError


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

    def test_a_wait_that_times_out_reads_the_clocks(self) -> None:
        """A wait returns true if the lease has ended by the clocks, also where the event loop has not seen that yet: the
        process may have been frozen."""
        asyncio.run(self._wait_beyond_the_end())

    async def _wait_beyond_the_end(self) -> None:
        validity = Validity("the lease")
        lost = LostEvent(Held(validity))  # type: ignore[arg-type]
        validity.set(Clocks.read(), 0.2, None)
        self.assertTrue(lost.wait(0.3))  # the event loop waits, too

    def test_a_callback_that_raises_stops_no_other(self) -> None:
        """All callbacks are called at the end, also after one that raises, and the caller that found the end does not get
        that exception: the event loop reports it."""
        asyncio.run(self._raise_at_the_end())

    async def _raise_at_the_end(self) -> None:
        reported: List[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        failure = ValueError("of the user")
        called: List[FencegateError] = []

        def fail(_: FencegateError) -> None:
            raise failure

        validity = Validity("the lease")
        validity.on_end(fail)
        validity.on_end(called.append)
        validity.set(Clocks.read(), 0.0, None)
        self.assertEqual(called, [validity.check()])
        await asyncio.sleep(0)
        self.assertEqual(reported, [failure])

    def test_another_thread_ends_a_wait(self) -> None:
        """wait_lost returns also where another thread finds the end. In its debug mode, asyncio refuses what would wake
        no loop."""
        asyncio.run(self._end_in_a_thread(), debug=True)

    async def _end_in_a_thread(self) -> None:
        client = AsyncClient("http://127.0.0.1:1")
        client._loop = asyncio.get_running_loop()
        lease = AsyncLease(client, {"lock": "job", "lease_id": "l", "owner_id": "o", "fencing_token": 1})
        waiting = asyncio.ensure_future(lease.wait_lost())
        await asyncio.sleep(0)  # it waits
        cause = ClientClosed("the client is closed")
        await asyncio.get_running_loop().run_in_executor(None, lease._stop, cause)
        self.assertIs(await waiting, cause)
        await client.close()


if __name__ == "__main__":
    unittest.main()
