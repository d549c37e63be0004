"""Runs an agent in a test: without a server, or with a DevServer as its clients see it.

    from holdfast_agent import testing

    @testing.sync
    async def test_trip():
        task = testing.Task(agent)
        turn = await task.send("Book me a trip")
        assert turn.state == "input-required"
        turn = await task.send("Oslo")
        assert turn.text == "Oslo it is."

The agent's code runs as in a worker: with the same queue of events, checks and ends. A task keeps its history, its states and
the checkpoint of a retried turn, as the server does.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec
from urllib.parse import quote, unquote

from ._active import Active
from ._agent import Agent
from ._devserver import Answered as Answered
from ._devserver import DevServer as DevServer
from ._durable import Durable
from ._logs import RunLogger
from ._outbox import Outbox
from ._run import ENDS, Run
from .content import JSON, Artifact, Message, MessageLike, Part, Result, decode, to_message
from .errors import NotFound, StateChanged

P = ParamSpec("P")

LIMIT = 30.0
"""Seconds that a turn may take by default."""

_STATES = {
    "ask": "input-required",
    "auth": "auth-required",
    "complete": "completed",
    "fail": "failed",
    "reject": "rejected",
    "wait": "working",
    "call": "working",
    "retry": "working",
}


@dataclass
class Turn:
    """What came of one run."""

    events: list[dict[str, JSON]] = field(default_factory=list)
    canceled: bool = False
    number: int = 1
    """Of the turn, from 1."""
    _kept: list[dict[str, JSON]] = field(default_factory=list)  # that earlier tries emitted before the checkpoint

    @property
    def end(self) -> dict[str, JSON]:
        """The event that ended the run, or {} if it was canceled."""
        return self.events[-1] if self.events and self.events[-1]["type"] in ENDS else {}

    @property
    def state(self) -> str:
        """The state of the task after the run: completed, input-required and so on; replied after a bare reply."""
        if self.canceled and not self.end:
            return "canceled"
        return "replied" if self.end.get("type") == "reply" else _STATES.get(self.end.get("type", ""), "working")

    @property
    def message(self) -> Message:
        """The message of the end: the question, or what the task failed with."""
        return _message(self.end.get("message"))

    @property
    def progress(self) -> list[Message]:
        """The messages of statuses."""
        return [_message(e["message"]) for e in self.events if e["type"] == "status" and e.get("message")]

    @property
    def artifacts(self) -> list[Artifact]:
        """The artifacts of this turn, put together: of this run, after what the checkpoint of an earlier try keeps."""
        found: dict[str, Artifact] = {}
        unnamed = 0
        for event in self._kept + self.events:
            if event["type"] == "text":
                name = event.get("name")
                id = event.get("artifactId") or f"{name or 'text'}-{self.number}"
                piece = Artifact.from_json({"artifactId": id, "name": name, "parts": [{"text": event["text"]}]})
                append = event["append"] if event.get("append") is not None else id in found
            elif event["type"] == "artifact":
                piece = Artifact.from_json(event["artifact"])
                if not piece.id:
                    unnamed += 1
                    piece.id = f"artifact-{self.number}-{unnamed}"
                id = piece.id
                append = bool(event.get("append"))
            else:
                continue
            if append and id in found:
                _append(found[id], piece)
            else:
                found[id] = piece
        return list(found.values())

    @property
    def text(self) -> str:
        """The text of all artifacts of this turn."""
        return "".join(a.text for a in self.artifacts)

    @property
    def checkpoint(self) -> JSON:
        """The last checkpoint of the run, or None."""
        return next((e["data"] for e in reversed(self.events) if e["type"] == "checkpoint"), None)

    @property
    def calls(self) -> list[dict[str, JSON]]:
        """The calls of a run that ended with call."""
        calls: list[dict[str, JSON]] = self.end.get("calls") or []
        return calls


class Running:
    """A run under way."""

    def __init__(self, task: Task, active: Active, turn: Turn) -> None:
        self._task = task
        self._active = active
        self._turn = turn
        self._changed = asyncio.Event()
        self._work = asyncio.create_task(self._execute())

    async def _execute(self) -> None:
        try:
            await self._active.execute()
        finally:
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def events(self) -> list[dict[str, JSON]]:
        """What the agent has emitted."""
        return self._turn.events

    async def until(self, condition: Callable[[list[dict[str, JSON]]], object], limit: float = LIMIT) -> None:
        """Wait until the events fulfil a condition. AssertionError is raised if the run ends before."""

        async def wait() -> None:
            while not condition(self._turn.events):
                if self._work.done():
                    raise AssertionError(f"the run has ended before: {self._turn.events}")
                await self._changed.wait()

        await asyncio.wait_for(wait(), limit)

    def cancel(self, metadata: dict[str, JSON] | None = None) -> None:
        """Cancel the task, as its client does."""
        self._turn.canceled = True
        self._active.stop("canceled", metadata)

    async def finish(self, limit: float = LIMIT) -> Turn:
        """Wait for the end of the run."""
        await asyncio.wait_for(asyncio.shield(self._work), limit)
        self._task._ended(self._turn)
        return self._turn


class Task:
    """A task of an agent, in memory."""

    def __init__(
        self,
        agent: Agent,
        *,
        id: str | None = None,
        context_id: str | None = None,
        tenant: str = "",
        owner: str = "",
        metadata: dict[str, JSON] | None = None,
    ) -> None:
        self.agent = agent
        self._agent = agent._name or "agent"
        self.key = str(uuid.uuid4())
        self.id = id or self.key
        self.context_id = context_id or str(uuid.uuid4())
        self.tenant = tenant
        self.owner = owner
        self.context_key = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([tenant, owner, self._agent, self.context_id])))
        self.metadata = metadata
        self.history: list[dict[str, JSON]] = []
        self.states: dict[str, tuple[JSON, int]] = {}
        self._tasks = [self]  # of the context
        self.turns: list[Turn] = []
        self._canceled = False
        self._turn = 0
        self._tries = 1
        self._attempt = 0
        self._checkpoint: tuple[JSON] | None = None
        self._kept: list[dict[str, JSON]] = []
        self._earlier: dict[str, int] = {}
        self._begun: dict[str, JSON] = {}
        self.records: list[dict[str, JSON]] = []
        """What durable runs have recorded, in all turns and tries."""

    def another(self, id: str | None = None) -> Task:
        """Make another task of the same caller in the same context."""
        made = Task(self.agent, id=id, context_id=self.context_id, tenant=self.tenant, owner=self.owner)
        made.states = {scope: stored for scope, stored in self.states.items() if scope == "context"}
        made._tasks = self._tasks
        self._tasks.append(made)
        return made

    @property
    def state(self) -> str:
        """The state of the task."""
        if self._canceled:
            return "canceled"
        return self.turns[-1].state if self.turns else "submitted"

    def cancel(self) -> None:
        """Cancel the task, which waits for its client, as that does."""
        self._canceled = True

    async def send(self, message: MessageLike, **members: JSON) -> Turn:
        """Let the agent answer a message, the first one or the answer to its question. `members` join the run document."""
        return await self.begin(message, **members).finish()

    answer = send

    async def timer(self) -> Turn:
        """Let the time come for which the agent waits."""
        self._expect("wait")
        return await self._begin({"input": {"source": "timer", "until": "2026-03-01T08:00:00Z"}}).finish()

    async def results(self, results: Mapping[str, MessageLike | Result] | Sequence[Result]) -> Turn:
        """Deliver the results of the calls: by their ids, where a message stands for an artifact of a completed task."""
        self._expect("call")
        if not isinstance(results, Mapping):
            results = {r.id: r for r in results}
        docs = []
        for place, call in enumerate(self.turns[-1].calls, 1):
            id = call.get("id") or str(place)
            if id not in results:
                raise ValueError(f"results: none for the call {id!r}")
            docs.append(_result(id, call, results[id]))
        return await self._begin({"input": {"source": "calls", "results": docs}}).finish()

    async def resume(self, data: JSON = None, *, text: str | None = None, method: str = "POST", query: str = "") -> Turn:
        """Request the resume URL of the turn."""
        if self.turns[-1].end.get("resume") is None:
            raise ValueError("resume: the agent has ended its last run without a resume URL")
        given: dict[str, JSON] = {"source": "resume", "method": method}
        if query:
            given["query"] = query
        if text is not None:
            given.update(text=text, contentType="text/plain")
        elif data is not None:
            given.update(data=data, contentType="application/json")
        return await self._begin({"input": given}).finish()

    async def retry(self) -> Turn:
        """Begin the next try of the last turn, with its checkpoint."""
        self._tries += 1
        return await self._start(self._begun).finish()

    def begin(self, message: MessageLike, **members: JSON) -> Running:
        """As send, but do not wait for the end."""
        said = to_message(message).to_json()
        return self._begin({"message": {"messageId": str(uuid.uuid4()), **said, "role": "user"}, **members})

    def _begin(self, members: dict[str, JSON]) -> Running:
        self._turn += 1
        self._tries = 1
        self._checkpoint = None
        self._kept = []
        self._earlier = {}
        self._begun = {**members, "history": list(self.history)}
        return self._start(self._begun)

    def _start(self, members: dict[str, JSON]) -> Running:
        self._attempt += 1
        document: dict[str, JSON] = {
            "version": 1,
            "idempotencyKey": f"{self.key}:{self._turn}",
            "task": {
                "id": self.id,
                "key": self.key,
                "contextId": self.context_id,
                "contextKey": self.context_key,
                "agent": self._agent,
                "tenant": self.tenant,
                "owner": self.owner,
            },
            "turn": self._turn,
            "try": self._tries,
            "attempt": self._attempt,
            "limits": {"event": 16 << 20, "state": 256 << 10},
            "resume": {"url": f"https://agents.example.com/resume/{self.id}-{self._turn}"},
            "state": {scope: {"data": data, "version": version} for scope, (data, version) in self.states.items()},
            **members,
        }
        if self.metadata is not None:
            document["metadata"] = self.metadata
        if self._checkpoint is not None:
            document["checkpoint"] = self._checkpoint[0]
        if self._earlier:
            document["earlier"] = [{"artifactId": id, "chunks": n} for id, n in self._earlier.items()]
        if self.records:
            document["records"] = {"records": self.records}
        document = json.loads(json.dumps(document))  # what the agent changes stays with it
        turn = Turn(number=self._turn, _kept=self._kept)

        async def post(ordinal: int, lines: bytes) -> JSON:
            for line in lines.splitlines():
                event = decode(line)
                self._store(turn, event)
            running._notify()
            return {"next": len(turn.events), "ended": turn.events[-1]["type"] in ENDS}

        log = RunLogger(logging.getLogger("holdfast_agent.testing"), {"task_id": self.id})
        outbox = Outbox(post, lambda reason: None, log)
        running = Running(self, Active(self.agent.handler, Run(document, outbox, _Memory(self, turn)), outbox), turn)
        return running

    def _store(self, turn: Turn, event: dict[str, JSON]) -> None:
        turn.events.append(event)
        wrote = _artifact_id(event)
        if wrote:
            self._earlier[wrote] = self._earlier.get(wrote, 0) + 1
        if event["type"] == "checkpoint":
            self._checkpoint = (event["data"],)
            self._kept = turn._kept + turn.events
        elif event["type"] == "record":
            self.records.append({k: v for k, v in event.items() if k != "type"})
            open, kept = event.get("open") or [], {id(e) for e in self._kept}
            self._kept = [e for e in turn._kept + turn.events if _artifact_id(e) not in open or id(e) in kept]

    def _expect(self, end: str) -> None:
        found = self.turns[-1].end.get("type") if self.turns else None
        if found != end:
            raise ValueError(f"the agent has ended its last run with {found}, not with {end}")

    def _ended(self, turn: Turn) -> None:
        self.turns.append(turn)
        if turn.end.get("type") == "retry":
            return
        if "message" in self._begun:
            self.history.append(self._begun["message"])
        for artifact in turn.artifacts:
            self.history.append({**artifact.to_json(), "role": "agent"})
        if turn.message:
            self.history.append({**turn.message.to_json(), "role": "agent", "state": turn.state})


class _Memory:
    """The run API of a task in memory."""

    def __init__(self, task: Task, turn: Turn) -> None:
        self._task = task
        self._turn = turn

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, match: int | None = None
    ) -> JSON:
        kind, _, id = path[1:].partition("/")
        if kind == "state":
            data, version = self._task.states.get(id, (None, 0))
            if method == "GET":
                return {"data": data, "version": version}
            if match is not None and match != version:
                raise StateChanged("another version is stored")
            assert body is not None
            value = decode(body)
            stored = (value, 0 if value is None else version + 1)
            for task in self._task._tasks if id == "context" else [self._task]:
                task.states[id] = stored
            return {"version": stored[1]}
        artifacts = [a for t in [*self._task.turns, self._turn] for a in t.artifacts]
        if kind == "artifacts" and id:
            for artifact in artifacts:
                if artifact.id == unquote(id):
                    return artifact.to_json()
        elif kind == "artifacts":
            listed = [{"artifactId": a.id, "name": a.name, "chunks": len(a.parts), "bytes": 0, "last": True} for a in artifacts]
            return {"artifacts": listed}
        elif kind == "history":
            return {"history": list(self._task.history)}
        elif kind == "tasks":
            docs = [
                {"id": t.id, "contextId": t.context_id, "state": t.state, **({"history": t.history} if id else {})}
                for t in self._task._tasks
                if t is not self._task and id in ("", quote(t.id, safe=""))
            ]
            if docs or not id:
                return docs[0] if id else {"tasks": docs}
        raise NotFound(path)


def sync(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make a plain function of an async test. So pytest needs no plugin, and unittest no other class."""

    @functools.wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        async def call() -> None:
            await test(*args, **kwargs)

        asyncio.run(call())

    return plain


async def run(agent: Agent, message: MessageLike, **members: JSON) -> Turn:
    """Let an agent answer one message. `members` join the run document."""
    return await Task(agent).send(message, **members)


async def replay(agent: Agent, history: str | Sequence[dict[str, JSON]]) -> None:
    """Let a durable agent's code replay what a task has recorded, without running a step.

    history: Task.records, or the text that `holdfast tasks events ID -o json` prints. CodeChanged is raised if the code does not
    fit it.
    """
    if not isinstance(agent.handler, Durable):
        raise TypeError(f"replay: the agent {agent._name or 'without a name'} is not durable")
    if isinstance(history, str):
        payloads = [json.loads(line).get("payload") or {} for line in history.splitlines()]
        history = [p["checkpoint"] for p in payloads if p.get("outcome") == "record"]
    task = Task(agent)
    document = {
        "version": 1,
        "task": {
            "id": task.id,
            "key": task.key,
            "contextId": task.context_id,
            "contextKey": task.context_key,
            "agent": task._agent,
        },
        "turn": 1 + sum(r["kind"] == "wait" for r in history),
        "records": {"records": json.loads(json.dumps(history))},
    }

    async def post(ordinal: int, lines: bytes) -> JSON:
        raise AssertionError("a replay emits nothing")

    outbox = Outbox(post, lambda reason: None, RunLogger(logging.getLogger("holdfast_agent.testing"), {"task_id": task.id}))
    await Durable(agent.handler._function, dry=True)(Run(document, outbox, _Memory(task, Turn())))


def _artifact_id(event: Mapping[str, JSON]) -> str | None:
    given = event.get("artifactId") or (event.get("artifact") or {}).get("artifactId")
    return str(given) if given else None


def _append(artifact: Artifact, more: Artifact) -> None:
    """Appended text joins the text before it, and metadata that before it, as in a task that is read from the server."""
    parts = artifact.parts
    for part in more.parts:
        if parts and part == Part(text=part.text) and parts[-1] == Part(text=parts[-1].text):
            parts[-1] = Part(text=(parts[-1].text or "") + (part.text or ""))
        else:
            parts.append(part)
    artifact.name, artifact.description = more.name or artifact.name, more.description or artifact.description
    if more.metadata is not None:
        artifact.metadata = {**(artifact.metadata or {}), **more.metadata}
    artifact.extensions += [uri for uri in more.extensions if uri not in artifact.extensions]


def _message(doc: Any) -> Message:
    if doc is None:
        return Message()
    return to_message(doc) if isinstance(doc, str) else Message.from_json({"role": "agent", **doc})


def _result(id: str, call: Mapping[str, JSON], given: MessageLike | Result) -> dict[str, JSON]:
    doc: dict[str, JSON] = {"id": id, "agent": call.get("agent") or "", "task": str(uuid.uuid4()), "state": "completed"}
    if not isinstance(given, Result):
        return {**doc, "artifacts": [{"artifactId": "text-1", "parts": to_message(given).to_json()["parts"]}]}
    doc.update(state=given.state, artifacts=[a.to_json() for a in given.artifacts])
    if given.message:
        doc["message"] = {**given.message.to_json(), "role": "agent"}
    if given.error:
        doc.update(error=given.error)
    return doc
