"""A lease, and the writes under its token."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

from ._calls import Call, as_object, json_text, with_json
from ._http import Answer
from ._names import name_path, record_path
from ._retry import UNTIL_ANSWERED, Policy, retry, within
from ._validity import BEATS_PER_TTL, Clocks, Validity
from .errors import (
    ApiError, FencegateError, LeaseExpired, LeaseLost, LeaseReleased, NotFound, NotHolder, TokenStale, is_retryable, local,
)

if TYPE_CHECKING:
    from .aio import AsyncClient

#: The part of a TTL that one gateway may take to answer a heartbeat, so that time is left for another.
_TRY_SHARE = 6
_TRY_LIMIT_MIN = 0.05
_RELEASE_TRY_LIMIT = 2.0
_RELEASE_ONCE_TIMEOUT = 5.0
#: Bounds the request for the holder, by which the error of a loss may come later.
_HOLDER_LOOKUP_MAX = 0.5
_LEASE_FIELDS = ("lease_id", "fencing_token", "ttl_ms")


@dataclass(frozen=True)
class WriteResult:
    """The answer to a write."""

    version: int
    fencing_token: int
    sequence: int
    #: Whether the write had been applied before, and this is its first answer again.
    replayed: bool


@dataclass(frozen=True)
class Record:
    """A stored record, and the token of the write that stored it."""

    value: bytes
    content_type: str
    version: int
    fencing_token: int
    sequence: Optional[int]


def read_record(answer: Answer) -> Record:
    token, _, sequence = str(answer.headers["Fencing-Token"]).partition(".")
    version = str(answer.headers["ETag"])
    version = version[2:] if version.startswith("W/") else version  # a proxy that compresses marks it as weak
    return Record(
        answer.body, answer.headers.get("Content-Type", ""), int(version.strip('"')), int(token),
        int(sequence) if sequence else None,
    )


class AsyncLease:
    """A lock that was granted to this process. It ends by release(), by its loss, or with its client, and stays ended.
    Its writes are still sent then: the fence decides on them, not what this process believes."""

    def __init__(self, client: AsyncClient, granted: Mapping[str, Any]) -> None:
        self._client = client
        #: The lease as it was granted. Its times are by the database's clock.
        self.info: Dict[str, Any] = dict(granted)
        self.name: str = granted["lock"]
        #: A secret of the holder.
        self.id: str = granted["lease_id"]
        self.owner: str = granted["owner_id"]
        #: Greater than every token granted on this name before. Pass it to each system that the work writes to.
        self.fencing_token: int = granted["fencing_token"]
        self._validity = Validity(str(self), lambda: self.heartbeat_error is not None)
        self._renewing = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._sequence = 0
        self._released = False
        #: Whether the end of a block reports the loss, which cancels the block's task.
        self._in_block = False
        self._asked: Optional[asyncio.Task[None]] = None
        self._beat: Optional[asyncio.Task[None]] = None
        #: The error of the last heartbeat; None if it succeeded, or if there was none yet.
        self.heartbeat_error: Optional[FencegateError] = None

    def __str__(self) -> str:
        return f"the lease on {self.name} with token {self.fencing_token}"

    @property
    def valid(self) -> bool:
        """Whether the lease can be relied on, by the clocks and by all answers, at the moment of the call."""
        return self.error is None

    @property
    def error(self) -> Optional[FencegateError]:
        """Why the lease has ended: LeaseLost, LeaseReleased or ClientClosed; None while it is valid."""
        return self._validity.check()

    @property
    def expires_in(self) -> float:
        """For how many seconds the lease can be relied on without another renewal."""
        return self._validity.left()

    def check(self) -> None:
        """Raises the error of a lease that has ended."""
        error = self.error
        if error is not None:
            raise error

    def on_lost(self, callback: Callable[[FencegateError], None]) -> None:
        """Has callback called once, when the lease is lost or its client is closed: no later than the moment at which
        another holder may be granted the lock. A release by this process is no loss."""
        self._validity.on_loss(callback)

    async def wait_lost(self) -> FencegateError:
        """Waits until the lease ends, and returns why."""
        ended: asyncio.Future[FencegateError] = asyncio.get_running_loop().create_future()

        def end(cause: FencegateError) -> None:
            if not ended.done():
                ended.set_result(cause)

        # Any thread may find the end, and futures belong to the event loop.
        self._validity.on_end(lambda cause: self._client.call_soon(lambda: end(cause)))
        return await ended

    async def renew(self) -> None:
        """Renews the lease now. A lease that has ended stays ended: LeaseLost."""
        if self.error is None:
            try:
                return await retry(UNTIL_ANSWERED, self._renew_once, lambda e: is_retryable(e) and self.error is None)
            except (LeaseLost, NotFound) as error:
                self._end(error)
        if isinstance(self.error, LeaseLost):
            await self._ask_for_holder()
        self.check()

    async def release(self) -> None:
        """Ends the lease, and closes the fence behind it: later writes are TokenStale. It is resent until it is
        answered, for some 30 seconds, and may be called again. LeaseLost: it was broken, or has expired and was
        replaced. Unavailable: no gateway answered, and the lease ends with its TTL."""
        try:
            await self._release()
        except LeaseLost as error:
            self._validity.note_loss(error)
            await self._ask_for_holder()
            raise

    async def _release(self) -> None:
        self._stop(LeaseReleased(f"{self} was released"))
        if self._released:
            return
        call = release_call(self.info)
        call.limit = _RELEASE_TRY_LIMIT
        await retry(UNTIL_ANSWERED, lambda: self._client.send(call, as_object()))
        self._released = True

    async def put(
        self, key: str, value: Union[bytes, str], *, content_type: str = "application/octet-stream",
        if_version: Optional[int] = None, if_absent: bool = False, resource: Optional[str] = None,
    ) -> WriteResult:
        """Stores a record of the lease's resource, under the lease's token and the next number. Writes are sent one
        after the other. If an answer is lost, the same write is sent again with the same number, until it is answered,
        for some 30 seconds: it is applied once.

        TokenStale, LeaseMismatch and LeaseExpired say that the caller is not the holder: stop. An error whose
        outcome_unknown is true says that the write may have been applied."""
        headers = {"Content-Type": content_type}
        if if_absent:
            headers["If-None-Match"] = "*"
        if not isinstance(value, (bytes, bytearray, memoryview, str)):
            raise local("invalid_request", f"a value is bytes or str, and not {type(value).__name__}: put_json stores JSON")
        body = value.encode() if isinstance(value, str) else value
        return await self._write("PUT", key, headers, body, if_version, resource)

    async def put_json(self, key: str, value: Any, **options: Any) -> WriteResult:
        """Is put of a value as application/json."""
        return await self.put(key, json_text(value), content_type="application/json", **options)

    async def delete(
        self, key: str, *, if_version: Optional[int] = None, resource: Optional[str] = None
    ) -> WriteResult:
        """Removes a record, as put stores one. NotFound: there is none."""
        return await self._write("DELETE", key, {}, b"", if_version, resource)

    async def transaction(self, ops: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """Applies all operations as one atomic change, or none, and returns the answer: docs/api.md has their fields.
        An operation without a resource is on the lease's own."""
        async with self._writing:
            self._sequence += 1
            named: List[Dict[str, Any]] = [{"resource": self.name, **op} for op in ops]
            token = {"fencing_token": self.fencing_token, "sequence": self._sequence, "lease_id": self.id}
            resources = dict.fromkeys([self.name, *(op["resource"] for op in named)])
            body = {"fences": [{"resource": resource, **token} for resource in resources], "ops": named}
            return await self._decide(self.name, with_json("POST", "/v1/transactions", body), as_object("results"))

    @asynccontextmanager
    async def numbered(self) -> AsyncIterator[str]:
        """Gives the lease's token with its next number, such as "34.5", for one write to another system that checks
        fencing tokens. All writes of the lease share the numbers: the others wait until the block ends."""
        async with self._writing:
            self._sequence += 1
            yield f"{self.fencing_token}.{self._sequence}"

    async def _write(
        self, method: str, key: str, headers: Dict[str, str], body: bytes, if_version: Optional[int],
        resource: Optional[str],
    ) -> WriteResult:
        call = Call(method, record_path(resource or self.name, key), headers, body)
        if if_version is not None:
            headers["If-Match"] = f'"{if_version}"'
        headers["Lease-Id"] = self.id
        async with self.numbered() as token:
            headers["Fencing-Token"] = token
            got = await self._decide(resource or self.name, call, as_object("version", "fencing_token", "sequence"))
        return WriteResult(got["version"], got["fencing_token"], got["sequence"], bool(got["replayed"]))

    async def _decide(self, resource: str, call: Call, read: Callable[[Answer], Dict[str, Any]]) -> Dict[str, Any]:
        """Sends a write until it is answered. A rejection which says that the lease has ended ends it."""
        try:
            return await retry(UNTIL_ANSWERED, lambda: self._client.send(call, read))
        except ApiError as error:
            stale = isinstance(error, TokenStale) and error.reason in ("superseded", "released")
            if resource == self.name and self.info.get("mode") != "shared" and (
                stale or isinstance(error, (LeaseExpired, LeaseLost))
            ):
                self._end(error)
                if isinstance(error, NotHolder):
                    self._validity.note_loss(error)
                if not self._in_block:
                    await self._ask_for_holder()
            raise

    async def _renew_once(self, limit: Optional[float] = None) -> None:
        async with self._renewing:
            since = Clocks.read()
            call = lease_call(self.info, "renew")
            call.limit = limit
            renewed = await self._client.send(call, as_object(*_LEASE_FIELDS))
            self._moved(since, renewed)

    def _moved(self, since: Clocks, answer: Mapping[str, Any]) -> None:
        hold_left = answer.get("hold_left_ms")
        self._validity.set(since, answer["ttl_ms"] / 1000, None if hold_left is None else hold_left / 1000)

    async def _confirm(self, since: Clocks) -> None:
        """Starts the window of a new lease. If its request was sent long ago, the lease is renewed first, and counts
        from then on."""
        fresh = min(self.info["ttl_ms"], self.info.get("hold_left_ms", self.info["ttl_ms"])) / 1000
        if since.elapsed() <= fresh / 10:
            self._moved(since, self.info)
        else:
            await retry(UNTIL_ANSWERED, self._renew_once)

    def _start_heartbeat(self) -> None:
        self._beat = self._client.background(self._heartbeat())
        self._validity.on_end(lambda _: self._client.call_soon(self._stop_heartbeat))

    def _stop_heartbeat(self) -> None:
        if self._beat is not None and self._beat is not asyncio.current_task():
            self._beat.cancel()

    async def _heartbeat(self) -> None:
        """Renews the lease at a third of its TTL, until it ends. Failed heartbeats are retried while it lasts."""
        failed = 0
        while True:
            ttl = self._validity.ttl
            pause = ttl / BEATS_PER_TTL * (1 - random.random() / 5)
            if failed:
                pause = Policy(base=ttl / 60, longest=ttl / 12).pause(failed)
            await asyncio.sleep(pause)
            try:
                await self._renew_once(max(ttl / _TRY_SHARE, _TRY_LIMIT_MIN))
                failed, self.heartbeat_error = 0, None
            except (LeaseLost, NotFound) as error:
                self.heartbeat_error = error
                self._end(error)
                return
            except FencegateError as error:
                if self.valid:  # otherwise nothing ran until the request was over
                    failed, self.heartbeat_error = failed + 1, error

    def _end(self, why: ApiError) -> FencegateError:
        return self._stop(self._validity.lost(str(why), why.reason))

    def _stop(self, cause: FencegateError) -> FencegateError:
        return self._validity.end(cause)

    async def _finish(self) -> None:
        """Releases within five seconds. It raises only that the lease was lost: otherwise nothing is left to do."""
        try:
            await within(_RELEASE_ONCE_TIMEOUT, self._release())
        except (LeaseLost, NotFound) as error:
            raise self._validity.lost(str(error), error.reason) from error
        except (FencegateError, asyncio.TimeoutError):
            pass

    async def _ask_for_holder(self) -> None:
        """Asks once which newer lease the lock has."""
        if self.info.get("mode") == "shared":
            return
        if self._asked is None:
            self._asked = self._client.background(self._find_holder())
        await asyncio.wait({self._asked})

    async def _find_holder(self) -> None:
        try:
            state = await within(_HOLDER_LOOKUP_MAX, self._client.lock_state(self.name))
        except (FencegateError, asyncio.TimeoutError):
            return
        for holder in state.get("holders", ()):
            if holder["fencing_token"] > self.fencing_token:
                self._validity.loss.holder, self._validity.loss.held_since = holder["owner_id"], holder["granted_at"]


def lease_call(granted: Mapping[str, Any], verb: str) -> Call:
    """Makes a call on a lease by its holder."""
    body = {name: granted[name] for name in ("owner_id", "lease_id", "fencing_token")}
    return with_json("POST", f"/v1/locks/{name_path(granted['lock'])}/{verb}", body)


def release_call(granted: Mapping[str, Any]) -> Call:
    return lease_call(granted, "release")
