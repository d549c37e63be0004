"""Workers of FastA2A, with the real library."""

from __future__ import annotations

import asyncio
from typing import Any

import callers
import pytest
from fasta2a import Worker
from pydantic import BaseModel

import holdfast_agent as hf
from examples import load
from holdfast_agent import testing
from holdfast_agent.adapters.fasta2a import wrap


def message(value: str) -> Any:
    return {"role": "agent", "message_id": "m-x", "parts": [{"text": value}]}


class Base(Worker[Any]):
    async def run_task(self, params: Any) -> None:
        raise NotImplementedError

    async def cancel_task(self, params: Any) -> None:
        raise NotImplementedError

    def build_message_history(self, history: Any) -> Any:
        return [m["parts"][0].get("text") for m in history]

    def build_artifacts(self, result: Any) -> Any:
        return [{"artifact_id": "a-1", "name": "result", "parts": [{"text": result}]}]


class Travel(Base):
    async def run_task(self, params: Any) -> None:
        id, context = params["id"], params["context_id"]
        task: Any = await self.storage.load_task(id)
        await self.storage.update_task(id, "working")
        if len(task["history"]) == 1:
            await self.publish_status(id, context, "working", message("Looking."))
            await self.storage.update_task(id, "input-required", new_messages=[message("Where to?")])
            return
        said = ", ".join(self.build_message_history(task["history"]))
        for n, word in enumerate(("Ticket ", "to ", said)):
            artifact: Any = {"artifact_id": "ticket", "name": "ticket", "parts": [{"text": word}]}
            await self.publish_artifact(id, context, artifact, append=n > 0, last_chunk=n == 2)
        whole: Any = {"artifact_id": "ticket", "name": "ticket", "parts": [{"text": "Ticket to " + said}]}
        file: Any = {"artifact_id": "f", "parts": [{"raw": "AA==", "filename": "t.pdf", "media_type": "application/pdf"}]}
        await self.storage.update_task(id, "completed", new_artifacts=[whole, file], new_messages=[message("Done.")])


async def test_question_artifacts_and_history() -> None:
    task = testing.Task(wrap(Travel, "travel"))
    turn = await task.send("Book me a trip")
    assert (turn.state, turn.message.text) == ("input-required", "Where to?")
    assert [m.text for m in turn.progress] == ["Looking."]
    turn = await task.answer("Oslo")
    assert (turn.state, turn.message.text) == ("completed", "Done.")
    ticket, file = turn.artifacts
    assert (ticket.id, ticket.text) == ("ticket", "Ticket to Book me a trip, Where to?, Oslo")
    assert file.parts == [hf.Part(raw=b"\x00", filename="t.pdf", media_type="application/pdf")]


class Kept(BaseModel):
    names: list[str]


async def test_the_context_is_the_state_of_the_context() -> None:
    class Remember(Base):
        async def run_task(self, params: Any) -> None:
            kept = await self.storage.load_context(params["context_id"]) or Kept(names=[])
            kept.names.append(params["message"]["parts"][0]["text"])
            await self.storage.update_context(params["context_id"], kept)
            await self.storage.update_task(params["id"], "completed", self.build_artifacts(", ".join(kept.names)))

    task = testing.Task(wrap(Remember, "x", context=Kept), context_id="c-1")
    assert (await task.send("Ada")).text == "Ada"
    assert task.states["context"][0] == {"names": ["Ada"]}
    other = task.another()
    assert (await other.send("Eve")).text == "Ada, Eve"


@pytest.mark.parametrize(
    ("state", "want"),
    [("completed", "completed"), ("failed", "failed"), ("rejected", "rejected"), ("auth-required", "auth-required")],
)
@pytest.mark.parametrize("by", ["storage", "bus"])
async def test_ends(state: Any, want: str, by: str) -> None:
    class End(Base):
        async def run_task(self, params: Any) -> None:
            if by == "storage":
                await self.storage.update_task(params["id"], state, new_messages=[message("Bye.")])
            else:
                await self.publish_status(params["id"], params["context_id"], state, message("Bye."))

    turn = await testing.run(wrap(End, "x"), "hi")
    assert (turn.state, turn.message.text) == (want, "Bye.")


async def test_errors_fail_the_task() -> None:
    class Crash(Base):
        async def run_task(self, params: Any) -> None:
            raise RuntimeError("secret 42")

    turn = await testing.run(wrap(Crash, "x"), "hi")
    assert (turn.state, turn.message.text) == ("failed", "The agent failed.")


async def test_cancel() -> None:
    canceled = []

    class Sleep(Base):
        async def run_task(self, params: Any) -> None:
            await self.publish_artifact(params["id"], params["context_id"], self.build_artifacts("working")[0])
            await asyncio.sleep(3600)

        async def cancel_task(self, params: Any) -> None:
            canceled.append(params["id"])

    task = testing.Task(wrap(Sleep, "x"))
    running = task.begin("hi")
    await running.until(lambda events: events)
    running.cancel()
    turn = await running.finish()
    assert (turn.state, turn.text, canceled) == ("canceled", "working", [task.id])


async def test_the_example() -> None:
    task = testing.Task(load("adapters/fasta2a_poet.py"))
    turn = await task.send("Write a poem")
    assert (turn.state, turn.message.text) == ("input-required", "About what?")
    turn = await task.answer("moon")
    assert (turn.state, turn.text) == ("completed", "O moon,\nO moon!")


async def test_no_caller_and_no_agent_reads_the_memory_of_another() -> None:
    remembered: dict[str, list[str]] = {}

    class Remember(Base):
        async def run_task(self, params: Any) -> None:
            kept = await self.storage.load_context(params["context_id"]) or []
            told = remembered.setdefault(params["context_id"], kept)
            told.append(params["message"]["parts"][0]["text"])
            await self.storage.update_context(params["context_id"], told)
            assert params["id"] not in remembered
            remembered[params["id"]] = told
            await self.storage.update_task(params["id"], "completed", self.build_artifacts(" ".join(told)))

    await callers.check(lambda name: wrap(Remember, name), shared=True)
