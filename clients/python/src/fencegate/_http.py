"""HTTP/1.1 over asyncio: as much of it as a gateway needs."""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
import time
from email.message import Message
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit, urlunsplit

from ._retry import within

CONNECT_TIMEOUT = 5.0
IDLE_MAX = 60.0
HEAD_BYTES_MAX = 64 << 10


class NotSent(Exception):
    """There was no connection, so the gateway has not got the request."""


class NoAnswer(Exception):
    """The connection ended before the whole answer had arrived."""


class TooLong(Exception):
    """The answer is over the client's limit. Nothing beyond it was read."""

    def __init__(self, status: int, headers: Message, limit: int) -> None:
        super().__init__(f"it is over the client's limit of {limit} bytes")
        self.answer = Answer(status, headers, b"")


class _Silence(Exception):
    """The connection has ended before the first byte of an answer."""


class _OverLimit(Exception):
    """The body of an answer has more bytes than the client reads."""


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


class Gateway:
    """The address of a gateway."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("the gateway's URL must be like http://host:port, without query and fragment")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.base = parts.path.rstrip("/")
        address = parts.netloc.rpartition("@")[2]
        self.authority = address
        self.shown = urlunsplit((parts.scheme, address, self.base, "", ""))


_Connection = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pool:
    """The connections of a client. Each carries one request at a time."""

    def __init__(self, context: Optional[ssl.SSLContext], answer_bytes_max: int) -> None:
        self._ssl = context
        self._answer_bytes_max = answer_bytes_max
        self._idle: Dict[Gateway, List[Tuple[float, _Connection]]] = {}

    async def exchange(
        self, gateway: Gateway, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """Sends one request, and reads the whole answer. A GET is sent again if a kept connection ends without a
        word. Of other requests the caller must know that they may have arrived."""
        head = [f"{method} {gateway.base}{path} HTTP/1.1", f"Host: {gateway.authority}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        head += [f"Content-Length: {len(body)}", "", ""]
        request = "\r\n".join(head).encode("latin-1") + body
        while True:
            kept = self._kept(gateway)
            connection = kept or await self._open(gateway)
            try:
                return await self._use(gateway, connection, method, request)
            except _Silence as error:
                if method != "GET" or kept is None:
                    raise NoAnswer("the connection ended without an answer") from error

    def close(self) -> None:
        for connections in self._idle.values():
            for _, (_, writer) in connections:
                writer.transport.abort()
        self._idle.clear()

    def _kept(self, gateway: Gateway) -> Optional[_Connection]:
        idle = self._idle.get(gateway, [])
        while idle:
            since, connection = idle.pop()
            if time.monotonic() - since < IDLE_MAX and not connection[0].at_eof():
                return connection
            connection[1].transport.abort()
        return None

    async def _open(self, gateway: Gateway) -> _Connection:
        context = (self._ssl or ssl.create_default_context()) if gateway.secure else None
        opening = asyncio.open_connection(gateway.host, gateway.port, ssl=context, limit=HEAD_BYTES_MAX)
        try:
            return await within(CONNECT_TIMEOUT, opening)
        except (OSError, asyncio.TimeoutError) as error:
            raise NotSent(str(error) or "no connection in time") from error

    async def _use(self, gateway: Gateway, connection: _Connection, method: str, request: bytes) -> Answer:
        reader, writer = connection
        keep = False
        try:
            # The answer may come before the gateway has read the whole request. So nothing waits for that.
            writer.write(request)
            answer, keep = await self._read(reader, method)
            return answer
        except (OSError, EOFError, ValueError, http.client.HTTPException, asyncio.LimitOverrunError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        finally:
            if keep:
                self._idle.setdefault(gateway, []).append((time.monotonic(), connection))
            else:
                writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, method: str) -> Tuple[Answer, bool]:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                if getattr(error, "partial", b""):
                    raise
                raise _Silence from error
            line, _, fields = head.partition(b"\r\n")
            version, status_text = line.decode("latin-1").split(" ", 2)[:2]
            status = int(status_text)
            if status >= 200:
                break
        headers = http.client.parse_headers(io.BytesIO(fields))
        keep = version == "HTTP/1.1" and headers.get("Connection", "").lower() != "close"
        length = headers.get("Content-Length")
        try:
            if method == "HEAD" or status in (204, 304):
                body = b""
            elif headers.get("Transfer-Encoding", "").lower() == "chunked":
                body = await self._chunks(reader)
            elif length is not None:
                body = await reader.readexactly(self._bounded(int(length)))
            else:
                body, keep = await self._rest(reader), False
        except _OverLimit as error:
            raise TooLong(status, headers, self._answer_bytes_max) from error
        return Answer(status, headers, body), keep

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            self._bounded(len(body) + size)
            if size == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass  # trailers
                return bytes(body)
            body += await reader.readexactly(size)
            await reader.readexactly(2)

    async def _rest(self, reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while part := await reader.read(HEAD_BYTES_MAX):
            body += part
            self._bounded(len(body))
        return bytes(body)

    def _bounded(self, size: int) -> int:
        if size > self._answer_bytes_max:
            raise _OverLimit
        return size
