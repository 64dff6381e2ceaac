"""Many independent writes, by arrays of POST /v1/writes."""

from __future__ import annotations

import json
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._calls import Call, json_text
from ._http import Answer
from ._lease import WriteResult
from ._retry import UNTIL_ANSWERED, Doubt, retry
from .errors import ApiError, FencegateError, ForeignAnswer, is_retryable, local, of_problem

_WRITES_MAX, _BYTES_MAX = 1000, 4 << 20


class _Write:
    """One write on its way."""

    def __init__(self, index: int, write: Mapping[str, Any]) -> None:
        self.index, self.numbered, self.text = index, write.get("sequence") is not None, json_text(write)
        self.doubt = Doubt()


def _again(error: FencegateError) -> FencegateError:
    """Returns the same error. What is known of earlier attempts differs between writes."""
    again: FencegateError
    if isinstance(error, ApiError):
        again = of_problem(error.problem, retry_after=error.retry_after)
    else:
        again = ForeignAnswer(str(error), outcome_unknown=True, retryable=error.retryable)
    again.outcome_unknown, again.__cause__ = error.outcome_unknown, error
    return again


class Writes:
    """One call of AsyncClient.writes."""

    def __init__(self, send: Callable[[Call, Callable[[Answer], Any]], Awaitable[Any]]) -> None:
        self._send = send
        self._outcomes: Dict[int, Union[WriteResult, FencegateError]] = {}

    async def run(self, writes: Sequence[Mapping[str, Any]]) -> List[Union[WriteResult, FencegateError]]:
        part: List[_Write] = []
        size = 2  # the brackets
        for index, write in enumerate(writes):
            try:
                one = _Write(index, write)
            except FencegateError as error:
                self._outcomes[index] = error
                continue
            if len(part) == _WRITES_MAX or part and size + len(one.text) >= _BYTES_MAX:
                if await self._send_part(part):
                    part = []
                    break
                part, size = [], 2
            part.append(one)
            size += len(one.text) + 1
        if part:
            await self._send_part(part)
        return [
            self._outcomes.get(index) or local("unavailable", "it was not sent: a write before it got no answer")
            for index in range(len(writes))
        ]

    async def _send_part(self, left: List[_Write]) -> Optional[FencegateError]:
        """Makes the writes of one request. Returns the error if some of them got no answer."""

        async def attempt() -> None:
            nonlocal left
            left, why = await self._try(left)
            if why is not None:
                raise _again(why)

        try:
            await retry(UNTIL_ANSWERED, attempt)
        except FencegateError as error:
            return error
        return None

    async def _try(self, writes: List[_Write]) -> Tuple[List[_Write], Optional[FencegateError]]:
        """Sends writes once. Returns those to be sent again, and why."""
        failed: Optional[FencegateError] = None
        results: List[Dict[str, Any]] = [{}] * len(writes)
        try:
            results = await self._post(writes)
        except FencegateError as error:
            failed = error
        again: List[_Write] = []
        why: Optional[FencegateError] = None
        for write, answer in zip(writes, results):
            if failed is None and "problem" not in answer:
                result = answer["result"]
                self._outcomes[write.index] = WriteResult(
                    result["version"], result["fencing_token"], result.get("sequence", 0), result["replayed"]
                )
                continue
            refusal = of_problem(answer["problem"]) if failed is None else _again(failed)
            unknown = refusal.outcome_unknown
            write.doubt.add_to(refusal)
            self._outcomes[write.index] = refusal
            if is_retryable(refusal) and (write.numbered or not unknown):
                again.append(write)
                why = why or refusal
        return again, why

    async def _post(self, writes: List[_Write]) -> List[Dict[str, Any]]:
        def read(answer: Answer) -> List[Dict[str, Any]]:
            results: List[Dict[str, Any]] = json.loads(answer.body)["results"]
            if len(results) != len(writes) or not all("problem" in one or "version" in one["result"] for one in results):
                raise ValueError("the answer has not a result for each write")
            return results

        body = b"[" + b",".join(write.text for write in writes) + b"]"
        # Once: each result of a later answer says nothing of one that was lost.
        call = Call("POST", "/v1/writes", {"Content-Type": "application/json"}, body, once=True)
        results: List[Dict[str, Any]] = await self._send(call, read)
        return results
