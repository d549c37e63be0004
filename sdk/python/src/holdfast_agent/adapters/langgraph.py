"""Graphs of LangGraph.

    from holdfast_agent.adapters.langgraph import wrap

    wrap(builder.compile(checkpointer=saver), "travel").serve()

With a checkpointer, the thread is the context of the task, of its caller and of this agent: memory, and interrupts that become
questions. A task that begins while another one of its context runs or waits has a thread of its own, which begins as a copy
of the memory. Without a checkpointer, a graph with messages gets the conversation from the run document.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt, StateSnapshot

from holdfast_agent import Agent, Fail, Message, NotFound, PartLike, Run, Said, data
from holdfast_agent.content import JSON

TURN = "holdfast_turn"
"""The metadata of a checkpoint that says which turn wrote it, by its idempotency key."""
TASK = "holdfast_task"
"""The same for the task, by its id."""

_log = logging.getLogger(__name__)


def wrap(
    graph: Any,
    name: str | None = None,
    *,
    concurrency: int | None = None,
    thread: Literal["context", "task"] = "context",
    input: Callable[[Run], Any] | None = None,
    output: Callable[[Any], PartLike | Sequence[PartLike] | None] | None = None,
    resume: Callable[[Run], Any] | None = None,
    config: Callable[[Run], dict[str, Any]] | None = None,
    nodes: Sequence[str] | None = None,
) -> Agent:
    """Make an agent of a compiled graph.

    thread: of the checkpointer, the context or the task.
    input: what the graph gets for a message; default {"messages": [HumanMessage]}.
    output: makes parts of the final state; default the last message of an AI, if it was not streamed, or the state as data.
    resume: what an interrupt gets for the client's answer; default its first data part, else its text.
    config: joins the configuration of the graph.
    nodes: whose messages are streamed; default all.
    """
    agent = Agent(name, concurrency=concurrency)

    @agent.run
    async def answer(run: Run) -> None:
        given: dict[str, Any] = (config(run) if config else {}) or {}
        own = {"thread_id": run.context_key if thread == "context" else run.task_key, "holdfast_run": run}
        settings = {
            **given,
            "configurable": {**own, **given.get("configurable", {})},
            "metadata": {TURN: run.idempotency_key, TASK: run.task_id, **given.get("metadata", {})},
        }
        durable = getattr(graph, "checkpointer", None) not in (None, False)
        begin: Any = (input or _input)(run)
        last: str | None = None  # the message that was streamed last, and its text
        sent = ""
        if durable:
            settings, state = await _thread(graph, run, settings)
            pending = _interrupts(state)
            mine = _by(state, TURN) == run.idempotency_key
            if run.turn > 1 and _by(state, TASK) != run.task_id:
                # With an answer alone, the graph would begin anew.
                raise Fail("The agent has lost the memory of this task.")
            if mine and pending:  # an earlier try came so far
                await _ask(run, pending)
                return
            if mine and run.last_checkpoint is not None:
                last, sent = run.last_checkpoint["message"], run.last_checkpoint["text"]
            # A node whose result is stored, but not its step, is no longer in state.next. The graph goes on behind it.
            if mine and not state.tasks:
                await _final(run, state.values, output, sent)
                return
            if mine:
                begin = None
            elif pending and _by(state, TASK) == run.task_id:
                value = (resume or _answer)(run)
                begin = Command(resume=value if len(pending) == 1 else _each(pending, value))
        elif input is None:
            begin = {"messages": [*_past(run.history), *begin["messages"]]}
        values: Any = None
        kept = last
        asked: list[Interrupt] = []
        async for mode, item in graph.astream(begin, settings, stream_mode=["messages", "updates", "custom", "values"]):
            if mode == "messages":
                message, about = item
                text = _text(message)
                if not text or not isinstance(message, (AIMessage, AIMessageChunk)):
                    continue
                if nodes is not None and about.get("langgraph_node") not in nodes:
                    continue
                if message.id != last:
                    sent = ""
                    await run.text("\n" + text if last is not None else text)
                else:
                    await run.text(text)
                last = message.id or ""
                sent += text
            elif mode == "custom":
                await run.progress(item if isinstance(item, str) else data(_plain(item)))
            elif mode == "updates" and "__interrupt__" in item:
                asked += item["__interrupt__"]
            elif mode == "values":
                values = item
                if durable and last != kept:  # the next try goes on behind this step: its text stays
                    await run.checkpoint({"message": last, "text": sent})
                    kept = last
        if asked:
            if isinstance(graph.checkpointer, InMemorySaver):
                _log.warning("a question waits in an InMemorySaver: its answer fails the task if another process gets it")
            await _ask(run, asked)
            return
        await _final(run, values, output, sent)

    return agent


def _by(state: StateSnapshot, what: str) -> Any:
    """Which turn or task wrote the state."""
    return (state.metadata or {}).get(what)


async def _thread(graph: Any, run: Run, settings: dict[str, Any]) -> tuple[dict[str, Any], StateSnapshot]:
    """The thread of the task, as settings, and its state. A thread of LangGraph can wait for one answer only."""
    alone = {**settings, "configurable": {**settings["configurable"], "thread_id": run.task_key}}
    if run.attempt > 1:
        state: StateSnapshot = await graph.aget_state(alone)
        if _by(state, TASK) == run.task_id:
            return alone, state
    state = await graph.aget_state(settings)
    other = _by(state, TASK)
    if other in (None, run.task_id) or not state.tasks:
        return settings, state
    before = None  # the newest state in which no task was under way
    async for past in graph.aget_state_history(settings):
        if not past.tasks:
            before = past
            break
    if await _open(run, other):
        if before is not None:
            await _copy(graph.checkpointer, before.config, run.task_key)
        return alone, await graph.aget_state(alone)
    if before is None:
        return settings, state
    # What the other task has left would come back as the answer to nothing, such as calls of tools without results.
    return {**settings, "configurable": {**settings["configurable"], **before.config["configurable"]}}, before


async def _open(run: Run, id: str) -> bool:
    """Whether another task of the context can still go on."""
    try:
        return (await run.read_task(id, count=1)).state not in ("completed", "failed", "canceled", "rejected")
    except NotFound:
        return False


async def _copy(saver: BaseCheckpointSaver[Any], source: RunnableConfig, thread: str) -> None:
    stored = await saver.aget_tuple(source)
    if stored is not None:
        to: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        await saver.aput(to, stored.checkpoint, stored.metadata, stored.checkpoint["channel_versions"])


def _input(run: Run) -> dict[str, Any]:
    # The id is that of the turn: another try replaces the message.
    return {"messages": [HumanMessage(_content(run.message), id=run.idempotency_key or None)]}


def _content(message: Message) -> Any:
    """Text as text; with other parts, the blocks of a message."""
    if all(p.text is not None for p in message.parts):
        return message.text
    blocks: list[JSON] = []
    for part in message.parts:
        doc = part.to_json()
        if part.text is not None:
            blocks.append({"type": "text", "text": part.text})
        elif part.has_data:
            blocks.append({"type": "text", "text": json.dumps(part.data, ensure_ascii=False)})
        else:
            kind = (part.media_type or "").partition("/")[0]
            source = {"url": part.url} if part.url else {"base64": doc["raw"]}
            blocks.append({"type": kind if kind in ("image", "audio", "video") else "file", "mime_type": part.media_type, **source})
    return blocks


def _past(history: Sequence[Said]) -> list[BaseMessage]:
    return [HumanMessage(_content(s)) if s.role == "user" else AIMessage(s.text) for s in history if s.parts]


def _answer(run: Run) -> Any:
    return run.message.data if run.message.data is not None else run.message.text


def _each(pending: Sequence[Interrupt], value: Any) -> dict[str, Any]:
    """One answer for several interrupts: by their ids, or the same for all."""
    ids = [i.id for i in pending]
    if isinstance(value, dict) and set(value) == set(ids):
        return value
    return dict.fromkeys(ids, value)


def _interrupts(state: Any) -> list[Interrupt]:
    return [i for task in state.tasks for i in task.interrupts]


async def _ask(run: Run, asked: Sequence[Interrupt]) -> None:
    if len(asked) == 1:
        value = asked[0].value
        await run.ask(value if isinstance(value, str) and value else data(_plain(value)))
        return
    await run.ask(data({i.id: _plain(i.value) for i in asked}))


async def _final(run: Run, values: Any, output: Callable[[Any], Any] | None, sent: str) -> None:
    if output is not None:
        made = output(values)
        if made is not None:
            parts = [made] if not isinstance(made, Sequence) or isinstance(made, str) else list(made)
            await run.artifact(*parts, name="result", id=f"result-{run.turn}")
        return
    messages = values.get("messages") if isinstance(values, dict) else None
    if messages is None:
        if values is not None:
            await run.artifact(data(_plain(values)), name="result", id=f"result-{run.turn}")
    elif messages and isinstance(messages[-1], AIMessage):
        text = _text(messages[-1])
        if text and not sent.endswith(text):
            await run.text("\n" + text if sent else text)


def _text(message: Any) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(b if isinstance(b, str) else b.get("text", "") for b in content if isinstance(b, str) or b.get("type") == "text")


def _plain(value: Any) -> JSON:
    """JSON of a value, with messages and other objects as text."""
    return json.loads(json.dumps(value, default=lambda o: o.model_dump(mode="json") if hasattr(o, "model_dump") else str(o)))
