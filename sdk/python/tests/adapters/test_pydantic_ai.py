"""Agents of PydanticAI, with the real library and its test models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import callers
import pytest
import questions
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing
from holdfast_agent.adapters.pydantic_ai import wrap

Messages = list[Any]


def script(*turns: Any) -> tuple[FunctionModel, list[Messages]]:
    """A model that streams the next list of words, or calls a tool."""
    left, seen = list(turns), []

    async def stream(messages: Messages, info: AgentInfo) -> AsyncIterator[Any]:
        seen.append(messages)
        turn = left.pop(0)
        if isinstance(turn, dict):
            yield {0: DeltaToolCall(name=turn["name"], json_args=turn["args"], tool_call_id=turn["id"])}
            return
        for word in turn:
            yield word

    return FunctionModel(stream_function=stream), seen


async def test_text_streams_with_the_history() -> None:
    model, seen = script(["Hello ", "Ada"], ["Ada"])
    task = testing.Task(wrap(Agent(model), "chat"))
    turn = await task.send("I am Ada")
    assert (turn.state, turn.text) == ("completed", "Hello Ada")
    assert len([e for e in turn.events if e["type"] == "text"]) == 2
    turn = await task.send("Who am I?")
    assert turn.text == "Ada"
    assert [type(m).__name__ for m in seen[1]] == ["ModelRequest", "ModelResponse", "ModelRequest"]
    assert seen[1][1].parts[0].content == "Hello Ada"


class Trip(BaseModel):
    city: str
    price: float


async def test_structured_output_and_deps() -> None:
    agent = Agent(TestModel(custom_output_args={"city": "Oslo", "price": 1.5}), output_type=Trip, deps_type=str)
    seen: list[str] = []

    @agent.tool
    def look(ctx: RunContext[str]) -> str:
        seen.append(ctx.deps)
        return "x"

    turn = await testing.run(wrap(agent, "trip", deps=lambda run: run.message.text), "Oslo")
    assert turn.artifacts[0].parts[0].data == {"city": "Oslo", "price": 1.5}
    assert seen == ["Oslo"]


def deleting(model: FunctionModel) -> tuple[Agent[None, Any], list[str]]:
    agent = Agent(model, output_type=[str, DeferredToolRequests])
    deleted: list[str] = []

    @agent.tool_plain(requires_approval=True)
    def delete(name: str) -> str:
        deleted.append(name)
        return "gone"

    @agent.tool_plain
    def weigh(name: str) -> str:
        raise CallDeferred

    return agent, deleted


DELETE = {"name": "delete", "args": '{"name": "f"}', "id": "c-1"}


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ("Yes.", True),
        (hf.data({"c-1": True}), True),
        (hf.data({"approved": True}), True),
        ("No, keep it", False),
        (hf.data(False), False),
    ],
)
async def test_approval_is_a_question(answer: Any, want: bool) -> None:
    model, seen = script(DELETE, ["Done"])
    agent, deleted = deleting(model)
    task = testing.Task(wrap(agent, "x"))
    turn = await task.send("Delete f")
    assert turn.state == "input-required"
    assert turn.message.text == 'Approve delete(name="f")?'
    assert turn.message.data == questions.DELETE
    # Another try, after a crash behind the question, asks again without the model.
    again = await task.retry()
    assert again.message.data == turn.message.data
    turn = await task.answer(answer)
    assert (turn.state, turn.text, deleted) == ("completed", "Done", ["f"] if want else [])
    assert len(seen) == 2
    if answer == "No, keep it":
        assert "No, keep it" in str(seen[1])


async def test_an_external_call_is_a_question() -> None:
    model, seen = script({"name": "weigh", "args": '{"name": "f"}', "id": "c-2"}, ["Heavy"])
    agent, _ = deleting(model)
    task = testing.Task(wrap(agent, "x"))
    turn = await task.send("Weigh f")
    assert turn.message.text == 'What is the result of weigh(name="f")?'
    turn = await task.answer("5 kg")
    assert turn.text == "Heavy"
    assert "5 kg" in str(seen[1])


async def test_files() -> None:
    model, seen = script(["ok"])
    message = ["look", hf.file(b"\x00", media_type="image/png"), hf.url("https://a.example/f.pdf"), hf.data({"n": 1})]
    await testing.run(wrap(Agent(model), "x"), message)
    text, image, pdf, doc = seen[0][0].parts[0].content
    assert (text, image.data, pdf.url, doc) == ("look", b"\x00", "https://a.example/f.pdf", '{"n": 1}')


async def test_errors_fail_the_task() -> None:
    model, _ = script(DELETE, DELETE, DELETE)
    agent = Agent(model)

    @agent.tool_plain
    def delete(name: str) -> str:
        raise ModelRetry("secret 42")

    turn = await testing.run(wrap(agent, "x"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")


async def test_cancel() -> None:
    async def stream(messages: Messages, info: AgentInfo) -> AsyncIterator[str]:
        yield "working"
        await asyncio.sleep(3600)

    running = testing.Task(wrap(Agent(FunctionModel(stream_function=stream)), "x")).begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text) == ("canceled", "working")


async def test_the_example() -> None:
    task = testing.Task(load("adapters/pydantic_ai_files.py"))
    turn = await task.send("Delete a")
    assert (turn.state, turn.message.text) == ("input-required", 'Approve delete(name="a")?')
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "Done.")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    async def remember(messages: Messages, info: AgentInfo) -> AsyncIterator[str]:
        yield " ".join(str(p.content) for m in messages for p in m.parts)

    agent = Agent(FunctionModel(stream_function=remember))
    await callers.check(lambda name: wrap(agent, name), shared=False)
