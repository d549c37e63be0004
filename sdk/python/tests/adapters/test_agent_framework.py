"""Agents of the Microsoft Agent Framework, with the real library and a model that says what the test wants."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from pydantic import BaseModel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatResponseUpdate,
        Content,
        FunctionInvocationLayer,
        FunctionTool,
        HistoryProvider,
        Message,
        WorkflowBuilder,
        WorkflowContext,
        executor,
        tool,
    )

    from holdfast_agent.adapters.agent_framework import wrap

import callers
import questions

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing


class Script(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Answers with the next step: pieces of text, and calls of tools. The framework has no fake model of its own."""

    def __init__(self, *steps: Any) -> None:
        super().__init__()
        self.steps = list(steps)
        self.seen: list[list[Message]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        step = self.steps.pop(0)

        async def updates() -> Any:
            for piece in step:
                if isinstance(piece, Exception):
                    raise piece
                content = Content.from_text(piece) if isinstance(piece, str) else piece
                yield ChatResponseUpdate(role="assistant", contents=[content], message_id=f"m-{len(self.seen)}")

        return self._build_response_stream(updates(), response_format=options.get("response_format"))

    def said(self, call: int) -> list[Any]:
        """What the model got: roles with text, and the results of tools."""
        found: list[Any] = []
        for message in self.seen[call]:
            found += [
                (message.role, c.text if c.type == "text" else c.result if c.type == "function_result" else c.type)
                for c in message.contents
            ]
        return found


def call(name: str, id: str = "c-1", /, **arguments: Any) -> Any:
    return Content.from_function_call(id, name, arguments=arguments)


def deleting() -> tuple[Any, list[str]]:
    deleted: list[str] = []

    @tool(approval_mode="always_require")
    def delete(name: str) -> str:
        """Delete a file."""
        deleted.append(name)
        return "gone"

    return delete, deleted


async def test_text_streams_with_the_history() -> None:
    model = Script(["Hello", " Ada"], ["Ada"])
    task = testing.Task(wrap(Agent(model, name="chat"), "chat"))
    turn = await task.send("I am Ada")
    assert (turn.state, turn.text) == ("completed", "Hello Ada")
    assert [e["text"] for e in turn.events if e["type"] == "text"] == ["Hello", " Ada"]
    turn = await task.send("Who am I?")
    assert turn.text == "Ada"
    assert model.said(1) == [("user", "I am Ada"), ("assistant", "Hello Ada"), ("user", "Who am I?")]


class Store(HistoryProvider):
    """Messages by session, as those of a database are."""

    def __init__(self) -> None:
        super().__init__("store")
        self.kept: dict[Any, list[Message]] = {}

    async def get_messages(self, session_id: Any, **kwargs: Any) -> list[Message]:
        return self.kept.get(session_id, [])

    async def save_messages(self, session_id: Any, messages: Any, **kwargs: Any) -> None:
        self.kept.setdefault(session_id, []).extend(messages)


async def test_a_history_provider_is_the_memory_of_a_context() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "sunny"

    model = Script([call("look")], ["Sun"], ["Sun again"], ["Who?"])
    store = Store()
    agent = wrap(Agent(model, name="chat", tools=[look], context_providers=[store]), "chat")
    one, two = testing.Task(agent), testing.Task(agent)
    assert (await one.send("Weather?")).text == "Sun"
    assert (await one.another().send("And now?")).text == "Sun again"
    assert [s for _, s in model.said(2)] == ["Weather?", "function_call", "sunny", "Sun", "And now?"]
    await two.send("hi")
    assert list(store.kept) == [one.context_key, two.context_key]
    assert model.said(3) == [("user", "hi")]


async def test_messages_of_one_run_are_lines() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "sunny"

    model = Script(["I look.", call("look")], ["Sun"])
    turn = await testing.run(wrap(Agent(model, name="x", tools=[look]), "x"), "hi")
    assert turn.text == "I look.\nSun"


class Trip(BaseModel):
    city: str
    price: float


@pytest.mark.parametrize("where", ["agent", "run"])
async def test_structured_output(where: str) -> None:
    model = Script(['{"city": "Oslo", ', '"price": 1.5}'])
    chosen: Any = {"response_format": Trip}
    if where == "agent":
        agent = wrap(Agent(model, name="x", default_options=chosen), "x")
    else:
        agent = wrap(Agent(model, name="x"), "x", options=lambda run: {"options": chosen})
    turn = await testing.run(agent, "Oslo")
    assert [a.parts for a in turn.artifacts] == [[hf.data({"city": "Oslo", "price": 1.5})]]


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
    delete, deleted = deleting()
    model = Script([call("delete", name="f")], ["Done"])
    task = testing.Task(wrap(Agent(model, name="x", tools=[delete]), "x"))
    task.states["task"] = ({"mine": 1}, 1)
    turn = await task.send("Delete f")
    assert turn.state == "input-required"
    assert turn.message.text == 'Approve delete(name="f")?'
    assert turn.message.data == questions.DELETE
    stored: Any = task.states["task"][0]
    assert stored["mine"] == 1
    # Another try, after a crash behind the question, asks again without the model.
    again = await task.retry()
    assert again.message.data == turn.message.data
    turn = await task.answer(answer)
    assert (turn.state, turn.text, deleted) == ("completed", "Done", ["f"] if want else [])
    assert len(model.seen) == 2
    result = "gone" if want else "Error: Tool call invocation was rejected by user."
    assert model.said(1) == [("user", "Delete f"), ("assistant", "function_call"), ("tool", result)]


async def test_each_of_several_approvals_has_an_answer() -> None:
    delete, deleted = deleting()
    model = Script([call("delete", name="f"), call("delete", "c-2", name="g")], ["Done"])
    task = testing.Task(wrap(Agent(model, name="x", tools=[delete]), "x"))
    turn = await task.send("Delete both")
    assert turn.message.text == 'Approve delete(name="f")?\nApprove delete(name="g")?'
    assert (await task.answer(hf.data({"c-1": False, "c-2": True}))).text == "Done"
    assert deleted == ["g"]


async def test_a_tool_of_the_client_is_a_question() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    price = FunctionTool(name="price", description="The price of a trip.", func=None, input_model=schema)
    model = Script([call("price", city="Oslo")], ["It costs 199."])
    task = testing.Task(wrap(Agent(model, name="x", tools=[price]), "x"))
    turn = await task.send("How much is Oslo?")
    assert turn.message.text == 'What is the result of price(city="Oslo")?'
    turn = await task.answer("199")
    assert (turn.state, turn.text) == ("completed", "It costs 199.")
    assert model.said(1)[-1] == ("tool", "199")


async def test_an_approval_and_a_tool_of_the_client() -> None:
    delete, deleted = deleting()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    price = FunctionTool(name="price", description="The price of a trip.", func=None, input_model=schema)
    model = Script([call("delete", name="f"), call("price", "c-2", city="Oslo")], ["Done"])
    task = testing.Task(wrap(Agent(model, name="x", tools=[delete, price]), "x"))
    turn = await task.send("Both")
    assert turn.message.text == 'Approve delete(name="f")?\nWhat is the result of price(city="Oslo")?'
    turn = await task.answer(hf.data({"c-1": True, "c-2": 199}))
    assert (turn.text, deleted) == ("Done", ["f"])
    assert model.said(1)[-2:] == [("tool", "gone"), ("tool", "199")]


async def test_files() -> None:
    model = Script(["ok"])
    pdf = hf.file(b"\x00", media_type="application/pdf", filename="a.pdf")
    await testing.run(wrap(Agent(model, name="x"), "x"), ["look", pdf, hf.url("https://a.example/f.pdf"), hf.data({"n": 1})])
    contents = model.seen[0][0].contents
    assert [(c.type, c.media_type, c.text or c.uri) for c in contents] == [
        ("text", None, "look"),
        ("data", "application/pdf", "data:application/pdf;base64,AA=="),
        ("uri", "application/octet-stream", "https://a.example/f.pdf"),
        ("text", None, '{"n": 1}'),
    ]


async def test_errors_fail_the_task() -> None:
    turn = await testing.run(wrap(Agent(Script([RuntimeError("secret 42")]), name="x"), "x"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")


async def test_cancel_reaches_a_tool() -> None:
    begun, ended = asyncio.Event(), []

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")
        return "never"

    model = Script(["Working.", call("work")])
    running = testing.Task(wrap(Agent(model, name="x", tools=[work]), "x")).begin("hi")
    await running.until(lambda events: events)
    await asyncio.wait_for(begun.wait(), testing.LIMIT)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text, ended) == ("canceled", "Working.", ["ended"])


async def test_a_workflow_is_made_for_each_run() -> None:
    @executor(id="shout")
    async def shout(messages: list[Message], ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(messages[-1].text.upper())

    def make(run: hf.Run) -> Any:
        return WorkflowBuilder(start_executor=shout, output_from=[shout]).build().as_agent("shout")

    agent = wrap(make, "x")
    turns = await asyncio.gather(*(testing.run(agent, word) for word in ("a", "b")))
    assert [(t.state, t.text) for t in turns] == [("completed", "A"), ("completed", "B")]


async def test_the_example() -> None:
    task = testing.Task(load("adapters/agent_framework_refund.py"))
    turn = await task.send("Refund me")
    assert (turn.state, turn.message.text) == ("input-required", "Approve refund(euros=20)?")
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "The tool says: paid 20 euros")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    class Remember(Script):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
            self.steps = [[" ".join(m.text for m in messages)]]
            return super()._inner_get_response(messages=messages, stream=stream, options=options, **kwargs)

    kept = Store()
    await callers.check(lambda name: wrap(Agent(Remember(), name="chat", context_providers=[kept]), name), shared=True)
