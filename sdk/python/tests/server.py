"""A scripted server of the worker API and the run API, with real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

LIMIT = 60.0
"""Seconds that anything may take in a test."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int
    server: str = ""

    @property
    def doc(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.decode().splitlines() if line]

    @property
    def bearer(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass
class Answer:
    doc: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Cut(Exception):
    """Close the connection without an answer."""


Hook = Callable[[Request], Awaitable[Answer | None]]


@dataclass
class RunOf:
    id: str
    token: str
    document: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    delivered: int = 0
    released: int = 0
    stop: dict[str, Any] | None = None
    told: bool = False

    ended: bool = False

    @property
    def kinds(self) -> list[str]:
        return [e["type"] for e in self.events]

    @property
    def text(self) -> str:
        return "".join(e["text"] for e in self.events if e["type"] == "text")


ENDS = {"ask", "auth", "complete", "fail", "reject", "reply", "retry", "wait", "call"}


class Server:
    """Answers as a replica would, unless a hook of `hooks[path]` answers first. A hook is used once."""

    def __init__(self, lease: float = 6.0) -> None:
        self.lease = lease
        self.requests: list[Request] = []
        self.hooks: dict[str, list[Hook]] = {}
        self.queue: list[RunOf] = []
        self.runs: dict[str, RunOf] = {}
        self.drains: list[str] = []
        self.states: dict[str, tuple[Any, int]] = {}
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def add(self, text: str | None = "hi", agent: str = "hello", **document: Any) -> RunOf:
        """Let a worker claim a run."""
        run = document_of(text, agent, **document)
        self.queue.append(run)
        self.notify()
        return run

    def hook(self, path: str, hook: Hook) -> None:
        self.hooks.setdefault(path, []).append(hook)

    def answer(self, path: str, status: int, times: int = 1, headers: dict[str, str] | None = None, **doc: Any) -> None:
        """Refuse the next requests."""

        async def refuse(request: Request) -> Answer | None:
            return Answer({"title": "refused", "status": status, **doc}, status, headers or {})

        for _ in range(times):
            self.hook(path, refuse)

    def cut(self, path: str, *, after: bool = False) -> None:
        """Cut the next request, before or after it takes effect."""

        async def hook(request: Request) -> Answer | None:
            if after:
                await self._route(request)
            raise Cut

        self.hook(path, hook)

    async def stop(self, run: RunOf, stop: str, metadata: dict[str, Any] | None = None) -> None:
        run.stop = {"id": run.id, "stop": stop, **({"metadata": metadata} if metadata else {})}
        self.notify()

    async def drain(self, drain: str) -> None:
        self.drains.append(drain)
        self.notify()

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], object], limit: float = LIMIT) -> None:
        async def wait() -> None:
            while not condition():
                await self._changed.wait()

        await asyncio.wait_for(wait(), limit)

    def of(self, path: str) -> list[Request]:
        return [r for r in self.requests if r.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        connection = self._connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.rstrip("\r\n").split("\r\n")
                method, target, _ = first.split(" ")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                url = urlsplit(target)
                request = Request(method, url.path, dict(parse_qsl(url.query)), headers, body, connection)
                self.requests.append(request)
                self.notify()
                hooks = self.hooks.get(request.path)
                answer = await hooks.pop(0)(request) if hooks else None
                if answer is None:
                    answer = await self._unless_gone(reader, self._route(request))
                self.notify()
                content = b"" if answer.doc is None else json.dumps(answer.doc).encode()
                send = {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}
                writer.write(f"HTTP/1.1 {answer.status} X\r\n".encode())
                writer.write("".join(f"{k}: {v}\r\n" for k, v in send.items()).encode() + b"\r\n" + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, Cut):
            pass
        finally:
            self.notify()
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _unless_gone(self, reader: asyncio.StreamReader, work: Any) -> Answer:
        """Stop the work when the client closes its connection."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Cut
            return task.result()  # type: ignore[no-any-return]
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _route(self, request: Request) -> Answer:
        path = request.path
        if path == "/worker/v1/claims":
            return await self._claim(request.doc)
        if path == "/worker/v1/heartbeat":
            return await self._heartbeat(request.doc)
        if path == "/worker/v1/release":
            for id in request.doc["runs"]:
                self.runs[id].released += 1
            return Answer({"released": request.doc["runs"], "future": True})
        run = next((r for r in self.runs.values() if r.token == request.bearer), None)
        if run is None:
            return Answer({"title": "no valid token", "status": 401, "reason": "unauthenticated"}, 401)
        if path == "/run/v1/events":
            return self._events(run, int(request.query["from"]), request.events)
        if path.startswith("/run/v1/state/"):
            return self._state(request, path.rpartition("/")[2])
        if path == "/run/v1/history":
            return Answer({"history": [{"role": "user", "parts": [{"text": "before"}]}]})
        if path == "/run/v1/artifacts":
            more = "after" not in request.query
            info = {"artifactId": "a" if more else "b", "chunks": 1, "bytes": 3, "last": True}
            return Answer({"artifacts": [info], **({"next": "a"} if more else {})})
        if path.startswith("/run/v1/artifacts/"):
            return Answer({"artifactId": unquote(path.removeprefix("/run/v1/artifacts/")), "parts": [{"text": "abc"}]})
        return Answer({"title": "nothing is there", "status": 404, "reason": "not_found"}, 404)

    async def _claim(self, doc: dict[str, Any]) -> Answer:
        names = {a["name"]: a["slots"] for a in doc["agents"]}

        def again() -> list[RunOf]:
            held = doc["running"]
            return [r for r in self.runs.values() if r.id not in held and not r.ended and not r.released and r.stop is None]

        def waiting() -> list[RunOf]:
            return [r for r in self.queue if names.get(r.document["task"]["agent"], 0) > 0]

        with contextlib.suppress(asyncio.TimeoutError):
            await self.until(lambda: again() or waiting() or self.drains, doc["wait"])
        runs = again()
        for run in waiting():
            if names[run.document["task"]["agent"]] > 0:
                names[run.document["task"]["agent"]] -= 1
                self.queue.remove(run)
                self.runs[run.id] = run
                runs.append(run)
        for run in runs:
            run.delivered += 1
        answer: dict[str, Any] = {
            "runs": [{"id": r.id, "run": r.document, "lease": self.lease, "future": 1} for r in runs],
            "future": {},
        }
        if self.drains:
            answer["drain"] = self.drains.pop(0)
        return Answer(answer)

    async def _heartbeat(self, doc: dict[str, Any]) -> Answer:
        def stops() -> list[dict[str, Any]]:
            named = (self.runs[id] for id in doc["runs"])
            return [r.stop for r in named if r.stop and r.id not in doc.get("stopping", [])]

        with contextlib.suppress(asyncio.TimeoutError):
            await self.until(stops, doc.get("wait", 0))
        return Answer({"lease": self.lease, "runs": stops(), "future": []})

    def _events(self, run: RunOf, start: int, events: list[dict[str, Any]]) -> Answer:
        if run.stop and run.stop["stop"] != "canceled":
            return Answer({"title": "the run is over", "status": 410, "reason": "over"}, 410)
        if start > len(run.events):
            return Answer({"title": "missing", "status": 409, "reason": "ordinal", "next": len(run.events)}, 409)
        new = events[len(run.events) - start :]
        if run.ended and new:
            return Answer({"title": "the run is over", "status": 410, "reason": "over"}, 410)
        for event in new:
            run.events.append(event)
            run.ended = event["type"] in ENDS
            if run.ended:
                break
        return Answer({"next": len(run.events), "ended": run.ended})

    def _state(self, request: Request, scope: str) -> Answer:
        data, version = self.states.get(scope, (None, 0))
        if request.method == "GET":
            if version == 0:
                return Answer({"title": "nothing is there", "status": 404, "reason": "not_found"}, 404)
            return Answer({"data": data, "version": version})
        match = request.headers.get("if-match")
        if (match and match != f'"{version}"') or (request.headers.get("if-none-match") and version):
            return Answer({"title": "another version is stored", "status": 412, "reason": "state_changed"}, 412)
        self.states[scope] = (request.doc, version + 1)
        return Answer({"version": version + 1})


def document_of(text: str | None, agent: str = "hello", **members: Any) -> RunOf:
    id = str(uuid.uuid4())
    token = "hfrun_" + uuid.uuid4().hex
    document: dict[str, Any] = {
        "version": 1,
        "idempotencyKey": f"{id}:1",
        "task": {"id": f"t-{id[:8]}", "key": id, "contextId": "c-1", "contextKey": "c-1-key", "agent": agent},
        "turn": 1,
        "try": 1,
        "attempt": 1,
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "runApi": {"url": "http://unused.invalid/run/v1", "token": token},
        "limits": {"event": 16 << 20, "state": 256 << 10},
        "future": {"member": 12345678901234567890},
    }
    if text is not None:
        document["message"] = {"role": "user", "parts": [{"text": text}]}
    document.update(members)
    return RunOf(id, token, document)
