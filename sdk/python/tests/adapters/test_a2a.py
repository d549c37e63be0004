"""AgentExecutors of a2a-sdk, with the real library: the same tests for its lines 0.3 and 1.x."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import callers
import pytest
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from holdfast_agent.adapters import a2a
    from holdfast_agent.adapters.a2a import wrap

ONE = a2a._one is not None

if ONE:
    from a2a.types import Message, Part, Role, Task, TaskState, TaskStatus

    INPUT, AUTH, SUBMITTED = TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED, TaskState.TASK_STATE_SUBMITTED

    def text(value: str) -> Any:
        return Part(text=value)

    def message(value: str) -> Any:
        return Message(message_id="m-x", role=Role.ROLE_AGENT, parts=[text(value)])

    def file(value: bytes, name: str, media: str) -> Any:
        return Part(raw=value, filename=name, media_type=media)

    def data(value: Any) -> Any:
        from google.protobuf.json_format import ParseDict

        return ParseDict({"data": value}, Part())

    def state_of(task: Any) -> str:
        return str(TaskState.Name(task.status.state))

    INPUT_NAME = "TASK_STATE_INPUT_REQUIRED"
else:
    import base64

    from a2a.types import DataPart, FilePart, FileWithBytes, Message, Part, Role, Task, TaskState, TaskStatus, TextPart

    INPUT, AUTH, SUBMITTED = TaskState.input_required, TaskState.auth_required, TaskState.submitted

    def text(value: str) -> Any:
        return Part(root=TextPart(text=value))

    def message(value: str) -> Any:
        return Message(message_id="m-x", role=Role.agent, parts=[text(value)])

    def file(value: bytes, name: str, media: str) -> Any:
        return Part(root=FilePart(file=FileWithBytes(bytes=base64.b64encode(value).decode(), name=name, mime_type=media)))

    def data(value: Any) -> Any:
        return Part(root=DataPart(data=value))

    def state_of(task: Any) -> str:
        return str(task.status.state.value)

    INPUT_NAME = "input-required"


class Base(AgentExecutor):
    async def execute(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel(message("Stopped."))


class Travel(Base):
    async def execute(self, context: Any, event_queue: Any) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            status = TaskStatus(state=SUBMITTED)
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            )
            await updater.start_work(message("Looking."))
            await updater.update_status(INPUT, message("Where to?"), metadata={"m": 1})
            return
        assert state_of(context.current_task) == INPUT_NAME
        assert len(context.current_task.history) == 3
        assert context.current_task.status.message.message_id
        for n, word in enumerate(("Ticket ", "to ", context.get_user_input())):
            await updater.add_artifact([text(word)], artifact_id="ticket", name="ticket", append=n > 0, last_chunk=n == 2)
        await updater.add_artifact([file(b"\x00", "t.pdf", "application/pdf"), data({"n": 2, "list": [1.5, None]})], name="files")
        await updater.complete(message("Done."))


async def test_question_and_artifacts() -> None:
    task = testing.Task(wrap(Travel(), "travel"))
    turn = await task.send("Book me a trip", metadata={"priority": 1})
    assert (turn.state, turn.message.text, turn.end["metadata"]) == ("input-required", "Where to?", {"m": 1})
    assert [m.text for m in turn.progress] == ["Looking."]
    turn = await task.answer("Oslo")
    assert (turn.state, turn.message.text) == ("completed", "Done.")
    ticket, files = turn.artifacts
    assert (ticket.id, ticket.name, ticket.text) == ("ticket", "ticket", "Ticket to Oslo")
    assert [e.get("last") for e in turn.events if e["type"] == "artifact"] == [None, None, True, None]
    assert files.parts[0] == hf.Part(raw=b"\x00", filename="t.pdf", media_type="application/pdf")
    assert files.parts[1].data == {"n": 2, "list": [1.5, None]}
    assert all(e["artifact"]["artifactId"] for e in turn.events if e["type"] == "artifact")


async def test_the_context() -> None:
    seen: list[Any] = []

    class Look(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            seen.append((context.task_id, context.context_id, context.get_user_input(), dict(context.metadata)))
            seen.append((context.call_context.user.user_name, context.call_context.state["scopes"], context.current_task))
            seen.append(list(context.configuration.accepted_output_modes))
            seen.append(len(context.message.parts))

    task = testing.Task(wrap(Look(), "x"), owner="ada", context_id="c-1")
    turn = await task.send(
        ["a", hf.data({"b": 1}), hf.file(b"c", filename="c")],
        turnMetadata={"n": 1},
        scopes=["s"],
        acceptedOutputModes=["text/plain"],
    )
    assert turn.state == "completed"
    assert seen == [(task.key, task.context_key, "a", {"n": 1}), ("ada", ["s"], None), ["text/plain"], 3]


@pytest.mark.parametrize("replies", [False, True])
async def test_bare_message(replies: bool) -> None:
    class Say(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            await event_queue.enqueue_event(message("Hi."))

    turn = await testing.run(wrap(Say(), "x", replies=replies), "hi")
    assert (turn.state, turn.message.text) == ("replied" if replies else "completed", "Hi.")


async def test_ends() -> None:
    class End(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            word = context.get_user_input()
            if word == "auth":
                await updater.update_status(AUTH, message("Sign in."))
                await updater.add_artifact([text("late")])  # has no effect
            elif word == "crash":
                raise RuntimeError("secret 42")
            else:
                await getattr(updater, word)(message("Bye."))

    agent = wrap(End(), "x")
    found = {word: await testing.run(agent, word) for word in ("auth", "failed", "reject", "crash", "complete")}
    assert {w: (t.state, t.message.text) for w, t in found.items()} == {
        "auth": ("auth-required", "Sign in."),
        "failed": ("failed", "Bye."),
        "reject": ("rejected", "Bye."),
        "crash": ("failed", "The agent failed."),
        "complete": ("completed", "Bye."),
    }
    assert found["auth"].artifacts == []


async def test_cancel() -> None:
    ended = []

    class Sleep(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.add_artifact([text("working")], name="a")
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)

    running = testing.Task(wrap(Sleep(), "x")).begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text, ended) == ("canceled", "working", [True])
    assert [m.text for m in turn.progress] == ["Stopped."]


async def test_a_cancel_that_completes() -> None:
    class Late(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            await TaskUpdater(event_queue, context.task_id, context.context_id).start_work(message("x"))
            await asyncio.sleep(3600)

        async def cancel(self, context: Any, event_queue: Any) -> None:
            await TaskUpdater(event_queue, context.task_id, context.context_id).complete(message("It was done."))

    running = testing.Task(wrap(Late(), "x")).begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    assert (await running.finish()).state == "completed"


async def test_a_retry_replaces_artifacts_with_random_ids() -> None:
    class Random(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.add_artifact([text("a")], name="n")
            await updater.add_artifact([text("b")], name="n")

    agent = wrap(Random(), "x")
    first = await testing.run(agent, "hi")
    left = [{"artifactId": a.id, "name": "n", "chunks": 1, "last": False} for a in first.artifacts]
    second = await testing.run(agent, "hi", earlier=left)
    assert [(a.id, a.text) for a in second.artifacts] == [(a.id, a.text) for a in first.artifacts]


async def test_without_a_message() -> None:
    task = testing.Task(wrap(Travel(), "x"))
    turn = await task._begin({"input": {"source": "timer"}}).finish()
    assert (turn.state, turn.message.text) == ("failed", "This agent only answers messages.")


if ONE:  # the example is for 1.x

    async def test_the_example() -> None:
        turn = await testing.run(load("adapters/a2a_executor.py"), "count")
        assert (turn.state, turn.text) == ("completed", "1 2 3 4 5 ")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    remembered: dict[str, list[str]] = {}

    class Remember(Base):
        async def execute(self, context: Any, event_queue: Any) -> None:
            told = remembered.setdefault(context.context_id, [])
            told.append(context.get_user_input())
            assert context.task_id not in remembered
            remembered[context.task_id] = told
            await TaskUpdater(event_queue, context.task_id, context.context_id).add_artifact([text(" ".join(told))])

    await callers.check(lambda name: wrap(Remember(), name), shared=True)
