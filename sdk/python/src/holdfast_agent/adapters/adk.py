"""Agents of the Google Agent Development Kit (ADK).

    from holdfast_agent.adapters.adk import wrap

    wrap(Runner(app_name="travel", agent=root_agent, session_service=service), "travel").serve()

They run by ADK's own A2aAgentExecutor: the session is the context of the task, and its user the owner of the task, behind the
tenant and a slash if there is a tenant. A long-running tool becomes a question. The client's answer, text or a data part, is the
response of that tool.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor
from google.adk.runners import Runner

from holdfast_agent import Agent, Message, Part, Run, data
from holdfast_agent.content import JSON

from . import _approvals, a2a

TYPE = "adk_type"
CONFIRMATION = "adk_request_confirmation"


def wrap(runner: Runner | A2aAgentExecutor, name: str | None = None, *, concurrency: int | None = None) -> Agent:
    """Make an agent of a Runner, or of an A2aAgentExecutor with a configuration of its own."""
    executor = runner if isinstance(runner, A2aAgentExecutor) else A2aAgentExecutor(runner=runner, force_new_version=True)
    agent = Agent(name, concurrency=concurrency)

    @agent.run
    async def answer(run: Run) -> None:
        run.message = _answered(run)
        await a2a._Session(executor, run, replies=False, user=_user(run)).execute()

    return agent


def _user(run: Run) -> str:
    """No two owners have the same: ADK keeps memory of users, and of anonymous ones by the session."""
    owner = quote(run.owner, safe="@:+ ")
    return f"{quote(run.tenant, safe='@:+ ')}/{owner}" if run.owner and run.tenant else owner


def _answered(run: Run) -> Message:
    """The message, with the responses of the tools that the agent has asked about. ADK wants them as data parts of its own."""
    message = run.message
    if any((p.metadata or {}).get(TYPE) == "function_response" for p in message.parts):
        return message
    asked = next((s for s in reversed(run.history) if s.state in ("input-required", "auth-required")), None)
    calls = [p.data for p in asked.parts if p.has_data and (p.metadata or {}).get(TYPE) == "function_call"] if asked else []
    # A call that the same message answers already needs no response.
    done = {p.data.get("id") for p in asked.parts if (p.metadata or {}).get(TYPE) == "function_response"} if asked else set()
    open_calls = [c for c in calls if c.get("id") not in done] or calls
    if not open_calls:
        return message
    given: Any = message.data if message.data is not None else message.text
    ids = {c.get("id") for c in open_calls}
    each = isinstance(given, dict) and bool(given) and set(given) <= ids
    parts = [_response(c, given.get(c.get("id")) if each else given) for c in open_calls]
    return Message(parts=parts, id=message.id, role="user", metadata=message.metadata)


def _response(call: dict[str, Any], given: JSON) -> Part:
    response: dict[str, JSON]
    if call.get("name") == CONFIRMATION and not (isinstance(given, dict) and "confirmed" in given):
        response = {"confirmed": _approvals.approved(given)[0]}
    elif isinstance(given, dict):
        response = given
    else:
        response = {"result": given}
    part = data({"id": call.get("id"), "name": call.get("name"), "response": response})
    part.metadata = {TYPE: "function_response"}
    return part
