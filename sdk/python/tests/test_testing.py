"""Agents without a server."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import holdfast_agent as hf
from holdfast_agent import Agent, Call, Resume, Run, SyncRun, testing


async def test_text_and_artifacts() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        await run.progress("Half way.", metadata={"percent": 50})
        await run.text("a")
        await run.text("b", last=True)
        await run.text("c", name="other")
        await run.artifact(hf.data({"n": 12345678901234567890}), hf.file(b"\x00\xff", filename="f"), name="files", id="f-1")
        await run.artifact("more", id="f-1", append=True, last=True)
        await run.artifact(hf.Artifact([hf.url("https://a.example/f.pdf", media_type="application/pdf")], name="link"))

    turn = await testing.run(agent, "hi")
    assert turn.state == "completed"
    assert [m.text for m in turn.progress] == ["Half way."]
    assert [(a.name, a.text) for a in turn.artifacts] == [(None, "ab"), ("other", "c"), ("files", "more"), ("link", "")]
    assert [a.id for a in turn.artifacts] == ["text-1", "other-1", "f-1", "artifact-1-1"]
    assert turn.artifacts[2].parts[0].data == {"n": 12345678901234567890}
    assert turn.artifacts[2].parts[1].raw == b"\x00\xff"
    assert turn.events[0] == {"type": "status", "message": "Half way.", "metadata": {"percent": 50}}
    assert turn.events[-2]["artifact"]["parts"] == [{"url": "https://a.example/f.pdf", "mediaType": "application/pdf"}]


async def test_question_and_history() -> None:
    agent = Agent("trip")

    @agent.run
    async def answer(run: Run) -> None:
        if run.turn == 1:
            await run.ask(["Where to?", hf.data({"options": ["Oslo"]})], metadata={"m": 1})
            return
        said = [(s.role, s.text, s.state) for s in run.history]
        assert said == [("user", "Book me a trip", None), ("agent", "Where to?", "input-required")]
        await run.text(f"{run.message.text} it is.")

    task = testing.Task(agent, metadata={"priority": 1})
    turn = await task.send("Book me a trip")
    assert (turn.state, turn.message.text, turn.message.data) == ("input-required", "Where to?", {"options": ["Oslo"]})
    turn = await task.answer("Oslo")
    assert (turn.state, turn.text) == ("completed", "Oslo it is.")


async def test_timer_calls_and_resume() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        if run.turn == 1:
            await run.wait(3600, interruptible=True)
        elif run.turn == 2:
            assert run.input is not None
            assert run.input.source == "timer"
            assert not run.message
            await run.call(Call("Oslo", agent="flights", id="fly", relay=True), Call("Oslo", agent="hotels"))
        elif run.turn == 3:
            assert [(r.id, r.state, r.text) for r in run.results] == [("fly", "completed", "DY 1303"), ("2", "rejected", "")]
            assert run.results[1].error == "a limit"
            assert run.resume_url
            await run.auth("Sign in.", resume=Resume(seconds=60, show=True))
        else:
            assert run.input is not None
            await run.text(f"{run.input.method} {run.input.data}")

    task = testing.Task(agent)
    turn = await task.send("hi")
    assert turn.end == {"type": "wait", "for": 3600, "interruptible": True}
    with pytest.raises(ValueError, match="with wait, not with call"):
        await task.results({})
    turn = await task.timer()
    assert [c["agent"] for c in turn.calls] == ["flights", "hotels"]
    with pytest.raises(ValueError, match="none for the call '2'"):
        await task.results({"fly": "DY 1303"})
    turn = await task.results({"fly": "DY 1303", "2": hf.Result("2", "rejected", error="a limit")})
    assert turn.state == "auth-required"
    assert turn.end["resume"] == {"for": 60, "show": True}
    turn = await task.resume({"ok": True})
    assert turn.text == "POST {'ok': True}"


async def test_retry_has_the_checkpoint() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        if run.tries == 1:
            await run.checkpoint({"page": 12})
            raise hf.Retry("busy", after=30)
        await run.text(f"try {run.tries} from page {run.last_checkpoint['page']}")

    task = testing.Task(agent)
    turn = await task.send("hi")
    assert (turn.end["reason"], turn.end["after"], turn.checkpoint) == ("busy", 30, {"page": 12})
    assert (await task.retry()).text == "try 2 from page 12"


async def test_a_checkpoint_keeps_the_text_before_it() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        for n in range(run.last_checkpoint or 0, 4):
            await run.text(f"step {n}. ")
            if n == run.tries:
                raise hf.Retry("before its checkpoint")
            await run.checkpoint(n + 1)
            if n == 2:
                raise hf.Retry("after its checkpoint")

    task = testing.Task(agent)
    assert (await task.send("hi")).text == "step 0. step 1. "
    for _ in range(2):
        assert (await task.retry()).text == "step 0. step 1. step 2. "
    assert (await task.retry()).text == "step 0. step 1. step 2. step 3. "


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_cancel(form: str) -> None:
    agent = Agent("x")
    seen: list[Any] = []

    async def in_loop(run: Run) -> None:
        await run.text("working")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append(run.cancel_metadata)
            raise

    def in_thread(run: SyncRun) -> None:
        run.text("working")
        run.stopped.wait(60)
        seen.append(run.cancel_metadata)

    agent.run(in_loop if form == "async" else in_thread)
    running = testing.Task(agent).begin("hi")
    await running.until(lambda events: events)
    running.cancel({"why": "x"})
    turn = await running.finish()
    assert (turn.state, turn.text, seen) == ("canceled", "working", [{"why": "x"}])


async def test_state() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        n = (run.state("context").data or 0) + 1
        assert await run.set_state(n, "context", version=run.state("context").version) == n
        await run.text(str(n))

    task = testing.Task(agent)
    assert [(await task.send("hi")).text for _ in range(3)] == ["1", "2", "3"]


async def test_ends() -> None:
    async def end(run: Run) -> None:
        word = run.message.text
        if word == "until":
            await run.wait(until=datetime.now(timezone.utc) + timedelta(hours=1))
        else:
            await {"reply": run.reply, "reject": run.reject, "fail": run.fail, "complete": run.complete}[word]("Bye.")
        with pytest.raises(hf.Ended):
            await run.text("more")

    agent = Agent("x")
    agent.run(end)
    states = {w: (await testing.run(agent, w)).state for w in ("reply", "reject", "fail", "complete", "until")}
    assert states == {
        "reply": "replied",
        "reject": "rejected",
        "fail": "failed",
        "complete": "completed",
        "until": "working",
    }


@pytest.mark.parametrize(
    ("wrong", "want"),
    [
        (lambda run: run.text(3), "text is a str, not int"),
        (lambda run: run.artifact({"a": 1}), r"a part is a str or a Part, not dict; data\(value\)"),
        (lambda run: run.artifact(), "artifact.parts: an artifact needs at least one part"),
        (lambda run: run.artifact(hf.Part(text="a", url="b")), "exactly one of text, raw, url and data"),
        (lambda run: run.artifact("x", append=True), "append needs the id"),
        (lambda run: run.ask([]), "message.parts: a message needs at least one part"),
        (lambda run: run.ask(3), "a message is a str"),
        (lambda run: run.wait(), "either seconds or until"),
        (lambda run: run.wait(0), "wait: 0 is not a number of seconds above 0"),
        (lambda run: run.wait(until=datetime(2026, 3, 1)), "until needs a time zone"),
        (lambda run: run.call(), "at least one Call"),
        (lambda run: run.call(Call("hi")), "either agent or task"),
        (lambda run: run.checkpoint({"a": {1, 2}}), "the event 'checkpoint' is not JSON"),
        (lambda run: run.checkpoint(float("nan")), "the event 'checkpoint' is not JSON"),
        (lambda run: run.status("x", metadata={"a": object()}), "the event 'status' is not JSON"),
    ],
)
async def test_wrong_emissions(wrong: Any, want: str) -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        with pytest.raises((TypeError, ValueError), match=want):
            await wrong(run)

    assert (await testing.run(agent, "hi")).events == [{"type": "complete"}]


async def test_half_a_surrogate_pair_passes() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("a\ud83d")

    assert (await testing.run(agent, "hi")).text == "a\ud83d"


async def test_times() -> None:
    agent = Agent("x")

    @agent.run
    async def answer(run: Run) -> None:
        assert run.deadline == datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)

    turn = await testing.run(agent, "hi", deadline="2026-03-01T12:00:00.123456789Z")
    assert turn.state == "completed"


async def test_what_a_function_returns_is_the_answer() -> None:
    agent = hf.Agent("x")

    @agent.run
    async def answer(run: hf.Run) -> Any:
        return {"text": "Hello", "part": hf.data({"n": 1}), "parts": ["a", hf.data(2)], "wrong": {"n": 1}}[run.message.text]

    turn = await testing.run(agent, "text")
    assert (turn.state, turn.text, turn.artifacts[0].id) == ("completed", "Hello", "text-1")
    turn = await testing.run(agent, "part")
    assert (turn.state, turn.artifacts[0].parts[0].data) == ("completed", {"n": 1})
    turn = await testing.run(agent, "parts")
    assert [p.text or p.data for p in turn.artifacts[0].parts] == ["a", 2]
    turn = await testing.run(agent, "wrong")
    assert turn.state == "failed"
    assert turn.end["error"]["type"] == "TypeError"
    sync = hf.Agent("y")

    @sync.run
    def say(run: hf.SyncRun) -> str:
        return "Hello"

    assert (await testing.run(sync, "x")).text == "Hello"


async def test_operators_read_what_was_raised() -> None:
    agent = hf.Agent("x")
    orders: dict[str, str] = {}

    @agent.run
    async def answer(run: hf.Run) -> None:
        try:
            orders[run.message.text]
        except KeyError as e:
            if run.message.text == "known":
                raise hf.Fail("There is no such order.") from e
            raise

    turn = await testing.run(agent, "o-7")
    assert turn.message.text == "The agent failed."
    error = turn.end["error"]
    assert (error["type"], error["message"]) == ("KeyError", "'o-7'")
    assert re.fullmatch(r"test_testing\.py:\d+", error["place"])
    assert "orders[run.message.text]" in error["trace"]
    assert "holdfast_agent" not in error["trace"]
    turn = await testing.run(agent, "known")
    assert (turn.message.text, turn.end["error"]["message"]) == ("There is no such order.", "'known'")


async def test_nothing_follows_the_end(caplog: pytest.LogCaptureFixture) -> None:
    agent = hf.Agent("x")

    @agent.run
    async def answer(run: hf.Run) -> None:
        await run.complete("Done.")
        await run.text("more")

    turn = await testing.run(agent, "x")
    assert (turn.state, turn.text) == ("completed", "")
    assert "after the end of the run" in caplog.text
    assert "not even 'text'" in caplog.text
