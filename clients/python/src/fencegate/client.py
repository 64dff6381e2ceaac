"""The client for threads. All its waiting is done by one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import Any, Callable, Coroutine, Dict, Generic, Iterator, List, Mapping, Optional, Sequence, TypeVar, Union

from ._calls import Token
from ._lease import AsyncLease, Record, WriteResult
from .aio import AsyncClient
from .errors import ClientClosed, FencegateError, LeaseLost, LeaseReleased

T = TypeVar("T")


class _LoopThread:
    """An event loop in a daemon thread. A process that is forked has none of its parent's threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencegate", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], undo: Optional[Callable[[T], None]] = None) -> T:
        """Runs work in the loop. An exception that is raised into the wait ends work. If that had a result already,
        which then nobody gets, undo is called with it, in the loop."""
        if os.getpid() != self.pid or self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            if threading.current_thread() is self._thread:
                raise RuntimeError("a callback of a lease must not wait: let another thread do it")
            raise ClientClosed("the client is closed, or belongs to the process that this one was forked from")
        delivery = _Delivery(work, undo)
        try:
            return asyncio.run_coroutine_threadsafe(delivery.run(), self._loop).result()
        except BaseException:  # KeyboardInterrupt among them: the wait ends with it
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(delivery.abandon)
            raise

    def stop(self) -> None:
        self.run(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Delivery(Generic[T]):
    """A result on its way to a thread. Its methods run in the loop, one after the other."""

    def __init__(self, work: Coroutine[Any, Any, T], undo: Optional[Callable[[T], None]]) -> None:
        self._work, self._undo = work, undo
        self._task: Optional[asyncio.Task[Any]] = None
        self._results: List[T] = []
        self._abandoned = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._abandoned:
            self._work.close()
            raise asyncio.CancelledError
        self._results.append(await self._work)
        return self._results[0]

    def abandon(self) -> None:
        self._abandoned = True
        if self._task is not None:
            self._task.cancel()
        if self._undo is not None:
            for result in self._results:
                self._undo(result)


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class LostEvent(threading.Event):
    """Is set when a lease is lost. is_set and wait read the clocks, so a process that was frozen past the end sees it at
    once."""

    def __init__(self, lease: AsyncLease) -> None:
        super().__init__()
        self._lease = lease
        lease.on_lost(lambda _: self.set())

    def is_set(self) -> bool:
        # Another thread may have found the end, and not have called set yet.
        error = self._lease.error
        return super().is_set() or error is not None and not isinstance(error, LeaseReleased)

    def wait(self, timeout: Optional[float] = None) -> bool:
        # After the wait, too: the process may have been frozen within it.
        return self.is_set() or super().wait(timeout) or self.is_set()


class Lease:
    """A lock that was granted to this process. It ends by release(), by its loss, or with its client, and stays ended.
    Its writes are still sent then: the fence decides on them, not what this process believes. It is safe for use by
    many threads."""

    def __init__(self, thread: _LoopThread, lease: AsyncLease) -> None:
        self._thread, self._lease = thread, lease
        self.name, self.id, self.owner, self.fencing_token = lease.name, lease.id, lease.owner, lease.fencing_token
        #: The lease as it was granted. Its times are by the database's clock.
        self.info: Dict[str, Any] = lease.info
        #: Is set when the lease is lost, no later than the moment at which another holder may be granted the lock.
        self.lost = LostEvent(lease)

    def __str__(self) -> str:
        return str(self._lease)

    @property
    def valid(self) -> bool:
        """Whether the lease can be relied on, by the clocks and by all answers, at the moment of the call."""
        return self._lease.valid

    @property
    def error(self) -> Optional[FencegateError]:
        """Why the lease has ended: LeaseLost, LeaseReleased or ClientClosed; None while it is valid."""
        return self._lease.error

    @property
    def expires_in(self) -> float:
        """For how many seconds the lease can be relied on without another renewal."""
        return self._lease.expires_in

    @property
    def heartbeat_error(self) -> Optional[FencegateError]:
        """The error of the last heartbeat; None if it succeeded, or if there was none yet."""
        return self._lease.heartbeat_error

    def check(self) -> None:
        """Raises the error of a lease that has ended. Call it between the steps of long work."""
        self._lease.check()

    def on_lost(self, callback: Callable[[FencegateError], None]) -> None:
        """Has callback called once, when the lease is lost, by the thread that finds it. It must not block."""
        self._lease.on_lost(callback)

    def renew(self) -> None:
        """See AsyncLease.renew."""
        self._thread.run(self._lease.renew())

    def release(self) -> None:
        """See AsyncLease.release."""
        self._thread.run(self._lease.release())

    def put(
        self, key: str, value: Union[bytes, str], *, content_type: str = "application/octet-stream",
        if_version: Optional[int] = None, if_absent: bool = False, resource: Optional[str] = None,
    ) -> WriteResult:
        """See AsyncLease.put."""
        return self._thread.run(self._lease.put(
            key, value, content_type=content_type, if_version=if_version, if_absent=if_absent, resource=resource,
        ))

    def put_json(self, key: str, value: Any, **options: Any) -> WriteResult:
        """See AsyncLease.put_json."""
        return self._thread.run(self._lease.put_json(key, value, **options))

    def delete(self, key: str, *, if_version: Optional[int] = None, resource: Optional[str] = None) -> WriteResult:
        """See AsyncLease.delete."""
        return self._thread.run(self._lease.delete(key, if_version=if_version, resource=resource))

    def transaction(self, ops: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """See AsyncLease.transaction."""
        return self._thread.run(self._lease.transaction(ops))

    @contextmanager
    def numbered(self) -> Iterator[str]:
        """See AsyncLease.numbered."""
        turn = self._lease.numbered()
        token = self._thread.run(
            _coroutine(turn.__aenter__()),
            lambda _: self._lease._client.abandon(_coroutine(turn.__aexit__(None, None, None))),
        )
        try:
            yield token
        finally:
            self._thread.run(_coroutine(turn.__aexit__(None, None, None)))


async def _coroutine(awaitable: Any) -> Any:
    return await awaitable


class Client:
    """Calls the gateways of one database. Make one and keep it. Many threads may use it. The options are those of
    AsyncClient.

    A process that is forked gets a connection and an owner of its own; the leases stay with the parent."""

    def __init__(
        self, url: str, *, failover: Sequence[str] = (), owner: Optional[str] = None, token: Token = None,
        headers: Optional[Mapping[str, str]] = None, answer_timeout: float = 30.0,
        ssl_context: Optional[ssl.SSLContext] = None, answer_bytes_max: int = 256 << 20,
    ) -> None:
        def make() -> AsyncClient:
            return AsyncClient(
                url, failover=failover, owner=owner, token=token, headers=headers, answer_timeout=answer_timeout,
                ssl_context=ssl_context, answer_bytes_max=answer_bytes_max,
            )

        self._make = make
        self._mutex = threading.Lock()
        self._client = make()
        self._thread: Optional[_LoopThread] = None
        self._closed = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def owner(self) -> str:
        """The owner of this client's leases."""
        self._running()
        return self._client.owner

    def close(self) -> None:
        """Ends heartbeats, connections and the thread. It releases nothing: release before, or let the TTLs end the
        leases."""
        with self._mutex:
            thread, self._thread, self._closed = self._thread, None, True
        if thread is not None and thread.pid == os.getpid():
            thread.run(self._client.close())
            thread.stop()

    def acquire(
        self, lock: str, *, ttl: float = 30.0, wait: Optional[float] = 0, heartbeat: bool = True,
        shared: bool = False, subtree: bool = False, owner: Optional[str] = None,
        metadata: Optional[Mapping[str, Any]] = None,
    ) -> Lease:
        """See AsyncClient.acquire."""
        thread, client = self._running(), self._client

        async def acquire() -> Lease:
            return Lease(thread, await client.acquire(
                lock, ttl=ttl, wait=wait, heartbeat=heartbeat, shared=shared, subtree=subtree, owner=owner,
                metadata=metadata,
            ))

        # Nothing may follow: an exception would lose the lease.
        return thread.run(acquire(), lambda lease: client.abandon(lease._lease.release()))

    @contextmanager
    def lock(self, name: str, *, wait: Optional[float] = None, **options: Any) -> Iterator[Lease]:
        """Holds a lock during a block, and by default waits for it without an end:

            with client.lock("job-42") as lease:
                for part in parts:
                    lease.check()  # or watch lease.lost
                    lease.put(part.name, compute(part))

        Nothing can interrupt a thread: the block must stop when lease.lost is set. If the lease is lost before the
        block ends, the block raises LeaseLost, a NotHolder: effects of the block that no fence guards may have happened
        beside another holder's. The options are those of acquire."""
        lease = self.acquire(name, wait=wait, **options)
        failure: Optional[BaseException] = None
        try:
            yield lease
        except BaseException as error:
            failure = error
        cause = lease.error
        try:
            lease._thread.run(lease._lease._finish())
        except LeaseLost as found:
            cause = cause or found
        if isinstance(cause, LeaseLost):
            lease._thread.run(lease._lease._ask_for_holder())
            raise cause from failure
        if failure is not None:
            raise failure

    def do(self, name: str, work: Callable[[Lease], T], **options: Any) -> T:
        """Runs work while it holds the lock, and returns what work returns: see lock."""
        with self.lock(name, **options) as lease:
            return work(lease)

    def get(self, resource: str, key: str, *, durable: bool = False) -> Record:
        """See AsyncClient.get."""
        return self._running().run(self._client.get(resource, key, durable=durable))

    def writes(self, writes: Sequence[Mapping[str, Any]]) -> List[Union[WriteResult, FencegateError]]:
        """See AsyncClient.writes."""
        return self._running().run(self._client.writes(writes))

    def lock_state(self, lock: str) -> Dict[str, Any]:
        """See AsyncClient.lock_state."""
        return self._running().run(self._client.lock_state(lock))

    def break_lock(self, lock: str, reason: str) -> Dict[str, Any]:
        """See AsyncClient.break_lock."""
        return self._running().run(self._client.break_lock(lock, reason))

    def _running(self) -> _LoopThread:
        """Returns the thread of this process, and starts it at the first call."""
        with self._mutex:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._thread is None or self._thread.pid != os.getpid():
                if self._thread is not None:
                    self._client = self._make()
                self._thread = _LoopThread()
            return self._thread
