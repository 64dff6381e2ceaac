"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import sys
import time
from types import TracebackType
from typing import Any, Awaitable, Callable, Coroutine, Dict, List, Mapping, Optional, Sequence, Set, Type, TypeVar, Union

from ._calls import Call, Caller, Token, as_object, with_json
from ._http import Answer
from ._lease import AsyncLease, Record, WriteResult, read_record, release_call
from ._names import name_path, record_path
from ._retry import LOST_ANSWERS, UNTIL_ANSWERED, Policy, retry, within
from ._validity import Clocks
from ._writes import Writes
from .errors import ClientClosed, FencegateError, LeaseLost, LockHeld, is_retryable

T = TypeVar("T")

#: The longest time that a gateway lets one request wait in the queue, in seconds.
_REQUEST_WAIT_MAX = 600.0
#: Bounds the release of a lease that no caller got.
_ABANDON_TIMEOUT = 5.0
_NEWEST_TOKENS_MAX = 10_000


def process_owner() -> str:
    """Names the host and the process, and is unique."""
    return f"{socket.gethostname()[:128] or 'localhost'}:{os.getpid()}:{secrets.token_hex(5)}"


class AsyncClient:
    """Calls the gateways of one database. Make one in a running event loop, and keep it: it keeps connections, and
    remembers which gateway works.

    failover has the URLs of more gateways of the same database. owner is shown to others as the holder: two processes
    must not share one. token is an API key, or a function that returns the current one. answer_timeout bounds the time
    of one gateway for its answer, in seconds, beyond the time that it was asked to wait for a lock. answer_bytes_max
    bounds the body of an answer: a longer one is a ForeignAnswer."""

    def __init__(
        self, url: str, *, failover: Sequence[str] = (), owner: Optional[str] = None, token: Token = None,
        headers: Optional[Mapping[str, str]] = None, answer_timeout: float = 30.0,
        ssl_context: Optional[ssl.SSLContext] = None, answer_bytes_max: int = 256 << 20,
    ) -> None:
        self._caller = Caller(
            [url, *failover], token=token, headers=headers or {}, answer_timeout=answer_timeout,
            ssl_context=ssl_context, answer_bytes_max=answer_bytes_max,
        )
        self.owner = owner or process_owner()
        self._newest: Dict[str, int] = {}
        self._tasks: Set[asyncio.Task[None]] = set()
        self._leases: Set[AsyncLease] = set()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends heartbeats and connections. It releases nothing: release before, or let the TTLs end the leases. What
        was granted can still be released and written under."""
        self._closed = True
        for lease in list(self._leases):
            lease._stop(ClientClosed("the client is closed"))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._caller.close()

    async def acquire(
        self, lock: str, *, ttl: float = 30.0, wait: Optional[float] = 0, heartbeat: bool = True,
        shared: bool = False, subtree: bool = False, owner: Optional[str] = None,
        metadata: Optional[Mapping[str, Any]] = None,
    ) -> AsyncLease:
        """Acquires a lease on a lock, and renews it in the background unless heartbeat is false. wait is for how many
        seconds to wait in the lock's queue: 0 is one try, None is without an end. A shared lease is one of many, and
        can't write. A subtree lease is on the name and all names below it.

        LockHeld: another lease holds the lock. Deadlock: the wait would never end. Unavailable: no gateway could
        serve. A wait that is canceled leaves the queue."""
        self._loop = asyncio.get_running_loop()
        body = {
            "owner_id": owner or self.owner, "ttl_ms": round(ttl * 1000), "mode": "shared" if shared else "exclusive",
            "scope": "subtree" if subtree else "node",
        }
        if metadata is not None:
            body["metadata"] = metadata
        acquiring = _Acquiring(self, lock, body, wait)
        lease = await acquiring.run()
        if heartbeat:
            lease._start_heartbeat()
        return lease

    def lock(self, name: str, *, wait: Optional[float] = None, **options: Any) -> Holding:
        """Holds a lock during a block, and by default waits for it without an end:

            async with client.lock("job-42") as lease:
                await lease.put("result", await compute())

        If the lease is lost, the block's task is canceled, and the block raises LeaseLost, a NotHolder: effects of the
        block that no fence guards may have happened beside another holder's. The options are those of acquire."""
        return Holding(self, name, {**options, "wait": wait})

    async def do(self, name: str, work: Callable[[AsyncLease], Awaitable[T]], **options: Any) -> T:
        """Runs work while it holds the lock, and returns what work returns: see lock."""
        async with self.lock(name, **options) as lease:
            return await work(lease)

    async def get(self, resource: str, key: str, *, durable: bool = False) -> Record:
        """Returns a record. NotFound: there is none. A durable read returns what no failover can take back."""
        return await self.send(
            Call("GET", record_path(resource, key) + ("?consistency=durable" if durable else "")), read_record
        )

    async def writes(self, writes: Sequence[Mapping[str, Any]]) -> List[Union[WriteResult, FencegateError]]:
        """Makes any number of independent writes, and returns the outcome of each, in their order: a WriteResult or
        the error. Each has the fields of POST /v1/writes in docs/api.md, such as

            {"op": "put", "resource": "job-42", "key": "k", "value": 1, "fencing_token": 34, "sequence": 1}

        Writes to one resource are decided in their order. Up to 1,000 writes and 4 MiB are one request, and one request
        follows the other; a larger write is TooLarge. Some 30 seconds long, what got no answer is sent again: a write
        with a sequence is applied at most once. One without is not sent again if it may have been applied, and its
        error has outcome_unknown. If writes stay without an answer, those of later requests are not sent.

        A fence remembers its last accepted write only. If an answer was lost, all but the last of several writes to one
        resource may be TokenStale with outcome_unknown, though they were applied: read the records."""
        return await Writes(self.send).run(writes)

    async def lock_state(self, lock: str) -> Dict[str, Any]:
        """Returns the state of a lock, its holders and its queue, as docs/api.md describes it."""
        return await self.send(Call("GET", f"/v1/locks/{name_path(lock)}"), as_object("state"))

    async def break_lock(self, lock: str, reason: str) -> Dict[str, Any]:
        """Ends the lease of a lock, and closes the fence behind it: for administrators."""
        call = with_json("POST", f"/v1/locks/{name_path(lock)}/break", {"reason": reason})
        return await self.send(call, as_object())

    async def send(self, call: Call, read: Callable[[Answer], T]) -> T:
        return await self._caller.send(call, read)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs work until it ends, or the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def abandon(self, release: Coroutine[Any, Any, Any]) -> None:
        """Releases in the background what no caller got."""
        self.background(_quietly(release))

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls back in the event loop, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


class _Acquiring:
    """One acquire, which may send many requests."""

    def __init__(self, client: AsyncClient, lock: str, body: Dict[str, Any], wait: Optional[float]) -> None:
        self._client, self._lock, self._body = client, lock, body
        self._until = None if wait is None else time.monotonic() + wait
        self._path = f"/v1/locks/{name_path(lock)}/acquire"
        self._failed = 0
        self._restart()

    def _restart(self) -> None:
        """Begins a new request_id. Its grant is not older than this moment."""
        self._body["request_id"], self._since = secrets.token_hex(16), Clocks.read()

    async def run(self) -> AsyncLease:
        while True:
            if self._client._closed:
                raise ClientClosed("the client is closed")
            sent, wait = time.monotonic(), self._wait()
            try:
                return await self._adopt(await retry(LOST_ANSWERS, self._send, _is_lost_answer))
            except LeaseLost:
                # The grant was so old when it arrived that the lease was lost.
                if self._wait() <= 0:
                    raise
                self._restart()
                continue
            except FencegateError as error:
                if self._wait() <= 0 or not (is_retryable(error) or isinstance(error, LockHeld)):
                    self._abandon_if(error.outcome_unknown)
                    raise
                waited = isinstance(error, LockHeld) and time.monotonic() - sent >= wait / 2
            except BaseException:  # the caller has canceled it
                self._abandon_if(True)
                raise
            self._failed = 0 if waited else self._failed + 1
            try:
                await asyncio.sleep(0 if waited else Policy(base=0.1).pause(self._failed))
            except BaseException:
                self._abandon_if(True)
                raise

    def _wait(self) -> float:
        """How long the gateway should wait now."""
        left = _REQUEST_WAIT_MAX if self._until is None else self._until - time.monotonic()
        return min(_REQUEST_WAIT_MAX, left) if left >= 0.001 else 0

    async def _send(self, wait: Optional[float] = None) -> Dict[str, Any]:
        wait = self._wait() if wait is None else wait
        newest = self._client._newest
        body = {**self._body, "wait_ms": int(wait * 1000), "newest_token": newest.get(self._lock, 0)}
        call = with_json("POST", self._path, body, wait)
        granted = await self._client.send(call, as_object("lock", "owner_id", "lease_id", "fencing_token", "ttl_ms"))
        if len(newest) >= _NEWEST_TOKENS_MAX and self._lock not in newest:
            newest.pop(next(iter(newest)))
        newest[self._lock] = max(newest.get(self._lock, 0), granted["fencing_token"])
        return granted

    async def _adopt(self, granted: Dict[str, Any]) -> AsyncLease:
        lease = AsyncLease(self._client, granted)
        try:
            await lease._confirm(self._since)
            lease.check()
        except FencegateError:
            self._client.abandon(self._client.send(release_call(granted), as_object()))
            raise
        self._client._leases.add(lease)
        lease._validity.on_end(lambda _: self._client._leases.discard(lease))
        return lease

    def _abandon_if(self, in_doubt: bool) -> None:
        """Finds out, in the background, whether a lease was granted whose answer was lost, and releases it."""
        if in_doubt:
            self._client.abandon(retry(UNTIL_ANSWERED, self._find_and_release))

    async def _find_and_release(self) -> None:
        granted = await self._send(wait=0)
        await self._client.send(release_call(granted), as_object())


def _is_lost_answer(error: FencegateError) -> bool:
    return error.outcome_unknown and is_retryable(error)


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await within(_ABANDON_TIMEOUT, work)
    except (FencegateError, asyncio.TimeoutError):
        pass


class Holding:
    """A block that holds a lock: see AsyncClient.lock."""

    def __init__(self, client: AsyncClient, name: str, options: Dict[str, Any]) -> None:
        self._client, self._name, self._options = client, name, options
        self._task: Optional[asyncio.Task[Any]] = None
        self._canceled = False

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._client.acquire(self._name, **self._options)
        self._lease._in_block = True
        self._task = asyncio.current_task()
        self._lease.on_lost(lambda _: self._client.call_soon(self._cancel))
        return self._lease

    def _cancel(self) -> None:
        if self._task is not None:
            self._canceled = True
            self._task.cancel()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: Optional[TracebackType]
    ) -> None:
        cause = self._lease.error
        task, self._task = self._task, None  # from here on nothing cancels it
        if self._canceled and task is not None and not await _absorb(task, kind):
            cause = None  # the caller has canceled the task, too
        try:
            await self._lease._finish()
        except LeaseLost as found:
            cause = cause or found
        if isinstance(cause, LeaseLost):
            await self._lease._ask_for_holder()
            raise cause from (None if kind is asyncio.CancelledError else error)


async def _absorb(task: asyncio.Task[Any], kind: Optional[Type[BaseException]]) -> bool:
    """Takes back a cancellation, delivered or not. It returns false if the task was canceled by another, too."""
    if kind is not asyncio.CancelledError:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
    if sys.version_info >= (3, 11):
        return task.uncancel() == 0
    return True
