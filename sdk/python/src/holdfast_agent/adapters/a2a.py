"""Agents of the official Python SDK, a2a-sdk: its lines 0.3 and 1.x.

from holdfast_agent.adapters.a2a import wrap

wrap(TravelExecutor(), "travel").serve()

The ids of the task and its context are the run's task_key and context_key: executors keep memory under them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue

from holdfast_agent import Agent, Artifact, Ended, Fail, Message, Run, Said
from holdfast_agent.content import JSON

_one: Any
try:
    _one = importlib.import_module("a2a.types.a2a_pb2")
except ImportError:
    _one = None


def wrap(executor: AgentExecutor, name: str | None = None, *, concurrency: int | None = None, replies: bool = False) -> Agent:
    """Make an agent of an AgentExecutor.

    With `replies`, a Message that is the first event is a bare reply; configure the agent with direct_replies. Otherwise it
    completes the task.
    """
    agent = Agent(name, concurrency=concurrency)

    @agent.run
    async def answer(run: Run) -> None:
        await _Session(executor, run, replies).execute()

    return agent


class _Caller(User):
    def __init__(self, owner: str) -> None:
        self._owner = owner

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._owner


class _Queue(EventQueue):
    """What the executor puts here, the run emits."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    async def enqueue_event(self, event: Any) -> None:
        await self._session.emit(event)

    async def close(self, *args: Any, **kwargs: Any) -> None:
        """The session ends the queue."""

    def is_closed(self) -> bool:
        return self._session.over


class _Session:
    def __init__(self, executor: AgentExecutor, run: Run, replies: bool, user: str = "") -> None:
        self._executor = executor
        self._user = user or run.owner
        self._run = run
        self._replies = replies
        self._first = True
        self._ids: dict[str, str] = {}
        self._earlier = list(run.earlier)

    @property
    def over(self) -> bool:
        return self._run.ended

    async def execute(self) -> None:
        run = self._run
        if not run.message:
            raise Fail("This agent only answers messages.")
        context = _context_1(run, self._user) if _one is not None else _context_0(run, self._user)
        queue = _Queue(self)
        work = asyncio.ensure_future(_coroutine(self._executor.execute(context, queue)))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # The server of 1.x cancels execute, then calls cancel. That of 0.3 does it the other way round.
            if not run.canceled or _one is not None:
                await _stop(work)
            if run.canceled:
                try:
                    await self._executor.cancel(context, queue)
                except Exception as e:
                    run.log.warning("cancel of the executor failed", exc_info=e)
            await _stop(work)
            raise

    async def emit(self, event: Any) -> None:
        """Emit an event of the SDK. What comes after the end of the run has no effect, as in the SDK's server."""
        first, self._first = self._first, False
        try:
            kind = type(event).__name__
            if kind == "Message":
                message = _message_of(event)
                await (self._run.reply(message) if first and self._replies else self._run.complete(message))
            elif kind == "TaskStatusUpdateEvent":
                await self._status(event.status, _metadata_of(event))
            elif kind == "TaskArtifactUpdateEvent":
                await self._artifact(_artifact_of(event.artifact), event.append, event.last_chunk, _metadata_of(event))
            elif kind == "Task":
                for artifact in event.artifacts or []:
                    await self._artifact(_artifact_of(artifact), False, False, None)
                await self._status(event.status, None)
            else:
                raise TypeError(f"an event of a2a-sdk is a Message, a Task or an update, not {kind}")
        except Ended:
            self._run.log.debug("an event after the end of the run has no effect")

    async def _status(self, status: Any, metadata: dict[str, JSON] | None) -> None:
        run = self._run
        state = _state_of(status.state)
        said = getattr(status, "message", None)
        given = said is not None and (_one is None or status.HasField("message"))
        message = _message_of(said) if given else None
        if state in ("submitted", "working"):
            if message or metadata:
                await run.status(message or None, metadata=metadata)
        elif state == "input-required":
            await run.ask(message or "?", metadata=metadata)
        elif state == "auth-required":
            await run.auth(message or None, metadata=metadata)
        elif state == "completed":
            await run.complete(message or None, metadata=metadata)
        elif state == "failed":
            await run.fail(message or "The agent failed.", metadata=metadata)
        elif state == "rejected":
            await run.reject(message or None, metadata=metadata)
        elif state == "canceled" and run.canceled:
            # The server makes the task canceled when the run ends.
            if message or metadata:
                await run.status(message or None, metadata=metadata)
        else:
            raise Fail(f"The agent has set the state {state}, which only a client may cause.")

    async def _artifact(self, artifact: Artifact, append: bool | None, last: bool | None, metadata: dict[str, JSON] | None) -> None:
        if artifact.id:
            artifact.id = self._id(artifact, bool(append))
        await self._run.artifact(artifact, append=append or None, last=last or None, event_metadata=metadata)

    def _id(self, artifact: Artifact, append: bool) -> str:
        """A random id becomes that which an earlier try gave to the artifact of the same name and order, so it is replaced."""
        id = artifact.id or ""
        if id in self._ids or append:
            return self._ids.get(id, id)
        self._ids[id] = id
        if _random(id):
            for place, left in enumerate(self._earlier):
                if _random(left.id) and (left.name or None) == (artifact.name or None):
                    self._ids[id] = self._earlier.pop(place).id
                    break
        return self._ids[id]


async def _coroutine(work: Coroutine[Any, Any, None]) -> None:
    await work


async def _stop(work: asyncio.Future[None]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work


def _random(id: str) -> bool:
    try:
        uuid.UUID(id)
    except ValueError:
        return False
    return True


def _state_before(run: Run) -> str:
    return next((s.state for s in reversed(run.history) if s.state), "working")


def _status_before(run: Run, state: str, convert: Callable[[Run, Message], dict[str, JSON]]) -> dict[str, JSON]:
    """The status in which the message found the task, with the agent's question."""
    said = next((s for s in reversed(run.history) if s.state and s.parts), None)
    return {"state": state, **({"message": convert(run, said)} if said else {})}


def _call_context(run: Run, user: str) -> dict[str, Any]:
    return {
        "user": _Caller(user) if user else UnauthenticatedUser(),
        "requested_extensions": set(run.extensions),
        "state": {"scopes": list(run.scopes), "holdfast_run": run},
    }


# The line 1.x has protobuf messages, whose JSON is that of the run document, but for the roles.


def _message_1(run: Run, message: Message) -> dict[str, JSON]:
    doc = message.to_json()
    doc.setdefault("messageId", str(uuid.uuid4()))
    return {
        **doc,
        "role": "ROLE_USER" if message.role == "user" else "ROLE_AGENT",
        "taskId": run.task_key,
        "contextId": run.context_key,
    }


def _artifact_doc(said: Said) -> dict[str, JSON]:
    return Artifact(said.parts, said.artifact_id, said.name, said.description, said.metadata, said.extensions).to_json()


def _context_1(run: Run, user: str) -> RequestContext:
    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

    request = ParseDict(
        {
            "message": _message_1(run, run.message),
            "configuration": {"acceptedOutputModes": run.accepted_output_modes},
            "metadata": run.turn_metadata or run.metadata,
        },
        _one.SendMessageRequest(),
        ignore_unknown_fields=True,
    )
    task = None
    if run.turn > 1:
        task = ParseDict(
            {
                "id": run.task_key,
                "contextId": run.context_key,
                "status": _status_before(run, "TASK_STATE_" + _state_before(run).upper().replace("-", "_"), _message_1),
                "history": [_message_1(run, s) for s in run.history if s.artifact_id is None and s.parts]
                + [_message_1(run, run.message)],
                "artifacts": [_artifact_doc(s) for s in run.history if s.artifact_id is not None and s.parts],
                "metadata": run.metadata,
            },
            _one.Task(),
            ignore_unknown_fields=True,
        )
    make: Any = RequestContext
    context: RequestContext = make(
        call_context=ServerCallContext(**{**_call_context(run, user), "tenant": run.tenant}),
        request=request,
        task_id=run.task_key,
        context_id=run.context_key,
        task=task,
    )
    return context


# The line 0.3 has pydantic models, with kinds of parts.


def _parts_0(message: Message) -> list[JSON]:
    found: list[JSON] = []
    for part in message.parts:
        doc = part.to_json()
        metadata = {"metadata": doc["metadata"]} if "metadata" in doc else {}
        if "text" in doc:
            found.append({"kind": "text", "text": doc["text"], **metadata})
        elif "data" in doc:
            value = doc["data"] if isinstance(doc["data"], dict) else {"value": doc["data"]}
            found.append({"kind": "data", "data": value, **metadata})
        else:
            file = {"bytes": doc["raw"]} if "raw" in doc else {"uri": doc["url"]}
            for ours, theirs in (("filename", "name"), ("mediaType", "mimeType")):
                if ours in doc:
                    file[theirs] = doc[ours]
            found.append({"kind": "file", "file": file, **metadata})
    return found


def _message_0(run: Run, message: Message) -> dict[str, JSON]:
    doc = message.to_json()
    doc.setdefault("messageId", str(uuid.uuid4()))
    return {
        **doc,
        "kind": "message",
        "role": message.role,
        "parts": _parts_0(message),
        "taskId": run.task_key,
        "contextId": run.context_key,
    }


def _context_0(run: Run, user: str) -> RequestContext:
    from a2a import types

    params = {
        "message": _message_0(run, run.message),
        "configuration": {"acceptedOutputModes": run.accepted_output_modes},
        "metadata": run.turn_metadata or run.metadata,
    }
    task = None
    if run.turn > 1:
        task = types.Task.model_validate(
            {
                "id": run.task_key,
                "contextId": run.context_key,
                "status": _status_before(run, _state_before(run), _message_0),
                "history": [_message_0(run, s) for s in run.history if s.artifact_id is None and s.parts] + [params["message"]],
                "artifacts": [
                    {**_artifact_doc(s), "parts": _parts_0(s)} for s in run.history if s.artifact_id is not None and s.parts
                ],
                "metadata": run.metadata,
            }
        )
    make: Any = RequestContext
    context: RequestContext = make(
        request=getattr(types, "MessageSendParams").model_validate(params),  # noqa: B009
        task_id=run.task_key,
        context_id=run.context_key,
        task=task,
        call_context=ServerCallContext(**_call_context(run, user)),
    )
    return context


# From the SDK to the run.


def _doc(value: Any) -> dict[str, JSON]:
    if _one is not None:
        from google.protobuf.json_format import MessageToDict

        doc: dict[str, JSON] = _whole(MessageToDict(value))
        return doc
    dumped: dict[str, JSON] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _whole(value: Any) -> Any:
    """protobuf has only doubles: a whole number becomes an integer again."""
    if isinstance(value, dict):
        return {k: _whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_whole(v) for v in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def _state_of(state: Any) -> str:
    if _one is not None:
        name: str = _one.TaskState.Name(state)
        return name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    return str(getattr(state, "value", state))


def _metadata_of(event: Any) -> dict[str, JSON] | None:
    found = _doc(event).get("metadata")
    return found or None


def _parts_of(parts: list[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    if _one is not None:
        return [dict(p) for p in parts]
    found: list[dict[str, JSON]] = []
    for part in parts:
        doc: dict[str, JSON] = {"metadata": part["metadata"]} if part.get("metadata") else {}
        if part["kind"] == "file":
            file = part["file"]
            for theirs, ours in (("bytes", "raw"), ("uri", "url"), ("name", "filename"), ("mimeType", "mediaType")):
                if theirs in file:
                    doc[ours] = file[theirs]
        else:
            doc[part["kind"]] = part[part["kind"]]
        found.append(doc)
    return found


def _message_of(value: Any) -> Message:
    doc = _doc(value)
    return Message.from_json({**doc, "role": "agent", "parts": _parts_of(doc.get("parts") or [])})


def _artifact_of(value: Any) -> Artifact:
    doc = _doc(value)
    return Artifact.from_json({**doc, "parts": _parts_of(doc.get("parts") or [])})
