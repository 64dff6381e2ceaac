"""Runs the contract cases with the Python client: python3 -m tests.cases sync|asyncio CASES.

It prints a verdict for each case, one JSON object a line. Both ways of the client have the same methods, so that one
runner runs the cases with both: what is awaited differs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional
from urllib.parse import quote

import fencegate

Step = Dict[str, Any]
Result = Dict[str, Any]

LIMIT = 60.0
# A busy machine may need longer than the client gives to the question for the holder.
fencegate._lease._HOLDER_LOOKUP_MAX *= 10
#: How many cases run at once: most of them wait most of the time.
CASES_AT_ONCE = 12


class Fault(Exception):
    """A step did not do what the case says."""


class Work(Exception):
    """The failure of a work."""


class CaseRun:
    """Runs one case. What blocks runs in a thread."""

    def __init__(self, mode: str, run: str, case: Dict[str, Any], threads: ThreadPoolExecutor) -> None:
        self.mode, self.run, self.threads = mode, run, threads
        self.proxy = f"{os.environ['PROXY_URL']}/{run}"
        options = case.get("client", {})
        gateway, encrypted = os.environ["FENCEGATE_URL"], os.environ["TLS_URL"]
        addresses = {
            "proxy": self.proxy, "gateway": gateway, "nowhere": "http://127.0.0.1:2", "unknown_authority": encrypted,
            "tls_port": encrypted.replace("https", "http"), "http_port": gateway.replace("http", "https"),
        }
        urls = [addresses[name] for name in options.get("gateways", ["proxy"])]
        timeout = options.get("answer_timeout_ms", 30_000) / 1000
        limit = {"answer_bytes_max": options["answer_bytes_max"]} if "answer_bytes_max" in options else {}
        self.clients = {
            "main": self.client("main", urls, timeout, **limit),
            "other": self.client("other", [addresses["gateway"]], timeout),
        }
        self.leases: Dict[str, Any] = {}
        self.tasks: Dict[str, asyncio.Task[Result]] = {}

    def client(self, name: str, urls: List[str], timeout: float, **limit: int) -> Any:
        make: Any = fencegate.Client if self.mode == "sync" else fencegate.AsyncClient
        return make(
            urls[0], failover=urls[1:], owner=f"{self.run}/{name}", token=os.environ["API_KEY"], answer_timeout=timeout,
            **limit,
        )

    async def call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        is_async: bool = inspect.iscoroutinefunction(method)
        if is_async:
            return await method(*args, **options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, functools.partial(method, *args, **options))

    async def run_steps(self, steps: List[Step]) -> None:
        for number, step in enumerate(steps, 1):
            try:
                await asyncio.wait_for(self.step(step), LIMIT)
            except (Fault, asyncio.TimeoutError) as error:
                raise Fault(f"step {number} ({step['do']}): {error or 'it did not end'}") from error

    async def step(self, step: Step) -> None:
        if step["do"] == "fail":
            raise Work("the work failed")
        if "background" in step:
            self.tasks[step["background"]] = asyncio.ensure_future(self.perform(step))
            return
        if step.get("raises"):
            await self.perform(step)
            return
        while True:
            try:
                return await self.judge(step)
            except Fault:
                if not step.get("until"):
                    raise
            await asyncio.sleep(0.01)

    async def judge(self, step: Step) -> None:
        """Performs a step, and compares its result with what is expected."""
        expect = step.get("expect", {})
        try:
            got = await self.perform(step)
        except (fencegate.FencegateError, Work) as error:
            got = describe(error)
            if "error" not in expect:
                raise Fault(f"it failed: {error!r}") from error
        except asyncio.CancelledError:
            if step["do"] != "join" or not self.tasks[step["of"]].cancelled():
                raise
            got = {"error": "canceled"}
        if "error" in expect and "error" not in got:
            raise Fault(f"it succeeded with {got}, expected {expect}")
        for name, want in expect.items():
            if not self.matches(want, got.get(name)):
                raise Fault(f"{name} is {got.get(name)!r}, expected {want!r}: {got}")

    def matches(self, want: Any, got: Any) -> bool:
        if isinstance(want, str):
            return bool(got == want.replace("{run}", self.run))
        if not isinstance(want, dict):
            return bool(got == want)
        comparisons: Dict[str, Callable[[Any], Any]] = {
            "has": lambda text: text.replace("{trust}", "ssl_context=") in got,
            "at_least": lambda bound: got >= bound,
            "at_most": lambda bound: got <= bound,
            "above": lambda lease: got > self.leases[lease].fencing_token,
            "of": lambda lease: got == self.leases[lease].fencing_token,
        }
        return got is not None and all(comparisons[name](bound) for name, bound in want.items())

    async def perform(self, step: Step) -> Result:
        client = self.clients[step.get("client", "main")]
        lock = f"{self.run}/{step['lock']}" if "lock" in step else self.run
        lease: Any = self.leases.get(step.get("lease", ""))
        do = step["do"]
        if do == "acquire":
            wait = step.get("wait_ms", 0) / 1000
            heartbeat = step.get("heartbeat", False)
            lease = await self.call(client.acquire, lock, wait=wait, heartbeat=heartbeat, **terms(step))
            self.leases[step.get("lease", "")] = lease
            return lease_result(lease)
        if do == "do":
            await self.hold(client, lock, step)
            return {}
        if do == "renew":
            await self.call(lease.renew)
            return lease_result(lease)
        if do == "release":
            await self.call(lease.release)
            return {}
        if do == "check":
            return lease_result(lease)
        if do in ("lost", "work_until_stopped"):
            return await self.loss(do, lease)
        if do in ("put", "delete", "transaction", "writes", "get"):
            return await self.records(step, client, lock, lease)
        return await self.control(step, lock)

    async def hold(self, client: Any, lock: str, step: Step) -> None:
        """Runs the steps as the work of do. Their fault counts, also where do raises that the lease was lost."""
        faults: List[Fault] = []
        try:
            await self.do(client, lock, step, faults)
        finally:
            if faults:
                raise faults[0]

    async def do(self, client: Any, lock: str, step: Step, faults: List[Fault]) -> None:
        async def steps() -> None:
            try:
                await self.run_steps(step["steps"])
            except Fault as fault:
                faults.append(fault)

        if self.mode == "asyncio":

            async def work(lease: fencegate.AsyncLease) -> None:
                self.leases[step["lease"]] = lease
                await steps()

            await client.do(lock, work, **terms(step))
            return
        loop = asyncio.get_running_loop()

        def blocking_work(lease: fencegate.Lease) -> None:
            self.leases[step["lease"]] = lease
            asyncio.run_coroutine_threadsafe(steps(), loop).result()

        await self.call(client.do, lock, blocking_work, **terms(step))

    async def loss(self, do: str, lease: Any) -> Result:
        if self.mode == "sync":
            while not lease.lost.is_set():
                await asyncio.sleep(0.01)
            return describe(lease.error)
        if do == "work_until_stopped":
            await asyncio.sleep(LIMIT)  # the loss cancels it
            raise Fault("the task was not canceled")
        return describe(await lease.wait_lost())

    async def records(self, step: Step, client: Any, lock: str, lease: Any) -> Result:
        options = {name: step[name] for name in ("content_type", "if_version", "if_absent") if name in step}
        if step["do"] == "writes":
            default = {"resource": lock, "fencing_token": lease.fencing_token}
            outcomes = await self.call(client.writes, [{**default, **write} for write in step["writes"]])
            return {"outcomes": " ".join(
                "replayed" if getattr(one, "replayed", False) else "applied" if isinstance(one, fencegate.WriteResult)
                else describe(one)["error"] + "?" * one.outcome_unknown for one in outcomes
            )}
        if step["do"] == "transaction":
            got = await self.call(lease.transaction, step["ops"])
            return {"results": len(got["results"]), "replayed": got["replayed"]}
        if step["do"] == "get":
            record = await self.call(client.get, lock, step["key"])
            return {**vars(record), "value": record.value.decode(), "token": record.fencing_token}
        if step["do"] == "delete":
            return dict(vars(await self.call(lease.delete, step["key"], **options)))
        return dict(vars(await self.call(lease.put, step["key"], step["value"], **options)))

    async def control(self, step: Step, lock: str) -> Result:
        do = step["do"]
        if do == "join":
            return await self.tasks[step["of"]]
        if do == "cancel":
            self.tasks[step["of"]].cancel()
            return {}
        if do == "state":
            state = await self.call(self.clients["other"].lock_state, lock)
            return {
                "state": state["state"], "token": state["fencing_token"], "holders": len(state["holders"]),
                "queue": len(state["queue"]),
            }
        if do == "break":
            await self.call(self.clients["other"].break_lock, lock, "a test")
            return {}
        if do == "pause":
            await asyncio.sleep(step["ms"] / 1000)
            return {}
        if do == "calls":
            return dict(await self.call(self.ask_proxy, f"calls?path={quote(step['path'])}"))
        if do == "freeze":
            return dict(await self.call(self.ask_proxy, do, {"pid": os.getpid(), "lock": lock}))
        if do in ("harm", "let_go"):
            return dict(await self.call(self.ask_proxy, do, step))
        raise Fault("it is no step")

    def ask_proxy(self, command: str, step: Optional[Step] = None) -> Result:
        body = {name: (step or {}).get(name) for name in ("path", "faults", "always", "pid", "lock")}
        request = urllib.request.Request(f"{self.proxy}/-/{command}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            result: Result = json.load(answer)
            return result


def terms(step: Step) -> Dict[str, Any]:
    options: Dict[str, Any] = {"shared": step.get("mode") == "shared"}
    if "ttl_ms" in step:
        options["ttl"] = step["ttl_ms"] / 1000
    return options


def lease_result(lease: Any) -> Result:
    left = lease.expires_in * 1000
    got = {"token": lease.fencing_token, "owner": lease.owner, "expires_in_ms": left, "valid": lease.valid}
    return got if lease.valid else {**got, "error": describe(lease.error)["error"]}


def describe(error: BaseException) -> Result:
    got: Result = {
        "error": type(error).__name__, "outcome_unknown": getattr(error, "outcome_unknown", False), "not_holder": False,
        "message": str(error), "retryable": getattr(error, "retryable", False),
    }
    names = {fencegate.LeaseReleased: "released", fencegate.ForeignAnswer: "foreign_answer", Work: "work"}
    got["error"] = names.get(type(error), got["error"])
    if isinstance(error, fencegate.ApiError):
        expected = "".join(word.capitalize() for word in error.code.split("_"))
        if type(error).__name__ != expected:
            raise Fault(f"{error.code} is the class {type(error).__name__}")
        got.update(error=error.code, reason=error.reason)
    if isinstance(error, fencegate.LockHeld):
        got["holder"] = error.holder
    if isinstance(error, fencegate.NotHolder):
        got.update(not_holder=True, paused_ms=error.paused * 1000, holder=error.holder)
        since = f"{error.holder} has held the lock since {error.held_since})"
        if error.holder is not None and not str(error).endswith(since):
            raise Fault(f"it does not end with {since}: {error}")
    if isinstance(error, fencegate.VersionMismatch):
        got["version"] = error.version
    return got


async def verdict(mode: str, number: int, case: Dict[str, Any], threads: ThreadPoolExecutor) -> None:
    outcome: Dict[str, Any] = {"case": case["name"]}
    if case.get("needs") == "cancel" and mode == "sync":
        outcome["lacks"] = "nothing can cancel a call of another thread"
    else:
        run = CaseRun(mode, f"py-{mode}-{number}", case, threads)
        try:
            await run.run_steps(case["steps"])
        except Exception as error:
            outcome["error"] = str(error) or repr(error)
        for client in run.clients.values():
            await run.call(client.close)
    print(json.dumps(outcome), flush=True)


async def main(mode: str, path: str) -> None:
    with open(path, encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    waiting = iter([each for each in enumerate(cases) if not each[1].get("alone")])

    async def run_next() -> None:
        for number, case in waiting:
            await verdict(mode, number, case, threads)

    with ThreadPoolExecutor(6 * CASES_AT_ONCE) as threads:
        await asyncio.gather(*(run_next() for _ in range(CASES_AT_ONCE)))
        for number, case in enumerate(cases):
            if case.get("alone"):
                await verdict(mode, number, case, threads)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
