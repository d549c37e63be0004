"""Agents of the Microsoft Agent Framework.

    from holdfast_agent.adapters.agent_framework import wrap

    wrap(Agent(client, name="travel", tools=[book]), "travel").serve()

The input is the conversation from the run document, unless the agent has a history provider of its own. A tool that needs
approval, or that the client runs, becomes a question. The framework's session waits in the state of the task meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_framework import AgentSession, Content, HistoryProvider, InMemoryHistoryProvider, Message, SupportsAgentRun
from pydantic import BaseModel

from holdfast_agent import Agent, Fail, Part, Run, Said, data
from holdfast_agent import Message as Received

from . import _approvals

KEY = "agent_framework"
"""The member of the task's state with what a question needs to go on."""


def wrap(
    agent: SupportsAgentRun | Callable[[Run], SupportsAgentRun],
    name: str | None = None,
    *,
    concurrency: int | None = None,
    options: Callable[[Run], dict[str, Any]] | None = None,
) -> Agent:
    """Make an agent of an Agent of the framework, or of a function that makes one for each run, as workflows need.

    The framework's session has the key of the context.

    options: more arguments of the agent's run, such as options (of the model) or tools.
    """
    made = Agent(name, concurrency=concurrency)

    @made.run
    async def answer(run: Run) -> None:
        inner: Any = agent(run) if callable(agent) else agent
        given: dict[str, Any] = dict(options(run)) if options else {}
        stored = run.state().data
        pending: Any = stored.get(KEY) if isinstance(stored, dict) else None
        if pending is not None and pending["turn"] == run.turn:  # an earlier try came so far
            await _ask(run, pending["asked"])
            return
        messages: list[Message]
        if pending is not None and pending["turn"] == run.turn - 1:
            session = AgentSession.from_dict(pending["session"])
            messages = _answers(pending["asked"], run.message)
        else:
            session = inner.create_session(session_id=run.context_key)
            past = [] if _remembers(inner) else run.history
            messages = [*_past(past), Message("user", _contents(run.message))]
        speaks = _speaks(inner, given)
        sent = ""
        last: str | None = None
        stream = inner.run(messages, stream=True, session=session, **given)
        try:
            async for update in stream:
                if update.role not in (None, "assistant") or not update.text or not speaks:
                    continue
                piece = ("\n" if sent and update.message_id != last else "") + update.text
                last = update.message_id
                sent += piece
                await run.text(piece)
            response = await stream.get_final_response()
        finally:
            await stream.close()
        asked = [c.to_dict() for c in response.user_input_requests]
        if asked:
            _check(asked)
            kept = stored if isinstance(stored, dict) else {}
            await run.set_state({**kept, KEY: {"turn": run.turn, "session": session.to_dict(), "asked": asked}})
            await _ask(run, asked)
        elif not speaks:
            value = response.value
            doc = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            await run.artifact(data(doc), name="result", id=f"result-{run.turn}")

    return made


def _speaks(agent: Any, given: dict[str, Any]) -> bool:
    """Whether the text of the agent is for people. With a response format it is JSON, and the result has it."""
    every = {**(getattr(agent, "default_options", None) or {}), **(given.get("options") or {})}
    return every.get("response_format") is None


def _remembers(agent: Any) -> bool:
    """Whether the agent has a store for the messages of its sessions."""
    providers = getattr(agent, "context_providers", None) or []
    return any(isinstance(p, HistoryProvider) and not isinstance(p, InMemoryHistoryProvider) for p in providers)


def _past(history: Sequence[Said]) -> list[Message]:
    past = []
    for said in history:
        if said.role == "user" and said.parts:
            past.append(Message("user", _contents(said)))
        elif said.text:
            past.append(Message("assistant", [said.text]))
    return past


def _contents(message: Received) -> list[Content]:
    return [_content(p) for p in message.parts]


def _content(part: Part) -> Content:
    if part.text is not None:
        return Content.from_text(part.text)
    if part.raw is not None:
        return Content.from_data(part.raw, part.media_type or "application/octet-stream")
    if part.url is not None:
        return Content.from_uri(part.url, media_type=part.media_type or "application/octet-stream")
    return Content.from_text(_approvals.dumps(part.data))


def _check(asked: Sequence[dict[str, Any]]) -> None:
    for doc in asked:
        kind = doc["type"]
        call = doc["function_call"] if kind == "function_approval_request" else doc
        if kind not in ("function_approval_request", "function_call") or call["name"] == "request_info":
            raise Fail(f"The agent asked for something that clients cannot answer: {kind}.")


async def _ask(run: Run, asked: Sequence[dict[str, Any]]) -> None:
    def calls(kind: str) -> list[_approvals.Call]:
        docs = [d.get("function_call", d) for d in asked if d["type"] == kind]
        return [_approvals.Call(d["call_id"], d["name"], _approvals.arguments(d.get("arguments"))) for d in docs]

    await _approvals.ask(run, calls("function_approval_request"), calls("function_call"))


def _answers(asked: Sequence[dict[str, Any]], message: Received) -> list[Message]:
    """The answer for each call: a data part by their ids, or one answer for all."""
    requests = [Content.from_dict(d) for d in asked]
    ids = [d.get("function_call", d)["call_id"] for d in asked]
    found = _approvals.answers(message, ids)
    approvals: list[Content] = []
    results: list[Content] = []
    for id, request in zip(ids, requests, strict=True):
        if request.type == "function_approval_request":
            approvals.append(request.to_function_approval_response(_approvals.approved(found[id])[0]))
        else:
            results.append(Content.from_function_result(id, result=found[id]))
    messages = []
    if approvals:
        messages.append(Message("user", approvals))
    if results:
        messages.append(Message("tool", results))
    return messages
