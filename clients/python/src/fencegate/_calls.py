"""Calls of the HTTP API: a request to the gateways in turn, and its answer or error."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union

from ._http import Answer, Gateway, NoAnswer, NotSent, Pool, TooLong
from ._retry import Doubt, within
from .errors import FencegateError, ForeignAnswer, Unavailable, local, of_problem

T = TypeVar("T")
#: A credential, or what returns the current one.
Token = Union[str, Callable[[], str], None]
_USER_AGENT = "fencegate-python"


@dataclass
class Call:
    method: str
    path: str
    headers: Dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    #: For how long the gateway may wait before it answers, in seconds.
    wait: float = 0
    #: Limits the time of one gateway beyond that, instead of the client's answer timeout.
    limit: Optional[float] = None
    #: No other gateway is asked after an attempt that may have been applied.
    once: bool = False

    @property
    def changes(self) -> bool:
        return self.method != "GET"


def with_json(method: str, path: str, body: Mapping[str, Any], wait: float = 0) -> Call:
    return Call(method, path, {"Content-Type": "application/json"}, json_text(body), wait)


def json_text(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise local("invalid_request", f"it can't be written as JSON: {error}") from error


def as_object(*fields: str) -> Callable[[Answer], Dict[str, Any]]:
    """Returns what reads an answer as a JSON object that has these fields."""

    def read(answer: Answer) -> Dict[str, Any]:
        value = json.loads(answer.body)
        if not isinstance(value, dict) or not all(name in value for name in fields):
            raise ValueError("the answer lacks what every gateway sends")
        return value

    return read


class Caller:
    """Sends calls to the gateways of one database. It stays with one that works."""

    def __init__(
        self, urls: Sequence[str], *, token: Token, headers: Mapping[str, str], answer_timeout: float,
        ssl_context: Optional[ssl.SSLContext], answer_bytes_max: int,
    ) -> None:
        self._gateways: List[Gateway] = [Gateway(url) for url in urls]
        self._preferred = 0
        self._token = token
        self._headers = {"User-Agent": _USER_AGENT, **headers}
        self._answer_timeout = answer_timeout
        self._pool = Pool(ssl_context, answer_bytes_max)

    def close(self) -> None:
        self._pool.close()

    async def send(self, call: Call, read: Callable[[Answer], T]) -> T:
        """Asks the gateways in turn, until one serves. Every call may arrive twice, unless it is once: acquires have a
        request_id and writes a number, and renewals, releases and reads may be repeated by their nature."""
        count, doubt = len(self._gateways), Doubt()
        first = self._preferred
        failed: Optional[FencegateError] = None
        for turn in range(count):
            index = (first + turn) % count
            try:
                result = await self._attempt(call, self._gateways[index], read)
            except FencegateError as error:
                doubt.add_to(error)
                served = not isinstance(error, (Unavailable, ForeignAnswer))
                self._preferred = index if served else (index + 1) % count
                if served:
                    raise
                # Of several errors, one that a retry may cure counts.
                unknown = error.outcome_unknown
                failed = error if failed is None or error.retryable else failed
                failed.outcome_unknown |= unknown
                if turn == count - 1 or call.once and unknown:
                    raise failed
            else:
                self._preferred = index
                return result
        raise AssertionError("a client without a gateway")

    async def _attempt(self, call: Call, gateway: Gateway, read: Callable[[Answer], T]) -> T:
        exchange = self._pool.exchange(gateway, call.method, call.path, self._head(call), call.body)
        try:
            answer = await within((call.limit or self._answer_timeout) + call.wait, exchange)
        except (NotSent, NoAnswer, asyncio.TimeoutError) as error:
            sent, cure = not isinstance(error, NotSent), _cure(error.__cause__)
            said = f"no answer from {gateway.shown}" if sent else f"nothing was sent to {gateway.shown}"
            raise local(
                "unavailable", f"{said}: {error or 'it is late'}{cure}", outcome_unknown=sent and call.changes,
                permanent=bool(cure),
            ) from error
        except TooLong as error:
            raise _foreign(call, gateway, error.answer, str(error)) from error
        if not 200 <= answer.status < 300:
            raise _refusal(call, gateway, answer)
        try:
            return read(answer)
        except (ValueError, KeyError, TypeError) as error:
            raise _foreign(call, gateway, answer, str(error)) from error

    def _head(self, call: Call) -> Dict[str, str]:
        head = {**self._headers, **call.headers}
        token = self._token() if callable(self._token) else self._token
        if token:
            head["Authorization"] = f"Bearer {token}"
        for name, value in head.items():
            if any(ord(character) < 32 or ord(character) > 255 for character in name + value):
                raise local("invalid_request", f"the header {name} has a character that no header can have")
        return head


#: What OpenSSL says of an answer without TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
#: The verify_code of OpenSSL for a host or an address that the certificate does not have.
_OTHER_NAME = (62, 64)
#: The verify_code for an authority that is not known, and for a certificate that has signed itself.
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)


def _cure(error: Optional[BaseException]) -> str:
    """Returns what to do about a failed connection that no retry can cure; "" for all other causes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return (
                ". Trust the authority that has signed the gateway's certificate: "
                "ssl_context=ssl.create_default_context(cafile=...)."
            )
        if error.verify_code in _OTHER_NAME:
            return ". Call the gateway by a name or an address that its certificate has."
        return ". The gateway needs another certificate."
    if not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ""
    if error.reason in _NO_TLS:
        return ". It speaks no TLS there: begin the URL with http://."
    return (
        ". The gateway refuses the TLS connection: does it require a certificate of the client "
        "(ssl_context.load_cert_chain)?"
    )


def _refusal(call: Call, gateway: Gateway, answer: Answer) -> FencegateError:
    if answer.headers.get_content_type() != "application/problem+json":
        error = _foreign(call, gateway, answer, "it has no problem document")
        if answer.status in (502, 503, 504):  # a proxy's word that no gateway has answered
            return local("unavailable", str(error), outcome_unknown=call.changes)
        return error
    try:
        problem = as_object("code")(answer)
    except ValueError as error:
        return _foreign(call, gateway, answer, f"its problem document can't be read: {error}")
    pause = problem.get("recommended_retry_ms")
    header = answer.headers.get("Retry-After", "")
    retry_after = pause / 1000 if pause is not None else float(header) if header.isdigit() else 0
    return of_problem(problem, retry_after=retry_after)


def _foreign(call: Call, gateway: Gateway, answer: Answer, fault: str) -> ForeignAnswer:
    # 400 is the answer of another protocol or service, as of a port that expects TLS.
    permanent = answer.status == 400
    next_step = (
        "If it speaks TLS there, begin the URL with https://." if permanent
        else "Is it the gateway, or a proxy before it?"
    )
    what = f"{answer.status} {answer.headers.get('Content-Type', '')}".strip()
    return ForeignAnswer(
        f"{gateway.shown} does not answer as a fencegate gateway ({what}): {fault}. {next_step}",
        outcome_unknown=call.changes, retryable=not permanent,
    )
