"""Workers of FastA2A, the server for agents that PydanticAI has.

    from holdfast_agent.adapters.fasta2a import wrap

    wrap(TravelWorker, "travel").serve()

The worker gets a storage and a broker that are those of one run. What it publishes and stores goes to the client, and the
context that it stores is the state of the context. The ids it gets are the keys of the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from fasta2a import Broker, Storage, Worker
from fasta2a.broker import TaskOperation
from fasta2a.event_bus import EventBus
from pydantic import TypeAdapter

from holdfast_agent import Agent, Artifact, Message, Run, text
from holdfast_agent.content import JSON

Doc = dict[str, Any]
_NAMES = (("media_type", "mediaType"), ("message_id", "messageId"), ("artifact_id", "artifactId"))
ENDS = frozenset({"completed", "canceled", "failed", "rejected", "input-required", "auth-required"})


def wrap(
    worker: Callable[..., Worker[Any]],
    name: str | None = None,
    *,
    concurrency: int | None = None,
    context: Any = Any,
) -> Agent:
    """Make an agent of a class of workers, or of a function of (broker, storage) that makes one. Each run has a worker of its own.

    context: the type of what the worker stores as context, if it is not JSON.
    """
    agent = Agent(name, concurrency=concurrency)
    codec: TypeAdapter[Any] = TypeAdapter(context)

    @agent.run
    async def answer(run: Run) -> None:
        work = _Work(run)
        storage = _Storage(work, codec)
        inner = worker(broker=_Broker(event_bus=_Bus(work)), storage=storage)
        params: Any = {"id": run.task_key, "context_id": run.context_key, "message": work.history[-1]}
        if run.accepted_output_modes:
            params["accepted_output_modes"] = run.accepted_output_modes
        if run.turn_metadata:
            params["metadata"] = run.turn_metadata
        try:
            await inner.run_task(params)
        except asyncio.CancelledError:
            if run.canceled:
                await inner.cancel_task({"id": run.task_key})
            raise
        await work.end()

    return agent


class _Work:
    """What the worker has said in this run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        ids = {"task_id": run.task_key, "context_id": run.context_key}
        said: list[tuple[str, Message]] = [*((s.role, s) for s in run.history), ("user", run.message)]
        self.history: list[Any] = [
            {"role": role, "message_id": m.id or "", "parts": [_theirs(p.to_json()) for p in m.parts], **ids} for role, m in said
        ]
        self.artifacts: list[Any] = []
        self.shown: set[str] = set()
        self.state = "submitted"
        self.last: Message | None = None

    def task(self) -> Any:
        status = {"state": self.state, "timestamp": datetime.now(timezone.utc).isoformat()}
        ids = {"id": self.run.task_key, "context_id": self.run.context_key}
        return {**ids, "status": status, "history": list(self.history), "artifacts": list(self.artifacts)}

    async def status(self, state: str, message: Mapping[str, Any] | None) -> None:
        self.state = state
        if message is not None and message.get("parts"):
            self.last = Message.from_json(_ours(message))
            if state not in ENDS:
                await self.run.progress(self.last)

    async def artifact(self, doc: Mapping[str, Any], append: bool = False, last: bool = True) -> None:
        made = Artifact.from_json(_ours(doc))
        self.shown.add(doc["artifact_id"])
        await self.run.artifact(made, append=append or None, last=last or None)

    async def end(self) -> None:
        run, said = self.run, self.last
        if self.state == "failed":
            await run.fail(said or text("The agent failed."))
        elif self.state in ("rejected", "canceled"):  # no client has asked for that cancel
            await run.reject(said)
        elif self.state == "input-required":
            await run.ask(said or text("?"))
        elif self.state == "auth-required":
            await run.auth(said)
        else:
            await run.complete(said if self.state in ENDS else None)


class _Storage(Storage[Any]):
    """The task of a run, and the state of its context."""

    def __init__(self, work: _Work, codec: TypeAdapter[Any]) -> None:
        self._work = work
        self._codec = codec

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        if task_id != self._work.run.task_key:
            return None
        task = self._work.task()
        if history_length:
            task["history"] = task["history"][-history_length:]
        return task

    async def submit_task(self, context_id: str, message: Any) -> Any:
        raise NotImplementedError("a worker makes no tasks; call other agents with run.call of holdfast_agent")

    async def update_task(self, task_id: str, state: str, new_artifacts: Any = None, new_messages: Any = None) -> Any:
        work = self._work
        for artifact in new_artifacts or []:
            work.artifacts.append(artifact)
            if artifact["artifact_id"] not in work.shown:
                await work.artifact(artifact)
        said = None
        for message in new_messages or []:
            work.history.append(message)
            if message.get("role") == "agent":
                said = message
        await work.status(state, said)
        return work.task()

    async def load_context(self, context_id: str) -> Any:
        stored = (await self._work.run.get_state("context")).data
        return None if stored is None else self._codec.validate_python(stored)

    async def update_context(self, context_id: str, context: Any) -> None:
        await self._work.run.set_state(self._codec.dump_python(context, mode="json"), "context")


class _Bus(EventBus):
    """What a worker publishes is what the client sees."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    @contextlib.asynccontextmanager
    async def subscribe(self, task_id: str) -> AsyncIterator[Any]:
        raise NotImplementedError("clients subscribe at the server")
        yield

    async def emit(self, task_id: str, event: Any) -> None:
        if status := event.get("status_update"):
            await self._work.status(status["status"]["state"], status["status"].get("message"))
        if update := event.get("artifact_update"):
            await self._work.artifact(update["artifact"], bool(update.get("append")), bool(update.get("last_chunk")))

    async def close(self, task_id: str) -> None:
        pass


class _Broker(Broker):
    """Runs come from the server."""

    async def run_task(self, params: Any) -> None:
        raise NotImplementedError("the server sends runs")

    async def cancel_task(self, params: Any) -> None:
        raise NotImplementedError("the server cancels runs")

    async def __aenter__(self) -> _Broker:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        pass

    async def receive_task_operations(self) -> AsyncIterator[TaskOperation]:
        raise NotImplementedError("the server sends runs")
        yield


def _theirs(part: Mapping[str, JSON]) -> Doc:
    return {
        **{k: v for k, v in part.items() if k != "mediaType"},
        **({"media_type": part["mediaType"]} if "mediaType" in part else {}),
    }


def _ours(doc: Mapping[str, Any]) -> Doc:
    """A message or an artifact with the names of A2A's JSON."""
    made = {dict(_NAMES).get(k, k): v for k, v in doc.items() if k not in ("task_id", "context_id", "kind")}
    made["parts"] = [{dict(_NAMES).get(k, k): v for k, v in p.items()} for p in doc.get("parts") or []]
    return made
