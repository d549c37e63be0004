"""A run: what an agent gets, and what it can say."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import traceback
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import quote

from ._logs import RunLogger
from ._outbox import Outbox
from ._runapi import Api
from .content import (
    JSON,
    Artifact,
    ArtifactInfo,
    Call,
    Input,
    Message,
    MessageLike,
    PartLike,
    Result,
    Resume,
    Said,
    Scope,
    State,
    TaskInfo,
    encode,
    to_message,
    to_part,
)
from .content import time as parse_time
from .errors import Ended, EventRefused, NotFound, Problem, StateChanged, Stopped, too_large

T = TypeVar("T")

OUTCOMES = {
    "ask": "parked",
    "auth": "parked",
    "complete": "completed",
    "fail": "failed",
    "reject": "rejected",
    "reply": "completed",
    "retry": "retried",
    "wait": "waits",
    "call": "calls",
}
"""What a run has come to by the event that ended it, as in the log of the server."""
ENDS = frozenset(OUTCOMES)
YEARS = 315360000


@dataclass
class Reference:
    """A task that the message refers to."""

    id: str
    context_id: str
    state: str
    history: list[Said] = field(default_factory=list)


@dataclass
class History:
    """A part of a conversation, oldest first. `next` leads to older entries; without it there are none."""

    entries: list[Said]
    next: str | None = None


class RunInfo:
    """The run document. See docs/executors.md for the members."""

    def __init__(self, document: dict[str, JSON], *, id: str = "") -> None:
        task = document["task"]
        self.document = document
        self.id: str = id or f"{task['id']}/{document.get('attempt', 0)}"
        self.task_id: str = task["id"]
        self.task_key: str = task["key"]
        """For memory of the task that is not Holdfast's. Another caller's task may have the same task_id."""
        self.context_id: str = task.get("contextId") or ""
        self.context_key: str = task["contextKey"]
        """For memory of the context that is not Holdfast's: no other caller or agent has it. Clients choose context_id."""
        self.agent: str = task.get("agent") or ""
        self.tenant: str = task.get("tenant") or ""
        self.owner: str = task.get("owner") or ""
        self.idempotency_key: str = document.get("idempotencyKey") or ""
        self.turn: int = document.get("turn", 1)
        self.tries: int = document.get("try", 1)
        self.attempt: int = document.get("attempt", 0)
        message = document.get("message")
        self.message: Message = Message.from_json(message) if message else Message(role="user")
        """The message to answer. Without parts if a timer, the results of calls or a resume URL began the turn."""
        given = document.get("input")
        self.input: Input | None = Input.from_json(given) if given else None
        self.results: list[Result] = self.input.results if self.input else []
        self.history: list[Said] = [Said.from_json(s) for s in document.get("history") or []]
        self.metadata: dict[str, JSON] = document.get("metadata") or {}
        self.turn_metadata: dict[str, JSON] = document.get("turnMetadata") or {}
        self.last_checkpoint: JSON = document.get("checkpoint")
        """What an earlier try of this message stored last, or None."""
        self.earlier: list[ArtifactInfo] = [ArtifactInfo.from_json(a) for a in document.get("earlier") or []]
        """The artifacts that earlier tries of this message left."""
        self.resume_url: str | None = (document.get("resume") or {}).get("url")
        self.accepted_output_modes: list[str] = document.get("acceptedOutputModes") or []
        self.extensions: list[str] = document.get("extensions") or []
        self.extension_params: dict[str, dict[str, JSON]] = document.get("extensionParams") or {}
        self.scopes: list[str] = document.get("scopes") or []
        self.references: list[Reference] = [
            Reference(r["id"], r.get("contextId") or "", r.get("state") or "", [Said.from_json(s) for s in r.get("history") or []])
            for r in document.get("references") or []
        ]
        self.deadline: datetime | None = parse_time(document.get("deadline"))
        self.traceparent: str = document.get("traceparent") or ""
        pieces = self.traceparent.split("-")
        self.trace_id: str = pieces[1] if len(pieces) >= 4 else ""
        limits = document.get("limits") or {}
        self._max_event: int | None = limits.get("event")
        self._max_state: int | None = limits.get("state")
        self._states = {
            scope: State(s["data"], s["version"]) for scope, s in (document.get("state") or {}).items() if isinstance(s, dict)
        }
        self.canceled = False
        """The client has canceled the task."""
        self.cancel_metadata: dict[str, JSON] = {}
        """Of the request that canceled the task."""
        self.stop_reason: str | None = None
        """Why the run was stopped: canceled, lost, over or released. None: it goes on."""

    def state(self, scope: Scope = "task") -> State:
        """The stored value, as the run document had it or as this run has read or stored it since."""
        return self._states.get(scope) or State()

    @property
    def fields(self) -> dict[str, str]:
        """What log records of the run carry."""
        return {"task_id": self.task_id, "run": self.id, "trace_id": self.trace_id}


class Run(RunInfo):
    """A run of an async agent.

    Awaiting an emission waits only for room in a bounded queue. `flush`, and each word that ends the run, wait until
    everything is committed.
    """

    def __init__(self, document: dict[str, JSON], outbox: Outbox, api: Api, *, id: str = "") -> None:
        super().__init__(document, id=id)
        self.log: logging.LoggerAdapter[logging.Logger] = RunLogger(logging.getLogger("holdfast_agent.run"), self.fields)
        self._outbox = outbox
        self._api = api
        self._end: str | None = None

    # What the agent says.

    async def text(
        self,
        text: str,
        *,
        name: str | None = None,
        artifact_id: str | None = None,
        append: bool | None = None,
        last: bool | None = None,
    ) -> None:
        """Add text to an artifact. Texts of one name are one artifact. A later try replaces what came after the checkpoint."""
        if not isinstance(text, str):
            raise TypeError(f"text is a str, not {type(text).__name__}")
        await self._emit("text", text=text, name=name, artifactId=artifact_id, append=append, last=last)

    async def artifact(
        self,
        *parts: PartLike | Artifact,
        name: str | None = None,
        id: str | None = None,
        description: str | None = None,
        metadata: dict[str, JSON] | None = None,
        extensions: list[str] | None = None,
        append: bool | None = None,
        last: bool | None = None,
        event_metadata: dict[str, JSON] | None = None,
    ) -> None:
        """Emit an artifact, or with `append` a piece of the one with this id."""
        if len(parts) == 1 and isinstance(parts[0], Artifact):
            artifact = parts[0]
        else:
            pieces = [p for p in parts if not isinstance(p, Artifact)]
            if len(pieces) != len(parts):
                raise TypeError("artifact takes one Artifact, or parts")
            artifact = Artifact([to_part(p) for p in pieces], id, name, description, metadata, extensions or [])
        if append and not artifact.id:
            raise ValueError("append needs the id of the artifact")
        await self._emit("artifact", artifact=artifact.to_json(), append=append, last=last, metadata=event_metadata)

    async def status(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """Report progress. Without a message it is a sign of life."""
        await self._emit("status", message=_speech(message), metadata=metadata)

    progress = status

    async def checkpoint(self, data: JSON) -> None:
        """Store where the run stands, for the next try of this message."""
        await self._emit("checkpoint", True, data=data)

    async def ask(
        self, message: MessageLike, *, metadata: dict[str, JSON] | None = None, resume: Resume | bool | None = None
    ) -> None:
        """End the run with a question. The client's answer begins the next turn."""
        await self._emit("ask", message=_speech(message), metadata=metadata, resume=_resume(resume))

    async def auth(
        self,
        message: MessageLike | None = None,
        *,
        metadata: dict[str, JSON] | None = None,
        resume: Resume | bool | None = None,
    ) -> None:
        """End the run until the client has authenticated."""
        await self._emit("auth", message=_speech(message), metadata=metadata, resume=_resume(resume))

    async def complete(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """End the task: completed."""
        await self._emit("complete", message=_speech(message), metadata=metadata)

    async def fail(
        self, message: MessageLike, *, metadata: dict[str, JSON] | None = None, error: BaseException | None = None
    ) -> None:
        """End the task: failed. The client reads the message; operators read the error, with its trace."""
        await self._emit("fail", message=_speech(message), metadata=metadata, error=_raised(error))

    async def reject(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """End the task: rejected."""
        await self._emit("reject", message=_speech(message), metadata=metadata)

    async def reply(self, message: MessageLike) -> None:
        """Answer with a bare message instead of a task. It must be the only event."""
        await self._emit("reply", message=_speech(message))

    async def retry(self, reason: str | None = None, *, after: float | None = None) -> None:
        """End this try. The server retries after so many seconds, or after its backoff."""
        await self._emit("retry", reason=reason, after=after)

    async def wait(self, seconds: float | None = None, *, until: datetime | None = None, interruptible: bool | None = None) -> None:
        """End the run. The next turn begins at that time."""
        if (seconds is None) == (until is None):
            raise ValueError("wait takes either seconds or until")
        if seconds is not None and not 0 < seconds <= YEARS:
            raise ValueError(f"wait: {seconds} is not a number of seconds above 0 and at most {YEARS}")
        moment = None
        if until is not None:
            if until.tzinfo is None:
                raise ValueError("wait: until needs a time zone; write datetime.now(timezone.utc) + timedelta(hours=1)")
            moment = until.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        members: dict[str, Any] = {"for": seconds, "until": moment, "interruptible": interruptible}
        await self._emit("wait", **members)

    async def call(self, *calls: Call) -> None:
        """End the run with messages for other agents. Their results begin the next turn, see `results`."""
        if not calls:
            raise ValueError("call takes at least one Call")
        await self._emit("call", calls=[c.to_json() for c in calls])

    async def flush(self) -> None:
        """Wait until everything that was emitted is committed."""
        await self._outbox.flush()

    # What the agent stores and reads.

    async def set_state(self, data: JSON, scope: Scope = "task", *, version: int | None = None) -> int:
        """Store a value for later runs of the task or the context, and return its version. None removes it.

        With `version`, only that version is replaced (0: nothing is stored); otherwise StateChanged is raised.
        """
        _scope(scope)
        body = encode(data, "the state")
        too_large("the state", len(body), "max_state", self._max_state)
        try:
            answer = await self._api.call("PUT", f"/state/{scope}", body=body, match=version)
            stored = int(answer["version"])
        except StateChanged as e:
            # The first request may have stored the value, and its answer was lost.
            if not e.repeated or version is None:
                raise
            found = await self.get_state(scope)
            if encode(found.data, "the state") != body or found.version not in (0, version + 1):
                raise
            stored = found.version
        self._states[scope] = State(data, stored)
        return stored

    async def get_state(self, scope: Scope = "task") -> State:
        """Read the stored value."""
        _scope(scope)
        try:
            answer = await self._api.call("GET", f"/state/{scope}")
        except NotFound:
            answer = {"data": None, "version": 0}
        self._states[scope] = State(answer["data"], answer["version"])
        return self._states[scope]

    async def read_history(
        self,
        scope: Scope = "task",
        *,
        count: int | None = None,
        bytes: int | None = None,
        progress: bool = False,
        before: str | None = None,
    ) -> History:
        """Read what was said before this turn."""
        _scope(scope)
        query = _query(scope=scope, count=count, bytes=bytes, progress=progress or None, before=before)
        answer = await self._api.call("GET", "/history", query=query)
        return History([Said.from_json(s) for s in answer["history"]], answer.get("next"))

    async def read_artifacts(self) -> list[ArtifactInfo]:
        """List the artifacts of the task, in the order in which they first appeared."""
        found: list[ArtifactInfo] = []
        after: str | None = None
        while True:
            answer = await self._api.call("GET", "/artifacts", query=_query(count=100, after=after))
            found += [ArtifactInfo.from_json(a) for a in answer["artifacts"]]
            after = answer.get("next")
            if not after:
                return found

    async def read_artifact(self, id: str) -> Artifact:
        """Read an artifact with its whole content. NotFound is raised if there is none."""
        return Artifact.from_json(await self._api.call("GET", "/artifacts/" + quote(id, safe="")))

    async def read_tasks(self, count: int = 50, *, before: str | None = None) -> tuple[list[TaskInfo], str | None]:
        """List other tasks of the context, the newest first, and say where older ones begin."""
        answer = await self._api.call("GET", "/tasks", query=_query(count=count, before=before))
        return [TaskInfo.from_json(t) for t in answer["tasks"]], answer.get("next")

    async def read_task(self, id: str, *, count: int | None = None, bytes: int | None = None) -> TaskInfo:
        """Read one of the other tasks of the context, with what was said in it."""
        query = _query(count=count, bytes=bytes)
        return TaskInfo.from_json(await self._api.call("GET", "/tasks/" + quote(id, safe=""), query=query))

    # The end of the run.

    @property
    def ended(self) -> bool:
        """A word that ends the run was emitted."""
        return self._end is not None

    async def _emit(self, kind: str, keep: bool = False, /, **members: JSON) -> None:
        if self._end is not None:
            raise Ended(f"the run has ended with {self._end!r}: nothing may follow, not even {kind!r}")
        event = {"type": kind, **{k: v for k, v in members.items() if v is not None or keep}}
        line = encode(event, f"the event {kind!r}")
        try:
            too_large("it", len(line), "max_event", self._max_event)
        except Problem as e:
            raise EventRefused(e, kind) from None
        if kind not in ENDS:
            await self._outbox.put(kind, line)
            return
        await self._outbox.put(kind, line)
        self._end = kind
        try:
            await self._outbox.flush()
        except Stopped:
            if not self._outbox.ended:
                raise
        except BaseException:
            self._end = None
            raise

    def _mark(self, reason: str, metadata: Mapping[str, JSON] | None) -> None:
        self.stop_reason = reason
        if reason == "canceled":
            self.canceled = True
            self.cancel_metadata = dict(metadata or {})


class SyncRun(RunInfo):
    """A run of a sync agent, which has a thread of its own. Its words are those of Run, and block.

    `stopped` is set when the run should stop; `check` raises Stopped then.
    """

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(run.document, id=run.id)
        self.log = run.log
        self.stopped = threading.Event()
        self._run = run
        self._loop = loop

    def check(self) -> None:
        """Raise Stopped if the run should stop."""
        if self.stopped.is_set():
            raise Stopped(f"the run is stopped: {self.stop_reason}")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except concurrent.futures.CancelledError:
            raise Stopped("the worker stops") from None

    def text(
        self,
        text: str,
        *,
        name: str | None = None,
        artifact_id: str | None = None,
        append: bool | None = None,
        last: bool | None = None,
    ) -> None:
        """Add text to an artifact. Texts of one name are one artifact. A later try replaces what came after the checkpoint."""
        self._wait(self._run.text(text, name=name, artifact_id=artifact_id, append=append, last=last))

    def artifact(
        self,
        *parts: PartLike | Artifact,
        name: str | None = None,
        id: str | None = None,
        description: str | None = None,
        metadata: dict[str, JSON] | None = None,
        extensions: list[str] | None = None,
        append: bool | None = None,
        last: bool | None = None,
        event_metadata: dict[str, JSON] | None = None,
    ) -> None:
        """Emit an artifact, or with `append` a piece of the one with this id."""
        self._wait(
            self._run.artifact(
                *parts,
                name=name,
                id=id,
                description=description,
                metadata=metadata,
                extensions=extensions,
                append=append,
                last=last,
                event_metadata=event_metadata,
            )
        )

    def status(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """Report progress. Without a message it is a sign of life."""
        self._wait(self._run.status(message, metadata=metadata))

    progress = status

    def checkpoint(self, data: JSON) -> None:
        """Store where the run stands, for the next try of this message."""
        self._wait(self._run.checkpoint(data))

    def ask(self, message: MessageLike, *, metadata: dict[str, JSON] | None = None, resume: Resume | bool | None = None) -> None:
        """End the run with a question. The client's answer begins the next turn."""
        self._wait(self._run.ask(message, metadata=metadata, resume=resume))

    def auth(
        self,
        message: MessageLike | None = None,
        *,
        metadata: dict[str, JSON] | None = None,
        resume: Resume | bool | None = None,
    ) -> None:
        """End the run until the client has authenticated."""
        self._wait(self._run.auth(message, metadata=metadata, resume=resume))

    def complete(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """End the task: completed."""
        self._wait(self._run.complete(message, metadata=metadata))

    def fail(self, message: MessageLike, *, metadata: dict[str, JSON] | None = None, error: BaseException | None = None) -> None:
        """End the task: failed. The client reads the message; operators read the error, with its trace."""
        self._wait(self._run.fail(message, metadata=metadata, error=error))

    def reject(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """End the task: rejected."""
        self._wait(self._run.reject(message, metadata=metadata))

    def reply(self, message: MessageLike) -> None:
        """Answer with a bare message instead of a task. It must be the only event."""
        self._wait(self._run.reply(message))

    def retry(self, reason: str | None = None, *, after: float | None = None) -> None:
        """End this try. The server retries after so many seconds, or after its backoff."""
        self._wait(self._run.retry(reason, after=after))

    def wait(self, seconds: float | None = None, *, until: datetime | None = None, interruptible: bool | None = None) -> None:
        """End the run. The next turn begins at that time."""
        self._wait(self._run.wait(seconds, until=until, interruptible=interruptible))

    def call(self, *calls: Call) -> None:
        """End the run with messages for other agents. Their results begin the next turn, see `results`."""
        self._wait(self._run.call(*calls))

    def flush(self) -> None:
        """Wait until everything that was emitted is committed."""
        self._wait(self._run.flush())

    def state(self, scope: Scope = "task") -> State:
        """The stored value, as the run document had it or as this run has read or stored it since."""
        return self._run.state(scope)

    def set_state(self, data: JSON, scope: Scope = "task", *, version: int | None = None) -> int:
        """Store a value for later runs of the task or the context, and return its version. None removes it."""
        return self._wait(self._run.set_state(data, scope, version=version))

    def get_state(self, scope: Scope = "task") -> State:
        """Read the stored value."""
        return self._wait(self._run.get_state(scope))

    def read_history(
        self,
        scope: Scope = "task",
        *,
        count: int | None = None,
        bytes: int | None = None,
        progress: bool = False,
        before: str | None = None,
    ) -> History:
        """Read what was said before this turn."""
        return self._wait(self._run.read_history(scope, count=count, bytes=bytes, progress=progress, before=before))

    def read_artifacts(self) -> list[ArtifactInfo]:
        """List the artifacts of the task, in the order in which they first appeared."""
        return self._wait(self._run.read_artifacts())

    def read_artifact(self, id: str) -> Artifact:
        """Read an artifact with its whole content. NotFound is raised if there is none."""
        return self._wait(self._run.read_artifact(id))

    def read_tasks(self, count: int = 50, *, before: str | None = None) -> tuple[list[TaskInfo], str | None]:
        """List other tasks of the context, the newest first, and say where older ones begin."""
        return self._wait(self._run.read_tasks(count, before=before))

    def read_task(self, id: str, *, count: int | None = None, bytes: int | None = None) -> TaskInfo:
        """Read one of the other tasks of the context, with what was said in it."""
        return self._wait(self._run.read_task(id, count=count, bytes=bytes))

    @property
    def ended(self) -> bool:
        """A word that ends the run was emitted."""
        return self._run.ended

    def _mark(self) -> None:
        self.canceled = self._run.canceled
        self.cancel_metadata = self._run.cancel_metadata
        self.stop_reason = self._run.stop_reason
        self.stopped.set()


def _speech(message: MessageLike | None) -> JSON:
    if message is None or isinstance(message, str):
        return message
    return to_message(message).to_json()


_HERE = os.path.dirname(__file__)
_SITE = os.sep + "site-packages" + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_TRACE = 16000
"""The longest trace, in characters: the newest frames are at its end."""


def _raised(error: BaseException | None) -> JSON:
    """What operators read of an exception. Its place is the newest frame of the agent's own code."""
    if error is None:
        return None
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE + os.sep)]
    own = [f for f in frames if not f.filename.startswith(_STDLIB) and _SITE not in f.filename] or frames
    lines = traceback.TracebackException.from_exception(error)
    lines.stack = traceback.StackSummary.from_list(frames)
    doc: dict[str, JSON] = {"type": type(error).__name__, "message": str(error), "trace": "".join(lines.format())[-_TRACE:]}
    if own:
        doc["place"] = f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}"
    return doc


def _resume(resume: Resume | bool | None) -> JSON:
    if isinstance(resume, Resume):
        return resume.to_json()
    return {} if resume else None


def _scope(scope: str) -> None:
    if scope not in ("task", "context"):
        raise ValueError(f"scope: {scope!r} is neither 'task' nor 'context'")


def _query(**members: str | int | None) -> dict[str, str]:
    query = {}
    for key, value in members.items():
        if value is not None:
            query[key] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return query
