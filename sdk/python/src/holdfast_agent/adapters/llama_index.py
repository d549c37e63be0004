"""Workflows of LlamaIndex (the package llama-index-workflows).

    from holdfast_agent.adapters.llama_index import wrap

    wrap(Travel(timeout=None), "travel").serve()

An InputRequiredEvent becomes a question, and the workflow's context waits in the state of the task. The client's answer goes to
the workflow as a HumanResponseEvent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from workflows import Context, Workflow
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, WorkflowIdleEvent

from holdfast_agent import Agent, Message, Run, data
from holdfast_agent.content import JSON

KEY = "llama_index"
"""The member of the task's state with what a question needs to go on."""


def wrap(
    workflow: Workflow,
    name: str | None = None,
    *,
    concurrency: int | None = None,
    input: Callable[[Run], StartEvent | dict[str, Any]] | None = None,
    answer: Callable[[Run], Event] | None = None,
    text: Callable[[Event], str | None] | None = None,
    output: Callable[[Any], Any] | None = None,
) -> Agent:
    """Make an agent of a workflow.

    input: the start event of a message, or its members; default {"input": the text}.
    answer: the event of an answer; default a HumanResponseEvent whose `response` is the data part, else the text.
    text: what an event of the stream adds to the text; default its member `delta`.
    output: makes a text or another value of the result.
    """
    agent = Agent(name, concurrency=concurrency)

    @agent.run
    async def respond(run: Run) -> None:
        stored = run.state().data
        pending: Any = stored.get(KEY) if isinstance(stored, dict) else None
        if pending is not None and pending["turn"] == run.turn:  # an earlier try came so far
            await _ask(run, pending["asked"])
            return
        before: list[JSON] = []
        left: list[Event] = []
        if pending is not None and pending["turn"] == run.turn - 1:
            handler = workflow.run(ctx=Context.from_dict(workflow, pending["context"]))
            before = pending["asked"]
            left = [answer(run)] if answer else _answers(run.message, len(before))
            if not _repeats(pending["context"]):
                handler.ctx.send_event(left.pop(0))
        else:
            begin = input(run) if input else {"input": run.message.text}
            handler = workflow.run(start_event=begin) if isinstance(begin, StartEvent) else workflow.run(**begin)
        sent = ""
        asked: list[JSON] = []
        try:
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, InputRequiredEvent):
                    asked.append(_plain(event))
                elif not isinstance(event, StopEvent):
                    piece = (text or _text)(event)
                    if piece:
                        sent += piece
                        await run.text(piece)
                    said = event.get("msg")
                    if isinstance(said, str) and said:
                        await run.progress(said)
                if not isinstance(event, WorkflowIdleEvent):
                    continue
                if left:
                    handler.ctx.send_event(left.pop(0))
                elif asked or before:
                    context = handler.ctx.to_dict() if asked else pending["context"]
                    # A step that goes on may emit its question again. Without any question, the answer did not fit.
                    asked = [a for a in asked if a not in before] or asked or before
                    kept = stored if isinstance(stored, dict) else {}
                    await run.set_state({**kept, KEY: {"turn": run.turn, "context": context, "asked": asked}})
                    break
            else:
                await _final(run, await handler, output, sent)
                return
        finally:
            if not handler.is_done():
                await handler.cancel_run()
                with contextlib.suppress(Exception):
                    await handler
        await _ask(run, asked)

    return agent


def _repeats(context: Any) -> bool:
    """Whether a step waits for an event with requirements. It begins again, and events that come before it waits are lost."""
    if isinstance(context, dict):
        return context.get("has_requirements") is True or any(_repeats(v) for v in context.values())
    return isinstance(context, list) and any(_repeats(v) for v in context)


def _text(event: Event) -> str | None:
    delta = event.get("delta")
    return delta if isinstance(delta, str) else None


def _plain(value: Any) -> JSON:
    """JSON of a value. Events have their other members behind a private one."""
    doc: Any = TypeAdapter(Any).dump_python(value, mode="json", fallback=str)
    if isinstance(value, Event):
        doc = {**doc.pop("_data", {}), **doc}
    return doc


async def _ask(run: Run, asked: list[Any]) -> None:
    lines = [str(a["prefix"]).strip() for a in asked if a.get("prefix")]
    more = [{k: v for k, v in a.items() if k != "prefix"} for a in asked]
    docs: list[Any] = []
    if len(asked) > 1:
        docs = [data({str(n): a for n, a in enumerate(asked, 1)})]
    elif more[0]:
        docs = [data(more[0])]
    await run.ask([*(["\n".join(lines)] if lines else []), *docs] or "?")


def _answers(message: Message, count: int) -> list[Event]:
    """An event for each question: a data part by the numbers of the questions, or one answer."""
    given: Any = message.data if message.data is not None else message.text
    numbers = [str(n) for n in range(1, count + 1)]
    if count > 1 and isinstance(given, dict) and set(given) == set(numbers):
        return [_response(given[n]) for n in numbers]
    return [_response(given)]


def _response(given: Any) -> Event:
    members = given if isinstance(given, dict) and "response" in given else {"response": given}
    return HumanResponseEvent(**members)


async def _final(run: Run, result: Any, output: Callable[[Any], Any] | None, sent: str) -> None:
    value = output(result) if output else result
    if isinstance(value, str):
        if value and not sent.endswith(value):
            await run.text(("\n" if sent else "") + value)
    elif value is not None:
        await run.artifact(data(_plain(value)), name="result", id=f"result-{run.turn}")
