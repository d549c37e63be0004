"""Graphs of LangGraph, with the real library and its fake models."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import callers
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing
from holdfast_agent.adapters.langgraph import wrap


def chat(*answers: str, saver: Any = None) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage(a) for a in answers]))
    seen: list[Any] = []

    async def talk(state: MessagesState) -> Any:
        seen.append([(m.type, m.content) for m in state["messages"]])
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("talk", talk)
    builder.add_edge(START, "talk")
    builder.add_edge("talk", END)
    graph = builder.compile(checkpointer=saver)
    return graph, seen


async def test_text_streams_and_threads_are_contexts() -> None:
    graph, seen = chat("Hello there Ada", "Your name is Ada", "I do not know", saver=InMemorySaver())
    agent = wrap(graph, "chat")
    turn = await testing.Task(agent, context_id="c-1").send("I am Ada")
    assert (turn.state, turn.text) == ("completed", "Hello there Ada")
    assert len([e for e in turn.events if e["type"] == "text"]) > 2
    assert len({str(e.get("name")) for e in turn.events if e["type"] == "text"}) == 1
    turn = await testing.Task(agent, context_id="c-1").send("Who am I?")
    assert turn.text == "Your name is Ada"
    turn = await testing.Task(agent, context_id="c-2").send("Who am I?")
    assert turn.text == "I do not know"
    assert [len(s) for s in seen] == [1, 3, 1]


async def test_text_of_finished_nodes_stays() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage(a) for a in ("Sunny in Oslo", "Half of", "Take a coat")]))
    tries: list[str] = []

    async def look(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def advise(state: MessagesState) -> Any:
        tries.append("advise")
        answer = await model.ainvoke(state["messages"])
        if len(tries) == 1:
            raise hf.Retry("busy")
        return {"messages": [answer]}

    builder = StateGraph(MessagesState)
    for name, node in (("look", look), ("advise", advise)):
        builder.add_node(name, node)
    builder.add_edge(START, "look")
    builder.add_edge("look", "advise")
    task = testing.Task(wrap(builder.compile(checkpointer=InMemorySaver()), "weather"))
    assert (await task.send("hi")).text == "Sunny in Oslo\nHalf of"
    assert (await task.retry()).text == "Sunny in Oslo\nTake a coat"
    assert (await task.retry()).text == "Sunny in Oslo\nTake a coat"  # after the end of the graph


async def test_without_a_checkpointer_the_history_is_the_memory() -> None:
    graph, seen = chat("Hello Ada", "Ada")
    task = testing.Task(wrap(graph, "chat"))
    await task.send("I am Ada")
    turn = await task.send("Who am I?")
    assert turn.text == "Ada"
    assert seen[1] == [("human", "I am Ada"), ("ai", "Hello Ada"), ("human", "Who am I?")]


class Trip(TypedDict, total=False):
    messages: list[Any]
    log: Annotated[list[str], operator.add]


async def test_interrupts_are_questions() -> None:
    def begin(state: Trip) -> Any:
        get_stream_writer()("Looking.")
        get_stream_writer()({"percent": 50})
        return {"log": ["begun"]}

    def approve(state: Trip) -> Any:
        return {"log": [f"approved {interrupt({'approve': 'Oslo', 'price': 199})}"]}

    def city(state: Trip) -> Any:
        return {"log": [f"city {interrupt('Where to?')}"]}

    builder = StateGraph(Trip)
    for node, function in (("begin", begin), ("city", city), ("approve", approve)):
        builder.add_node(node, function)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "city")
    builder.add_edge("city", "approve")
    graph = builder.compile(checkpointer=InMemorySaver())
    task = testing.Task(wrap(graph, "trip", input=lambda run: {"log": [run.message.text]}))
    turn = await task.send("Book")
    assert (turn.state, turn.message.text) == ("input-required", "Where to?")
    assert [m.text or m.data for m in turn.progress] == ["Looking.", {"percent": 50}]
    turn = await task.answer("Oslo")
    assert (turn.state, turn.message.data) == ("input-required", {"approve": "Oslo", "price": 199})
    # Another try of this turn, after a crash behind the interrupt, asks again and answers nothing.
    again = await task.retry()
    assert again.message.data == {"approve": "Oslo", "price": 199}
    turn = await task.answer(hf.data({"ok": True}))
    assert turn.state == "completed"
    assert turn.artifacts[0].parts[0].data == {"log": ["Book", "begun", "city Oslo", "approved {'ok': True}"]}


async def test_several_interrupts() -> None:
    def one(state: Trip) -> Any:
        return {"log": [f"one {interrupt('1?')}"]}

    def two(state: Trip) -> Any:
        return {"log": [f"two {interrupt('2?')}"]}

    builder = StateGraph(Trip)
    builder.add_node("one", one)
    builder.add_node("two", two)
    builder.add_edge(START, "one")
    builder.add_edge(START, "two")
    graph = builder.compile(checkpointer=InMemorySaver())
    task = testing.Task(wrap(graph, "x", input=lambda run: {"log": []}, output=lambda s: ", ".join(sorted(s["log"]))))
    turn = await task.send("hi")
    assert sorted(turn.message.data.values()) == ["1?", "2?"]
    ids = {question: id for id, question in turn.message.data.items()}
    turn = await task.answer(hf.data({ids["1?"]: "a", ids["2?"]: "b"}))
    assert (turn.state, turn.text) == ("completed", "one a, two b")


async def test_a_retry_continues_from_the_checkpoint() -> None:
    calls: list[str] = []

    def first(state: Trip) -> Any:
        calls.append("first")
        return {"log": ["first"]}

    def second(state: Trip) -> Any:
        calls.append("second")
        if len(calls) == 2:
            raise hf.Retry("busy")
        return {"log": ["second"]}

    builder = StateGraph(Trip)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(checkpointer=InMemorySaver())
    task = testing.Task(wrap(graph, "x", input=lambda run: {"log": []}))
    assert (await task.send("hi")).end["type"] == "retry"
    turn = await task.retry()
    assert turn.artifacts[0].parts[0].data == {"log": ["first", "second"]}
    assert calls == ["first", "second", "second"]
    # A try after the graph has ended only says the result again.
    again = await task.retry()
    assert again.artifacts[0].parts[0].data == {"log": ["first", "second"]}
    assert len(calls) == 3


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_retry_finishes_what_died_between_a_node_and_its_step(lost: int) -> None:
    calls: list[str] = []

    def node(name: str) -> Any:
        def call(state: Trip) -> Any:
            calls.append(name)
            return {"log": [name]}

        return call

    builder = StateGraph(Trip)
    for name in ("first", "second"):
        builder.add_node(name, node(name))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    saver = InMemorySaver()
    graph = builder.compile(checkpointer=saver)
    task = testing.Task(wrap(graph, "x", input=lambda run: {"log": []}), context_id="c")
    await task.send("hi")
    # The results of nodes are stored before the checkpoints of their steps.
    steps = saver.storage[task.context_key][""]
    for id in sorted(steps)[-lost:]:
        del steps[id]
    state = await graph.aget_state({"configurable": {"thread_id": task.context_key}})
    assert (state.next, [t.result for t in state.tasks]) == ((), [{"log": ["second" if lost == 1 else "first"]}])
    calls.clear()
    turn = await task.retry()
    assert turn.artifacts[0].parts[0].data == {"log": ["first", "second"]}
    assert calls == ["second"][: lost - 1]


async def test_files_and_final_messages() -> None:
    seen: list[Any] = []

    def node(state: MessagesState) -> Any:
        seen.append(state["messages"][0].content)
        return {"messages": [AIMessage("not streamed by a model")]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    turn = await testing.run(wrap(builder.compile(), "x"), ["look", hf.file(b"\x00", media_type="image/png"), hf.data({"n": 1})])
    assert turn.text == "not streamed by a model"
    assert seen == [
        [
            {"type": "text", "text": "look"},
            {"type": "image", "mime_type": "image/png", "base64": "AA=="},
            {"type": "text", "text": '{"n": 1}'},
        ]
    ]


async def test_cancel_reaches_the_graph() -> None:
    ended: list[str] = []

    async def node(state: MessagesState) -> Any:
        get_stream_writer()("working")
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    running = testing.Task(wrap(builder.compile(), "x")).begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    assert (await running.finish()).state == "canceled"
    assert ended == ["ended"]


async def test_the_run_is_in_the_configuration() -> None:
    async def node(state: MessagesState, config: Any) -> Any:
        run = config["configurable"]["holdfast_run"]
        await run.progress(f"{config['configurable']['extra']} {run.message.text}")
        return {"messages": [HumanMessage("x")]}

    node.__annotations__["config"] = __import__("langchain_core.runnables", fromlist=["x"]).RunnableConfig
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    turn = await testing.run(wrap(builder.compile(), "x", config=lambda run: {"configurable": {"extra": 1}}), "hi")
    assert [m.text for m in turn.progress] == ["1 hi"]


async def test_the_example() -> None:
    task = testing.Task(load("adapters/langgraph_trip.py"))
    turn = await task.send("To Oslo")
    assert (turn.state, turn.text, turn.message.text) == ("input-required", "A train to Oslo, 199 euros.", "Book it?")
    turn = await task.answer("yes")
    assert (turn.state, turn.text) == ("completed", "Booked.")


def remembering(saver: Any) -> Any:
    """A graph that answers with all that it was told; to "book" it asks first."""

    def node(state: MessagesState) -> Any:
        told = [m.text for m in state["messages"] if m.type == "human"]
        if told[-1] == "book":
            told.append(f"booked: {interrupt('Book it?')}")
        return {"messages": [AIMessage(" ".join(told))]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("thread", ["context", "task"])
async def test_no_caller_and_no_agent_reads_the_memory_of_another(thread: Any) -> None:
    saver = InMemorySaver()
    await callers.check(lambda name: wrap(remembering(saver), name, thread=thread), shared=thread == "context")


async def test_only_the_task_that_asked_is_answered() -> None:
    agent = wrap(remembering(InMemorySaver()), "trip")
    task = testing.Task(agent)
    assert (await task.another().send("I am Ada")).text == "I am Ada"
    assert (await task.send("book")).state == "input-required"
    # Other tasks go on without it, with the memory of before.
    other = task.another()
    assert (await other.send("yes")).text == "I am Ada yes"
    asking = task.another()
    assert (await asking.send("book")).message.text == "Book it?"
    assert (await asking.retry()).message.text == "Book it?"
    assert (await asking.answer("no")).text == "I am Ada book booked: no"
    assert (await task.answer("yes")).text == "I am Ada book booked: yes"
    # What it said is the memory of the context again.
    assert (await task.another().send("well")).text == "I am Ada book well"


async def test_a_question_that_nobody_answers_ends_with_its_task() -> None:
    agent = wrap(remembering(InMemorySaver()), "trip")
    task = testing.Task(agent)
    assert (await task.another().send("I am Ada")).text == "I am Ada"
    await task.send("book")
    task.cancel()
    assert (await task.another().send("hello")).text == "I am Ada hello"
    assert (await task.another().send("bye")).text == "I am Ada hello bye"


async def test_an_answer_without_the_memory_of_its_question_fails() -> None:
    saver = InMemorySaver()
    agent = wrap(remembering(saver), "trip")
    task = testing.Task(agent)
    await task.send("book")
    saver.delete_thread(task.context_key)
    turn = await task.answer("yes")
    assert (turn.state, turn.message.text) == ("failed", "The agent has lost the memory of this task.")
