"""Workflows of LlamaIndex, with the real library. It needs no model."""

from __future__ import annotations

import asyncio
from typing import Any

import callers
from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing
from holdfast_agent.adapters.llama_index import wrap

calls: list[str] = []
failing: list[str] = []


class Chat(Workflow):
    @step
    async def talk(self, ctx: Context, event: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Event(msg="Thinking."))
        for word in ("Hello ", event.input):
            ctx.write_event_to_stream(Event(delta=word))
        return StopEvent(result=f"Hello {event.input}")


async def test_text_and_progress_stream() -> None:
    turn = await testing.run(wrap(Chat(timeout=None), "chat"), "Ada")
    assert (turn.state, turn.text) == ("completed", "Hello Ada")
    assert [e["type"] for e in turn.events] == ["status", "text", "text", "complete"]
    assert turn.progress[0].text == "Thinking."


class Trip(BaseModel):
    city: str
    price: float


class Begin(StartEvent):
    city: str


class Result(StopEvent):
    trip: Trip


class Plan(Workflow):
    @step
    async def plan(self, event: Begin) -> Result:
        return Result(trip=Trip(city=event.city, price=1.5))


async def test_events_with_types() -> None:
    agent = wrap(Plan(timeout=None), "plan", input=lambda run: Begin(city=run.message.text))
    turn = await testing.run(agent, "Oslo")
    assert turn.artifacts[0].parts[0].data == {"trip": {"city": "Oslo", "price": 1.5}}
    agent = wrap(Plan(timeout=None), "plan", input=lambda run: {"city": "Rome"}, output=lambda result: result.trip.city)
    assert (await testing.run(agent, "Oslo")).text == "Rome"


class Age(HumanResponseEvent):
    pass


def form() -> hf.Agent:
    def answer(run: hf.Run) -> Event:
        return Age(**run.message.data) if run.message.data else HumanResponseEvent(response=run.message.text)

    return wrap(Form(timeout=None), "form", answer=answer)


class Form(Workflow):
    """Waits in the middle of a step, two times."""

    @step
    async def fill(self, ctx: Context, event: StartEvent) -> StopEvent:
        calls.append("fill")
        await ctx.store.set("begun", event.input)
        name = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Name? "), waiter_id="name", timeout=None
        )
        age = await ctx.wait_for_event(
            Age,
            waiter_event=InputRequiredEvent(prefix="Age?", least=18),
            waiter_id="age",
            requirements={"of": "age"},
            timeout=None,
        )
        return StopEvent(result=f"{await ctx.store.get('begun')}: {name.response}, {age.response}")


async def test_events_that_require_input_are_questions() -> None:
    task = testing.Task(form())
    task.states["task"] = ({"mine": 1}, 1)
    turn = await task.send("Join")
    assert (turn.state, turn.message.text) == ("input-required", "Name?")
    # Another try, after a crash behind the question, asks again without the workflow.
    before = len(calls)
    assert (await task.retry()).message.text == "Name?"
    assert len(calls) == before
    # Another worker has another object of the workflow.
    task.agent = form()
    turn = await task.answer("Ada")
    assert (turn.state, turn.message.text, turn.message.data) == ("input-required", "Age?", {"least": 18})
    # An answer that does not fit: nothing goes on, and the question is asked again.
    for wrong in ("36", hf.data({"response": 36, "of": "house"})):
        turn = await task.answer(wrong)
        assert (turn.state, turn.message.text, turn.message.data) == ("input-required", "Age?", {"least": 18})
    turn = await task.answer(hf.data({"response": 36, "of": "age"}))
    assert (turn.state, turn.text) == ("completed", "Join: Ada, 36")
    stored: Any = task.states["task"][0]
    assert stored["mine"] == 1


class City(HumanResponseEvent):
    name: str


class Ask(Workflow):
    @step
    async def ask(self, event: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(cities=["Oslo", "Rome"])

    @step
    async def go(self, event: City) -> StopEvent:
        if failing:
            raise hf.Retry(failing.pop())
        return StopEvent(result=event.name)


async def test_a_response_with_a_type() -> None:
    task = testing.Task(wrap(Ask(timeout=None), "ask", answer=lambda run: City(name=run.message.text)))
    turn = await task.send("Go")
    assert turn.message.data == {"cities": ["Oslo", "Rome"]}
    # A try of the answer that failed is repeated from the stored context.
    failing.append("once")
    assert (await task.answer("Rome")).end["type"] == "retry"
    assert (await task.retry()).text == "Rome"


class First(InputRequiredEvent):
    pass


class Slow(Event):
    pass


class Both(Workflow):
    """Asks two questions, and the second comes after work beside the first."""

    @step
    async def begin(self, ctx: Context, event: StartEvent) -> Slow | None:
        ctx.write_event_to_stream(First(prefix="1?"))
        return Slow()

    @step
    async def second(self, ctx: Context, event: Slow) -> InputRequiredEvent:
        calls.append("second")
        for _ in range(10):
            await asyncio.sleep(0)
        return InputRequiredEvent(prefix="2?")

    @step
    async def end(self, ctx: Context, event: HumanResponseEvent) -> StopEvent | None:
        found = ctx.collect_events(event, [HumanResponseEvent] * 2)
        return StopEvent(result=" ".join(sorted(str(e.response) for e in found))) if found else None


async def test_several_questions_after_all_steps_have_settled() -> None:
    calls.clear()
    task = testing.Task(wrap(Both(timeout=None), "both"))
    turn = await task.send("hi")
    assert turn.message.text == "1?\n2?"
    assert turn.message.data == {"1": {"prefix": "1?"}, "2": {"prefix": "2?"}}
    turn = await task.answer(hf.data({"1": "a", "2": {"response": "b"}}))
    assert (turn.state, turn.text) == ("completed", "a b")
    assert calls == ["second"]


class Broken(Workflow):
    @step
    async def break_(self, event: StartEvent) -> StopEvent:
        raise RuntimeError("secret 42")


async def test_errors_fail_the_task() -> None:
    turn = await testing.run(wrap(Broken(timeout=None), "x"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")


async def test_cancel_reaches_a_step() -> None:
    ended: list[str] = []

    class Long(Workflow):
        @step
        async def work(self, ctx: Context, event: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Event(delta="working"))
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("ended")
            return StopEvent()

    running = testing.Task(wrap(Long(timeout=None), "x")).begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text, ended) == ("canceled", "working", ["ended"])


async def test_the_example() -> None:
    task = testing.Task(load("adapters/llama_index_trip.py"))
    turn = await task.send("To Oslo")
    assert (turn.state, turn.text, turn.message.text) == ("input-required", "A train to Oslo, 199 euros.", "Book it?")
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "Booked.")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    chat = Chat(timeout=None)
    await callers.check(lambda name: wrap(chat, name), shared=False)
