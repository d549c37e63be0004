"""Crews and flows of CrewAI, with the real library and a model that says what the test wants."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import warnings
from typing import Any

import pytest
from pydantic import BaseModel

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["CREWAI_DISABLE_TRACKING"] = "true"
os.environ["CREWAI_STORAGE_DIR"] = tempfile.mkdtemp(prefix="crewai-")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from crewai import Agent, BaseLLM, Crew, Flow, Task
    from crewai.flow import human_feedback, listen, start
    from crewai.tools import tool

    from holdfast_agent.adapters.crewai import wrap

import callers

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing


class Script(BaseLLM):
    """Answers with the next line, word by word. The library has no fake model of its own."""

    lines: list[Any] = []
    seen: list[Any] = []
    chunks: bool = True

    def call(
        self,
        messages: Any,
        tools: Any = None,
        callbacks: Any = None,
        available_functions: Any = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        self.seen.append(list(messages))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        if callable(line):
            return line()
        for n, word in enumerate(line.split(" ") if self.chunks else []):
            self._emit_stream_chunk_event((" " if n else "") + word, from_task=from_task, from_agent=from_agent)
        return line


def crew(*lines: Any, tools: Any = (), chunks: bool = True, **members: Any) -> tuple[Any, Script]:
    """A crew with two tasks."""
    model = Script(model="script", lines=list(lines), seen=[], chunks=chunks)
    guide = Agent(role="guide", goal="Plan trips", backstory="You know the north.", llm=model, tools=list(tools))
    place = Task(name="place", description="Find a place: {message}", expected_output="A place", agent=guide)
    way = Task(description="Find a way", expected_output="A way", agent=guide, **members)
    return Crew(agents=[guide], tasks=[place, way]), model


def texts(turn: testing.Turn) -> list[tuple[Any, str]]:
    return [(e.get("name"), e["text"]) for e in turn.events if e["type"] == "text"]


async def test_each_task_of_a_crew_is_an_artifact_that_streams() -> None:
    made, model = crew("Oslo it is", "By train")
    turn = await testing.run(wrap(made, "trip"), "north")
    assert turn.state == "completed"
    assert [(a.name, a.text) for a in turn.artifacts] == [("place", "Oslo it is"), ("task-2", "By train")]
    assert texts(turn) == [("place", "Oslo"), ("place", " it"), ("place", " is"), ("task-2", "By"), ("task-2", " train")]
    assert "Find a place: north" in model.seen[0][-1]["content"]


async def test_a_model_that_does_not_stream() -> None:
    made, _ = crew("Oslo it is", "By train", chunks=False)
    assert texts(await testing.run(wrap(made, "trip"), "north")) == [("place", "Oslo it is"), ("task-2", "By train")]


class Trip(BaseModel):
    city: str
    price: float


async def test_structured_output_of_a_task() -> None:
    made, _ = crew("Oslo", '{"city": "Oslo", "price": 1.5}', output_json=Trip)
    turn = await testing.run(wrap(made, "trip"), "north")
    assert [a.parts for a in turn.artifacts] == [[hf.text("Oslo")], [hf.data({"city": "Oslo", "price": 1.5})]]


async def test_thoughts_of_an_agent_with_tools_are_not_for_clients() -> None:
    looked: list[str] = []

    @tool("look")
    def look(city: str) -> str:
        """Look at the weather."""
        looked.append(city)
        return "sunny"

    action = 'Thought: I look\nAction: look\nAction Input: {"city": "Oslo"}'
    made, _ = crew(action, "Thought: I know it\nFinal Answer: Oslo has sun", "By train", tools=[look])
    turn = await testing.run(wrap(made, "trip"), "north")
    assert (turn.state, looked) == ("completed", ["Oslo"])
    assert [(a.name, a.text) for a in turn.artifacts] == [("place", "Oslo has sun"), ("task-2", "By train")]
    assert "I know it" not in str(turn.events)


async def test_the_history_is_an_input() -> None:
    model = Script(model="script", lines=["Hello Ada", "Ada"], seen=[])
    guide = Agent(role="guide", goal="Talk", backstory="x", llm=model)
    talk = Task(description="Answer {message} after:\n{history}", expected_output="An answer", agent=guide)
    task = testing.Task(wrap(Crew(agents=[guide], tasks=[talk]), "chat"))
    await task.send("I am Ada")
    await task.send("Who am I?")
    assert "Answer Who am I? after:\nuser: I am Ada\nagent: Hello Ada" in model.seen[1][-1]["content"]


async def test_runs_at_the_same_time_have_crews_of_their_own() -> None:
    made, _ = crew(*["x"] * 8, chunks=False)
    agent = wrap(made, "trip")
    turns = await asyncio.gather(*(testing.run(agent, str(n)) for n in range(4)))
    assert [t.state for t in turns] == ["completed"] * 4
    assert all(len(t.artifacts) == 2 for t in turns)


async def test_human_input_of_a_task_is_refused() -> None:
    made, _ = crew(human_input=True)
    with pytest.raises(ValueError, match="human_input reads the terminal"):
        wrap(made, "trip")


async def test_errors_fail_the_task() -> None:
    made, _ = crew(*[RuntimeError("secret 42")] * 9)
    turn = await testing.run(wrap(made, "trip"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")


async def test_cancel_ends_a_crew_behind_the_call_that_is_under_way() -> None:
    begun, done = threading.Event(), threading.Event()

    def block() -> str:
        begun.set()
        done.wait(testing.LIMIT)
        return "never"

    made, model = crew(block, "By train")
    running = testing.Task(wrap(made, "trip")).begin("hi")
    assert await asyncio.to_thread(begun.wait, testing.LIMIT)
    running.cancel()
    turn = await running.finish()  # the library has the model in a thread, which nothing can stop
    done.set()
    assert (turn.state, turn.text) == ("canceled", "")
    await asyncio.sleep(0.2)
    assert len(model.seen) == 1


class Booking(Flow[Any]):
    begun = 0

    @start()
    @human_feedback(message="Shall I book it?")
    def plan(self) -> Any:
        Booking.begun += 1
        self.state["city"] = self.state["message"]
        return {"city": self.state["city"], "price": 1.5}

    @listen(plan)
    def book(self, said: Any) -> Any:
        return {"city": self.state["city"], "said": said.feedback}


@pytest.mark.parametrize(
    ("answer", "want"), [("Yes, do", "Yes, do"), (hf.data({"ok": True}), '{"ok": true}')], ids=["text", "data"]
)
async def test_feedback_to_a_flow_is_a_question(answer: Any, want: str) -> None:
    Booking.begun = 0
    task = testing.Task(wrap(Booking, "trip"))
    task.states["task"] = ({"mine": 1}, 1)
    turn = await task.send("Oslo")
    assert (turn.state, turn.message.text) == ("input-required", "Shall I book it?")
    assert turn.message.data == {"output": {"city": "Oslo", "price": 1.5}}
    stored: Any = task.states["task"][0]
    assert stored["mine"] == 1
    # Another try, after a crash behind the question, asks again without the flow.
    again = await task.retry()
    assert again.message.data == turn.message.data
    turn = await task.answer(answer)
    assert turn.state == "completed"
    assert turn.artifacts[0].parts == [hf.data({"city": "Oslo", "said": want})]
    assert Booking.begun == 1


class State(BaseModel):
    id: str = ""
    message: str = ""
    asked: int = 0


class Loop(Flow[State]):
    """Asks until it is told to stop."""

    @start("again")
    @human_feedback(message="Again?", emit=["again", "stop"], default_outcome="stop", llm=Script(model="script"))
    def ask_it(self) -> str:
        self.state.asked += 1
        return f"{self.state.message} {self.state.asked}"

    @listen("stop")
    def end(self, said: Any) -> str:
        return f"asked {self.state.asked}"


async def test_a_flow_with_a_model_for_its_state() -> None:
    task = testing.Task(wrap(Loop, "trip"))
    turn = await task.send("hi")
    assert turn.message.text == "Again?\nhi 1"
    assert turn.message.data == {"outcomes": ["again", "stop"]}
    turn = await task.answer("")
    assert (turn.state, turn.text) == ("completed", "asked 1")


async def test_the_models_of_a_flow_stream() -> None:
    made, _ = crew("Oslo it is", "By train")

    class Plan(Flow[Any]):
        @start()
        async def plan(self) -> Any:
            made.stream = False
            for agent in made.agents:
                agent.llm.stream = True
            return await made.akickoff(inputs={"message": "north"})

    turn = await testing.run(wrap(Plan, "trip"), "north")
    assert turn.text == "Oslo it is\nBy train"
    assert len(texts(turn)) == 5


async def test_the_example() -> None:
    task = testing.Task(load("adapters/crewai_trip.py"))
    turn = await task.send("Book me a trip")
    assert (turn.state, turn.message.text) == ("input-required", "Shall I book it?\nOslo, by train.")
    assert turn.text == "Oslo, by train."
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "Booked: Oslo, by train.")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    class Remember(Script):
        def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return str(messages)

    guide = Agent(role="guide", goal="Plan", backstory="Guide", llm=Remember(model="script"))
    tell = Task(name="tell", description="{history} {message}", expected_output="All", agent=guide)
    made = Crew(agents=[guide], tasks=[tell])
    await callers.check(lambda name: wrap(made, name), shared=False)
