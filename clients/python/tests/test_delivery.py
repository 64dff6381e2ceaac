"""What is not delivered to the caller: python3 -m unittest tests.test_delivery, with the gateway of FENCEGATE_URL."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import threading
import time
import unittest
from typing import List, Optional

import fencegate

LIMIT = 10.0
ROUNDS = 100


class Interrupt(BaseException):
    """Is raised into a call, as a soft time limit or Ctrl-C is."""


def interrupt(thread: int, pause: float) -> None:
    time.sleep(pause)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Interrupt))


class TestDelivery(unittest.TestCase):
    def test_an_interrupted_acquire_leaves_no_lease(self) -> None:
        """An exception that is raised into acquire, at any point of it, leaves no lease but what it has returned."""
        with fencegate.Client(os.environ["FENCEGATE_URL"]) as client:
            prefix = client.owner.replace("/", "-")
            began = time.monotonic()
            client.acquire(f"{prefix}/warm").release()
            longest = time.monotonic() - began
            returned: List[Optional[fencegate.Lease]] = []
            for i in range(ROUNDS):
                returned.append(self.interrupted(client, f"{prefix}/{i}", random.uniform(0, longest)))
            for i, lease in enumerate(returned):
                if lease is not None:
                    self.assertEqual(client.lock_state(lease.name)["fencing_token"], lease.fencing_token)
                    lease.release()
            deadline = time.monotonic() + LIMIT
            held = [f"{prefix}/{i}" for i in range(ROUNDS)]
            while held and time.monotonic() < deadline:
                held = [name for name in held if self.is_held(client, name)]
            self.assertEqual(held, [], f"{len(held)} leases are held that acquire has not returned")

    def interrupted(self, client: fencegate.Client, lock: str, pause: float) -> Optional[fencegate.Lease]:
        """Returns what acquire has returned before, or although, the exception was raised."""
        lease: Optional[fencegate.Lease] = None
        try:
            threading.Thread(target=interrupt, args=(threading.get_ident(), pause)).start()
            lease = client.acquire(lock, ttl=2 * LIMIT)
            while True:
                time.sleep(0.001)  # until the exception is raised
        except Interrupt:
            return lease

    def is_held(self, client: fencegate.Client, lock: str) -> bool:
        try:
            return bool(client.lock_state(lock)["state"] == "held")
        except fencegate.NotFound:
            return False

    def test_an_answer_without_a_length_is_read_to_its_end(self) -> None:
        """A record arrives whole also where the answer ends with the connection, as a proxy of HTTP/1.0 sends it."""
        asyncio.run(self._read_in_parts())

    async def _read_in_parts(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\nFencing-Token: 1\r\nETag: \"1\"\r\n\r\n" + b"x" * 1000)
            await writer.drain()
            for _ in range(100):  # turns of the event loop, in which the client reads the first half
                await asyncio.sleep(0)
            writer.write(b"x" * 1000)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = fencegate.AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            self.assertEqual(len((await client.get("job", "key")).value), 2000)
        finally:
            await client.close()
            server.close()


if __name__ == "__main__":
    unittest.main()
