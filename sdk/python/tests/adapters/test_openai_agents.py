"""Agents of the OpenAI Agents SDK, with the real library and its scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import callers
import pytest
import questions
from agents import Agent, RunContextWrapper, SQLiteSession, function_tool, handoff, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic import BaseModel

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing
from holdfast_agent.adapters.openai_agents import wrap

set_tracing_disabled(True)

DELETE = function_call("delete", {"name": "f"}, call_id="c-1")


def said(model: ScriptedModel, call: int) -> list[Any]:
    """What the model got: roles with text, and outputs of tools."""
    found = model.calls[call].input
    return [(i.get("role") or i["type"], i.get("content") or i.get("output")) for i in found]


def deleting(model: ScriptedModel, **members: Any) -> tuple[Agent[Any], list[str]]:
    deleted: list[str] = []

    @function_tool(needs_approval=True)
    def delete(ctx: RunContextWrapper[Any], name: str) -> str:
        deleted.append(f"{name} for {ctx.context['who'].upper()}" if ctx.context else name)
        return "gone"

    return Agent(name="files", model=model, tools=[delete], **members), deleted


async def test_text_streams_with_the_history() -> None:
    model = ScriptedModel([[assistant_message("Hello Ada")], [assistant_message("Ada")]])
    task = testing.Task(wrap(Agent(name="chat", model=model), "chat"))
    turn = await task.send("I am Ada")
    assert (turn.state, turn.text) == ("completed", "Hello Ada")
    assert turn.events[0]["type"] == "text"
    turn = await task.send("Who am I?")
    assert turn.text == "Ada"
    assert said(model, 1) == [("user", "I am Ada"), ("assistant", "Hello Ada"), ("user", "Who am I?")]


async def test_a_session_is_the_memory_of_a_context(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "sunny"

    steps = [[function_call("look", {}, call_id="c-1")], [assistant_message("Sun")], [assistant_message("Sun again")]]
    model = ScriptedModel(steps)
    sessions: list[SQLiteSession] = []

    def session(run: hf.Run) -> SQLiteSession:
        sessions.append(SQLiteSession(run.context_key, tmp_path / "sessions.db"))
        return sessions[-1]

    agent = wrap(Agent(name="chat", model=model, tools=[look]), "chat", session=session)
    assert (await testing.Task(agent, context_id="c-1").send("Weather?")).text == "Sun"
    assert (await testing.Task(agent, context_id="c-1").send("And now?")).text == "Sun again"
    kinds = [kind for kind, _ in said(model, 2)]
    assert kinds == ["user", "function_call", "function_call_output", "assistant", "user"]
    for made in sessions:
        made.close()


class Trip(BaseModel):
    city: str
    price: float


async def test_structured_output_after_a_handoff() -> None:
    writer = Agent(name="writer", output_type=Trip, model=ScriptedModel([[assistant_message('{"city": "Oslo", "price": 1.5}')]]))
    first = ScriptedModel([[assistant_message("One moment."), function_call("transfer_to_writer", {}, call_id="c-1")]])
    turn = await testing.run(wrap(Agent(name="first", model=first, handoffs=[handoff(writer)]), "trip"), "Oslo")
    assert [a.parts[0] for a in turn.artifacts] == [hf.text("One moment."), hf.data({"city": "Oslo", "price": 1.5})]


async def test_messages_of_one_run_are_lines_and_a_final_tool_is_said() -> None:
    @function_tool
    def look() -> str:
        return "sunny"

    steps = [[assistant_message("I look."), function_call("look", {}, call_id="c-1")], [assistant_message("Sun")]]
    turn = await testing.run(wrap(Agent(name="x", model=ScriptedModel(steps), tools=[look]), "x"), "hi")
    assert turn.text == "I look.\nSun"
    stop = Agent(name="x", model=ScriptedModel(steps), tools=[look], tool_use_behavior="stop_on_first_tool")
    assert (await testing.run(wrap(stop, "x"), "hi")).text == "I look.\nsunny"


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
    model = ScriptedModel([[DELETE], [assistant_message("Done")]])
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
    assert len(model.calls) == 2
    if answer == "No, keep it":
        assert "No, keep it" in str(said(model, 1)[-1])


async def test_each_of_several_approvals_has_an_answer() -> None:
    model = ScriptedModel([[DELETE, function_call("delete", {"name": "g"}, call_id="c-2")], [assistant_message("Done")]])
    agent, deleted = deleting(model)
    task = testing.Task(wrap(agent, "x"))
    turn = await task.send("Delete both")
    assert turn.message.text == 'Approve delete(name="f")?\nApprove delete(name="g")?'
    await task.answer(hf.data({"c-1": False, "c-2": True}))
    assert deleted == ["g"]


class Who(dict[str, Any]):
    """A context that is not JSON."""


async def test_an_approval_with_a_context_and_a_session(tmp_path: Path) -> None:
    model = ScriptedModel([[DELETE], [assistant_message("Done")], [assistant_message("Yes")]])
    agent, deleted = deleting(model)
    session = SQLiteSession("c", tmp_path / "sessions.db")
    made = wrap(agent, "x", context=lambda run: Who(who="ada", run=run), session=lambda run: session)
    task = testing.Task(made)
    assert (await task.send("Delete f")).state == "input-required"
    assert (await task.answer("yes")).text == "Done"
    assert deleted == ["f for ADA"]
    await task.send("Is it gone?")
    assert [kind for kind, _ in said(model, 2)] == ["user", "function_call", "function_call_output", "assistant", "user"]
    session.close()


async def test_a_question_keeps_other_state() -> None:
    agent, _ = deleting(ScriptedModel([[DELETE]]))
    task = testing.Task(wrap(agent, "x"))
    task.states["task"] = ({"mine": 1}, 1)
    await task.send("Delete f")
    stored: Any = task.states["task"][0]
    assert stored["mine"] == 1
    assert stored["openai_agents"]["turn"] == 1


async def test_files() -> None:
    model = ScriptedModel([[assistant_message("ok")]])
    pdf = hf.file(b"\x00", media_type="application/pdf", filename="a.pdf")
    message = ["look", hf.file(b"\x00", media_type="image/png"), pdf, hf.url("https://a.example/f.pdf"), hf.data({"n": 1})]
    await testing.run(wrap(Agent(name="x", model=model), "x"), message)
    assert said(model, 0)[0][1] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_file", "file_url": "https://a.example/f.pdf"},
        {"type": "input_text", "text": '{"n": 1}'},
    ]


async def test_errors_fail_the_task() -> None:
    model = ScriptedModel([RuntimeError("secret 42")])
    turn = await testing.run(wrap(Agent(name="x", model=model), "x"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")
    # An option of the runner: one turn of the model is not enough.
    agent, _ = deleting(ScriptedModel([[function_call("look", {}, call_id="c-1")], [assistant_message("x")]]))
    agent.tools.append(function_tool(lambda: "sunny", name_override="look", description_override="Look."))
    turn = await testing.run(wrap(agent, "x", options=lambda run: {"max_turns": 1}), "hi")
    assert turn.state == "failed"


async def test_cancel_reaches_a_tool() -> None:
    begun, ended = asyncio.Event(), []

    @function_tool
    async def work() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")
        return "never"

    steps = [[assistant_message("Working."), function_call("work", {}, call_id="c-1")]]
    running = testing.Task(wrap(Agent(name="x", model=ScriptedModel(steps), tools=[work]), "x")).begin("hi")
    await running.until(lambda events: events)
    await asyncio.wait_for(begun.wait(), testing.LIMIT)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text, ended) == ("canceled", "Working.", ["ended"])


async def test_the_example() -> None:
    task = testing.Task(load("adapters/openai_agents_refund.py"))
    turn = await task.send("Refund me")
    assert (turn.state, turn.message.text) == ("input-required", "Approve refund(euros=20)?")
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "The tool says: paid 20 euros")


async def test_no_caller_and_no_agent_reads_the_memory_of_another(tmp_path: Path) -> None:
    class Remember(ScriptedModel):
        async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            given = args[1] if len(args) > 1 else kwargs["input"]
            self.enqueue([assistant_message(str(given))])
            async for event in super().stream_response(*args, **kwargs):
                yield event

    made: list[SQLiteSession] = []

    def session(run: hf.Run) -> SQLiteSession:
        made.append(SQLiteSession(run.context_key, tmp_path / "sessions.db"))
        return made[-1]

    await callers.check(lambda name: wrap(Agent(name="chat", model=Remember([])), name, session=session), shared=True)
    for opened in made:
        opened.close()
