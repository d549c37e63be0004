"""What the interop programs of the Python SDKs share: the job, how scenarios are run and
reported, and checks of what the demo agent says. It knows no A2A: that is the SDKs' part."""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

DEADLINE = 30  # seconds for one scenario

# Metadata and data that careless handling flattens, reorders or drops. Its numbers are such that a
# protobuf Struct, which knows doubles only, can hold them.
NESTED = {
    "trace": "t-1",
    "empty": {},
    "nested": {"list": [1, "two", None, True, {"deep": 0.5}], "z": {"é": "ü"}, "a": []},
}

# Not UTF-8, so that what treats them as text is found out.
BYTES = bytes([0, 255, 254, 128, 10, 13]) + b"text"

# What the demo agent answers to "file" and "data".
DEMO_FILE = b"Hello from Holdfast.\n"
DEMO_DATA = '{"greeting":"hello","big":12345678901234567890,"float":1.0,"list":[1,"two",null,true],"a":{"z":1,"a":2}}'


class Absent(Exception):
    """This release line has no such call over this binding."""


class Mismatch(Exception):
    """Something else than the scenario wants."""


@dataclass(frozen=True)
class Job:
    """What the harness asks for."""

    binding: str
    a: str
    b: str
    through: str
    cut: str
    grpc_a: str = ""
    grpc_b: str = ""
    grpc_through: str = ""
    receiver: str = ""
    locked: str = ""
    grpc_locked: str = ""
    api_key: str = ""
    token: str = ""

    def moved(self, url: str, to: str) -> str:
        """The address of replica A in a card, exchanged for that of "a" (as it is), "b" or "through"."""
        for a, other in (
            (self.a, {"a": self.a, "b": self.b, "through": self.through}[to]),
            (self.grpc_a, {"a": self.grpc_a, "b": self.grpc_b, "through": self.grpc_through}[to]),
        ):
            if a and url.startswith(a):
                return other + url.removeprefix(a)
        raise Mismatch(f"the card of {self.a} names another server: {url}")

    async def cut_connections(self) -> None:
        async with httpx.AsyncClient() as http:
            (await http.post(self.cut)).raise_for_status()


    async def delivered(self, hook: "Hook", count: int, *more: str) -> list[str]:
        """Waits until so many requests came to a webhook, and returns their bodies. Each has the credentials, and the
        token in the header of 0.3 and those named."""
        async with httpx.AsyncClient() as http:

            async def ask() -> list[dict[str, Any]]:
                answer = await http.get(f"{self.receiver}/received", params={"path": f"/{hook.id}"})
                return answer.raise_for_status().json()

            arrived = await until(ask, lambda arrived: len(arrived) >= count)
        equal(len(arrived), count, f"deliveries to {hook.id}")
        for request in arrived:
            equal(request["headers"].get("authorization"), f"Bearer {hook.credentials}", "authorization")
            for header in ("x-a2a-notification-token", *more):
                equal(request["headers"].get(header), hook.token, header)
        return [request["body"] for request in arrived]


    def unlocked(self) -> "Job":
        """The job at the server that requires credentials."""
        return replace(self, a=self.locked, grpc_a=self.grpc_locked)

    def credentials(self) -> list[tuple[str, str, bool]]:
        """Schemes, credentials for them, and whether the server accepts these."""
        return [
            ("keys", "hfk_wrong", False),
            ("sso", "not.a.token", False),
            ("keys", self.api_key, True),
            ("sso", self.token, True),
        ]


@dataclass(frozen=True)
class Hook:
    """A webhook at a path of the receiver."""

    id: str

    @property
    def token(self) -> str:
        return f"token of {self.id}"

    @property
    def credentials(self) -> str:
        return f"credentials-{self.id}"

    def url(self, job: Job) -> str:
        return f"{job.receiver}/{self.id}"


Scenario = Callable[[Job], Awaitable[None]]


def main(scenarios: list[Scenario]) -> None:
    """Runs the scenarios on the job that the command line names. A scenario is called what its function is:
    return_immediately is return-immediately, and list_ is list."""
    with open(sys.argv[1], encoding="utf-8") as f:
        job = Job(**json.load(f))
    asyncio.run(_run_all(job, scenarios))


async def _run_all(job: Job, scenarios: list[Scenario]) -> None:
    # The standard output is the report's, whatever a framework writes there.
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for scenario in scenarios:
        outcome, detail = "passed", ""
        try:
            async with asyncio.timeout(DEADLINE):
                await scenario(job)
        except Absent as e:
            outcome, detail = "absent", str(e)
        except Exception as e:
            outcome, detail = "failed", f"{type(e).__name__}: {e}"[:500]
            traceback.print_exc()
        name = scenario.__name__.removesuffix("_").replace("_", "-")
        print(json.dumps({"scenario": name, "outcome": outcome, "detail": detail}), file=report, flush=True)


def expect(ok: Any, otherwise: str) -> None:
    if not ok:
        raise Mismatch(otherwise)


def equal(got: Any, want: Any, what: str) -> None:
    expect(got == want, f"{what}: got {got!r}, want {want!r}")


def equal_chunks(texts: list[str], count: int, size: int) -> None:
    """Each chunk of the demo agent begins with its index in eight digits. A read task has them in one part."""
    texts = [t[i : i + size] for t in texts for i in range(0, len(t), size)]
    equal([int(t[:8]) for t in texts], list(range(count)), "indexes of the chunks")
    equal({len(t) for t in texts}, {size}, "sizes of the chunks")


async def unauthenticated(call: Awaitable[Any], credential: str, *words: str) -> None:
    """The client tells that the server does not know the credential, in its words for HTTP or for gRPC, or in those given."""
    try:
        answer = await call
    except Exception as e:
        told = f"{e!r} {e.__cause__!r}"
        expect(any(w in told for w in ("401", "UNAUTHENTICATED", *words)), f"with {credential!r}: {told}")
        return
    expect(False, f"with {credential!r}: no error but {answer!r}")


async def until(get: Callable[[], Awaitable[Any]], done: Callable[[Any], bool]) -> Any:
    """Polls until done; the scenario's deadline ends what never is."""
    while not done(got := await get()):
        await asyncio.sleep(0.05)
    return got
