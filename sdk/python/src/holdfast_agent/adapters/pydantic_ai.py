"""Agents of PydanticAI.

    from holdfast_agent.adapters.pydantic_ai import wrap

    wrap(Agent("openai:gpt-5", output_type=[str, DeferredToolRequests]), "travel").serve()

The message history comes from the run document. A deferred tool becomes a question, and the client's answer its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import (
    AgentRunResultEvent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolDenied,
    UserPromptPart,
)

from holdfast_agent import Agent, Message, Part, Run, Said, data

from . import _approvals

KEY = "pydantic_ai"
"""The member of the task's state with what a question needs to go on."""

_requests: TypeAdapter[DeferredToolRequests] = TypeAdapter(DeferredToolRequests)


def wrap(
    agent: Any,
    name: str | None = None,
    *,
    concurrency: int | None = None,
    deps: Callable[[Run], Any] | None = None,
    options: Callable[[Run], dict[str, Any]] | None = None,
) -> Agent:
    """Make an agent of a PydanticAI agent.

    deps: makes the dependencies of a run.
    options: more arguments of the agent's run, such as model_settings or usage_limits.
    """
    made = Agent(name, concurrency=concurrency)

    @made.run
    async def answer(run: Run) -> None:
        given: dict[str, Any] = dict(options(run)) if options else {}
        if deps is not None:
            given["deps"] = deps(run)
        stored = run.state().data
        pending = stored.get(KEY) if isinstance(stored, dict) else None
        if pending is not None and pending["turn"] == run.turn:  # an earlier try came so far
            await _ask(run, _requests.validate_python(pending["requests"]))
            return
        if pending is not None and pending["turn"] == run.turn - 1:
            requests = _requests.validate_python(pending["requests"])
            given["message_history"] = ModelMessagesTypeAdapter.validate_python(pending["messages"])
            given["deferred_tool_results"] = _results(requests, run.message)
            prompt = None
        else:
            given["message_history"] = _past(run.history)
            prompt = _prompt(run.message)
        result: Any = None
        sent = False
        async with agent.run_stream_events(prompt, **given) as events:
            async for event in events:
                piece = ""
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    piece = ("\n" if sent and event.part.content else "") + event.part.content
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    piece = event.delta.content_delta
                elif isinstance(event, AgentRunResultEvent):
                    result = event.result
                if piece:
                    sent = True
                    await run.text(piece)
        output = result.output
        if isinstance(output, DeferredToolRequests):
            messages = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
            kept = stored if isinstance(stored, dict) else {}
            requests_doc = _requests.dump_python(output, mode="json")
            await run.set_state({**kept, KEY: {"turn": run.turn, "messages": messages, "requests": requests_doc}})
            await _ask(run, output)
        elif not isinstance(output, str):
            await run.artifact(
                data(TypeAdapter(type(output)).dump_python(output, mode="json")), name="result", id=f"result-{run.turn}"
            )
        elif output and not sent:
            await run.text(output)

    return made


def _prompt(message: Message) -> Any:
    if all(p.text is not None for p in message.parts):
        return message.text
    return [_content(p) for p in message.parts]


def _content(part: Part) -> Any:
    if part.text is not None:
        return part.text
    if part.raw is not None:
        return BinaryContent(part.raw, media_type=part.media_type or "application/octet-stream")
    if part.url is not None:
        kind = ImageUrl if (part.media_type or "").startswith("image/") else DocumentUrl
        return kind(url=part.url, media_type=part.media_type)
    return _approvals.dumps(part.data)


def _past(history: Sequence[Said]) -> list[ModelMessage]:
    past: list[ModelMessage] = []
    for said in history:
        if not said.parts:
            continue
        if said.role == "user":
            past.append(ModelRequest(parts=[UserPromptPart(_prompt(said))]))
        elif said.text:
            past.append(ModelResponse(parts=[TextPart(said.text)]))
    return past


async def _ask(run: Run, requests: DeferredToolRequests) -> None:
    def calls(parts: Sequence[Any]) -> list[_approvals.Call]:
        return [_approvals.Call(p.tool_call_id, p.tool_name, p.args_as_dict()) for p in parts]

    await _approvals.ask(run, calls(requests.approvals), calls(requests.calls))


def _results(requests: DeferredToolRequests, message: Message) -> DeferredToolResults:
    """The answer for each tool: a data part by the ids of the calls, or one answer for all."""
    given = _approvals.answers(message, [p.tool_call_id for p in [*requests.approvals, *requests.calls]])
    results = DeferredToolResults()
    for part in requests.approvals:
        yes, reason = _approvals.approved(given[part.tool_call_id])
        results.approvals[part.tool_call_id] = yes or (ToolDenied(reason) if reason else False)
    for part in requests.calls:
        results.calls[part.tool_call_id] = given[part.tool_call_id]
    return results
