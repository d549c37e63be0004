"""Agents of the OpenAI Agents SDK.

    from holdfast_agent.adapters.openai_agents import wrap

    wrap(Agent("travel", tools=[book]), "travel").serve()

The input is the conversation from the run document, or the message and a session. A tool that needs approval becomes a
question, and the state of the SDK's run waits in the state of the task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent as Wrapped
from agents import AgentUpdatedStreamEvent, RawResponsesStreamEvent, Runner, RunState
from agents.memory import Session
from pydantic import TypeAdapter

from holdfast_agent import Agent, Message, Part, Run, Said, data
from holdfast_agent.content import JSON

from . import _approvals

KEY = "openai_agents"
"""The member of the task's state with what a question needs to go on."""


def wrap(
    agent: Wrapped[Any],
    name: str | None = None,
    *,
    concurrency: int | None = None,
    session: Callable[[Run], Session] | None = None,
    context: Callable[[Run], Any] | None = None,
    options: Callable[[Run], dict[str, Any]] | None = None,
) -> Agent:
    """Make an agent of an Agent of the SDK.

    session: the memory of a run, such as SQLAlchemySession(run.context_key, ...); default the history of the run document.
    context: makes the context of a run, which tools get.
    options: more arguments of Runner.run_streamed, such as run_config, max_turns or hooks.
    """
    made = Agent(name, concurrency=concurrency)

    @made.run
    async def answer(run: Run) -> None:
        given: dict[str, Any] = dict(options(run)) if options else {}
        local = context(run) if context else None
        stored = run.state().data
        pending = stored.get(KEY) if isinstance(stored, dict) else None
        if pending is not None and pending["turn"] == run.turn:  # an earlier try came so far
            await _approvals.ask(run, [_approvals.Call(**c) for c in pending["approvals"]])
            return
        begin: Any
        if pending is not None and pending["turn"] == run.turn - 1:
            begin = await _resumed(agent, pending["run"], local, run.message)
        else:
            past = [] if session else run.history
            begin = [*_past(past), {"role": "user", "content": _content(run.message)}]
            given["context"] = local
        if session is not None:
            given["session"] = session(run)
        result = Runner.run_streamed(agent, begin, **given)
        speaks = _speaks(result.current_agent)
        sent = ""
        fresh = False
        try:
            async for event in result.stream_events():
                if isinstance(event, AgentUpdatedStreamEvent):
                    speaks = _speaks(event.new_agent)
                elif isinstance(event, RawResponsesStreamEvent) and speaks:
                    if event.data.type == "response.output_item.done":
                        fresh = True
                    elif event.data.type in ("response.output_text.delta", "response.refusal.delta") and event.data.delta:
                        piece = ("\n" if sent and fresh else "") + event.data.delta
                        fresh = False
                        sent += piece
                        await run.text(piece)
        except BaseException:
            # Tools may clean up before the run ends.
            result.cancel()
            if result.run_loop_task is not None:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await result.run_loop_task
            raise
        if result.interruptions:
            approvals = [
                _approvals.Call(i.call_id or str(n), i.qualified_name or i.name or "tool", _approvals.arguments(i.arguments))
                for n, i in enumerate(result.interruptions)
            ]
            state = result.to_state().to_json(context_serializer=lambda _: {})
            if local is not None:
                state["context"]["context"] = {}  # the next turn makes it again
            kept = stored if isinstance(stored, dict) else {}
            waiting = {"turn": run.turn, "run": state, "approvals": [c.to_json() for c in approvals]}
            await run.set_state({**kept, KEY: waiting})
            await _approvals.ask(run, approvals)
            return
        output = result.final_output
        if isinstance(output, str):
            if output and not sent.endswith(output):
                await run.text(("\n" if sent else "") + output)
        elif output is not None:
            doc = TypeAdapter(type(output)).dump_python(output, mode="json")
            await run.artifact(data(doc), name="result", id=f"result-{run.turn}")

    return made


def _speaks(agent: Any) -> bool:
    """Whether the text of the agent is for people. With an output type it is JSON, and the result has it."""
    return getattr(agent, "output_type", None) in (None, str)


async def _resumed(agent: Wrapped[Any], stored: dict[str, JSON], local: Any, message: Message) -> RunState[Any, Any]:
    state = await RunState.from_json(agent, stored, context_override=local)
    items = state.get_interruptions()
    ids = [i.call_id or str(n) for n, i in enumerate(items)]
    found = _approvals.answers(message, ids)
    for id, item in zip(ids, items, strict=True):
        yes, reason = _approvals.approved(found[id])
        if yes:
            state.approve(item)
        else:
            state.reject(item, rejection_message=f"The call was not approved: {reason}" if reason else None)
    return state


def _past(history: Sequence[Said]) -> list[dict[str, JSON]]:
    past: list[dict[str, JSON]] = []
    for said in history:
        if said.role == "user" and said.parts:
            past.append({"role": "user", "content": _content(said)})
        elif said.text:
            past.append({"role": "assistant", "content": said.text})
    return past


def _content(message: Message) -> JSON:
    """Text as text; with other parts, the items of an input."""
    if all(p.text is not None for p in message.parts):
        return message.text
    return [_item(p) for p in message.parts]


def _item(part: Part) -> dict[str, JSON]:
    if part.text is not None:
        return {"type": "input_text", "text": part.text}
    if part.has_data:
        return {"type": "input_text", "text": _approvals.dumps(part.data)}
    doc = part.to_json()
    kind = part.media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": part.url or f"data:{kind};base64,{doc['raw']}"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": f"data:{kind};base64,{doc['raw']}"}
