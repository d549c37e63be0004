"""Agents of Google ADK, with the real library and a model that says what the test wants."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools import FunctionTool, LongRunningFunctionTool
    from google.genai import types

    from holdfast_agent.adapters.adk import wrap

import callers

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing


class Script(BaseLlm):
    """Answers with the next line: a text, or a call of a tool."""

    model: str = "script"
    lines: list[Any] = []
    seen: list[Any] = []

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append(llm_request.contents)
        line = self.lines.pop(0)
        if line == "sleep":
            await asyncio.sleep(3600)
        part = types.Part(function_call=types.FunctionCall(**line)) if isinstance(line, dict) else types.Part(text=line)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def runner(*lines: Any, tools: Any = ()) -> tuple[Any, Script]:
    model = Script(lines=list(lines), seen=[])
    agent = LlmAgent(name="travel", model=model, tools=list(tools))
    return Runner(app_name="travel", agent=agent, session_service=InMemorySessionService()), model


async def test_sessions_are_contexts() -> None:
    made, model = runner("Hello Ada.", "Your name is Ada.", "I do not know.")
    agent = wrap(made, "travel")
    turn = await testing.Task(agent, context_id="c-1", owner="ada").send("I am Ada")
    assert (turn.state, turn.text) == ("completed", "Hello Ada.")
    assert (await testing.Task(agent, context_id="c-1", owner="ada").send("Who am I?")).text == "Your name is Ada."
    await testing.Task(agent, context_id="c-1", owner="eve").send("Who am I?")
    assert [len(contents) for contents in model.seen] == [1, 3, 1]
    assert await made.session_service.get_session(
        app_name="travel", user_id="ada", session_id=testing.Task(agent, context_id="c-1", owner="ada").context_key
    )


async def test_tools_run() -> None:
    def price(city: str) -> dict[str, Any]:
        """The price of a trip."""
        return {"price": 199}

    made, model = runner({"name": "price", "args": {"city": "Oslo"}, "id": "call-1"}, "It costs 199.", tools=[FunctionTool(price)])
    turn = await testing.run(wrap(made, "travel"), "How much is Oslo?")
    assert turn.state == "completed"
    assert turn.text == "It costs 199."
    assert model.seen[1][-1].parts[0].function_response.response == {"price": 199}


@pytest.mark.parametrize(
    ("answer", "want"),
    [("approved", {"result": "approved"}), (hf.data({"approved": True}), {"approved": True})],
    ids=["text", "data"],
)
async def test_a_long_running_tool_is_a_question(answer: Any, want: dict[str, Any]) -> None:
    def approve(city: str) -> dict[str, Any]:
        """Ask a person."""
        return {"status": "pending"}

    made, model = runner(
        {"name": "approve", "args": {"city": "Oslo"}, "id": "call-1"},
        "I wait for approval.",
        "Booked.",
        tools=[LongRunningFunctionTool(approve)],
    )
    task = testing.Task(wrap(made, "travel"), owner="ada")
    turn = await task.send("Book Oslo")
    assert turn.state == "input-required"
    question = turn.message.parts[0].data
    assert (question["name"], question["args"]) == ("approve", {"city": "Oslo"})
    turn = await task.answer(answer)
    assert turn.state == "completed"
    assert turn.text == "Booked."
    responses = [p.function_response.response for c in model.seen[-1] for p in c.parts or [] if p.function_response]
    assert want in responses


@pytest.mark.parametrize(("answer", "want"), [("Yes.", "Deleted."), ("no", "rejected")])
async def test_a_confirmation_is_a_question(answer: str, want: str) -> None:
    deleted: list[str] = []

    def delete(name: str) -> dict[str, Any]:
        """Delete a file."""
        deleted.append(name)
        return {"deleted": name}

    made, _ = runner(
        {"name": "delete", "args": {"name": "f"}, "id": "call-1"},
        "Deleted." if answer == "Yes." else "It was rejected.",
        "Deleted.",
        tools=[FunctionTool(delete, require_confirmation=True)],
    )
    task = testing.Task(wrap(made, "travel"), owner="ada")
    turn = await task.send("Delete f")
    assert turn.state == "input-required"
    assert any(p.has_data and p.data["name"] == "adk_request_confirmation" for p in turn.message.parts)
    assert deleted == []
    turn = await task.answer(answer)
    assert (turn.state, deleted) == ("completed", ["f"] if answer == "Yes." else [])
    assert want in turn.text


async def test_errors_of_the_model_fail_the_task() -> None:
    made, _ = runner()
    turn = await testing.run(wrap(made, "travel"), "hi")
    assert turn.state == "failed"


async def test_cancel() -> None:
    made, model = runner("sleep")
    running = testing.Task(wrap(made, "travel")).begin("hi")
    await running.until(lambda events: model.seen or events)
    running.cancel()
    assert (await running.finish()).state == "canceled"


async def test_the_example() -> None:
    task = testing.Task(load("adapters/adk_refund.py"), owner="ada")
    turn = await task.send("Refund me")
    assert turn.state == "input-required"
    turn = await task.answer("yes")
    assert turn.state == "completed"
    assert "'paid': 20" in turn.text


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    class Remember(BaseLlm):
        model: str = "remember"

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
            told = " ".join(p.text or "" for c in llm_request.contents for p in c.parts)
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=told)]))

    sessions = InMemorySessionService()
    agent = LlmAgent(name="travel", model=Remember())
    await callers.check(lambda name: wrap(Runner(app_name="travel", agent=agent, session_service=sessions), name), shared=True)


async def test_a_user_has_one_tenant() -> None:
    users = []
    for tenant, owner in (("", "acme/ada"), ("acme", "ada"), ("", "ada@example.com"), ("a/b", "c"), ("a", "b/c")):
        made, _ = runner("Hello.")
        await testing.Task(wrap(made, "travel"), tenant=tenant, owner=owner).send("hi")
        users += made.session_service.sessions["travel"]
    assert users == ["acme%2Fada", "acme/ada", "ada@example.com", "a%2Fb/c", "a/b%2Fc"]
