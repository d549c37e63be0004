"""The worker against a scripted server."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast_agent as hf
from conftest import Start
from holdfast_agent import Agent, Run, SyncRun
from holdfast_agent._link import Backoff
from holdfast_agent._logs import RunLogger
from holdfast_agent._outbox import Outbox
from holdfast_agent._pulse import Pulse
from server import LIMIT, Answer, Cut, Request, RunOf, Server, document_of

CLAIMS, BEAT, RELEASE, EVENTS = "/worker/v1/claims", "/worker/v1/heartbeat", "/worker/v1/release", "/run/v1/events"


def hello() -> Agent:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text(f"Hello, {run.message.text}!")

    return agent


def stream(n: int, size: int = 8) -> Agent:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        for i in range(n):
            await run.text(f"{i:0{size}d}")

    return agent


def numbers(n: int, size: int = 8) -> str:
    return "".join(f"{i:0{size}d}" for i in range(n))


def sleeper(log: list[str]) -> Agent:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        log.append("begun")
        try:
            await run.text("working")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.append(f"{run.stop_reason} {run.cancel_metadata.get('why', '')}".strip())
            await run.text(" bye")
            raise

    return agent


async def test_hello(server: Server, start: Start) -> None:
    start(hello(), api_key="k-1", name="box", version="v1")
    run = await server.add("world")
    await server.until(lambda: run.ended)
    assert run.events == [{"type": "text", "text": "Hello, world!"}, {"type": "complete"}]
    claim = server.of(CLAIMS)[0]
    assert claim.bearer == "k-1"
    assert claim.doc["worker"]["name"] == "box"
    assert claim.doc["worker"]["version"] == "v1"
    assert claim.doc["worker"]["sdk"].startswith("holdfast-agent/")
    assert claim.doc["agents"] == [{"name": "hello", "slots": 10}]
    assert server.of(EVENTS)[0].bearer == run.token


async def test_sync_form(server: Server, start: Start) -> None:
    agent = Agent("hello")
    loop_thread = threading.get_ident()

    @agent.run
    def answer(run: SyncRun) -> None:
        assert threading.get_ident() != loop_thread
        for i in range(3):
            run.text(str(i))
        run.flush()
        run.set_state({"n": 1})
        assert run.get_state().version == 1
        run.complete("Bye.")
        with pytest.raises(hf.Ended, match="'complete'"):
            run.text("more")

    start(agent)
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == "012"
    assert run.events[-1] == {"type": "complete", "message": "Bye."}


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_cuts_double_nothing(server: Server, start: Start, after: bool) -> None:
    for _ in range(3):
        server.cut(EVENTS, after=after)
    start(stream(2000))
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == numbers(2000)
    assert [r.query["from"] for r in server.of(EVENTS)][:2] == ["0", "0"]


async def test_ordinal_conflict_goes_on_at_next(server: Server, start: Start) -> None:
    async def stored(request: Request) -> Answer:
        # Two of the events are stored, by an upload whose answer was lost.
        run = next(iter(server.runs.values()))
        run.events += request.events[:2]
        return Answer({"title": "x", "status": 409, "reason": "ordinal", "next": 2}, 409)

    server.hook(EVENTS, stored)
    start(stream(50))
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == numbers(50)


async def test_lost_events_release_the_run(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("one")
        await run.flush()
        server.answer(EVENTS, 409, reason="ordinal", next=0)
        await run.text("two")
        await asyncio.sleep(3600)

    start(agent)
    run = await server.add()
    await server.until(lambda: run.released == 1)
    assert run.text == "one"
    assert len(server.of(EVENTS)) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_passing_refusals_are_retried(server: Server, start: Start, status: int) -> None:
    server.answer(CLAIMS, status)
    server.answer(BEAT, status)
    server.answer(EVENTS, status)
    start(stream(20))
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == numbers(20)


async def test_retry_after_is_respected(server: Server, start: Start) -> None:
    times: list[float] = []

    async def busy(request: Request) -> Answer:
        times.append(time.monotonic())
        return Answer({"title": "busy", "status": 503}, 503, {"Retry-After": "1"})

    async def note(request: Request) -> None:
        times.append(time.monotonic())

    server.hook(EVENTS, busy)
    server.hook(EVENTS, note)
    start(hello())
    run = await server.add()
    await server.until(lambda: run.ended)
    assert times[1] - times[0] >= 1


async def test_410_stops_the_agent(server: Server, start: Start) -> None:
    log: list[str] = []
    start(sleeper(log))
    run = await server.add()
    await server.until(lambda: run.text == "working")
    server.answer(EVENTS, 410, reason="over")
    agent = Agent("other")

    # The next event gets 410: the agent is stopped, and nothing is posted or released.
    assert agent.concurrency is None
    await server.stop(run, "canceled")
    await server.until(lambda: len(server.of(EVENTS)) == 2)
    assert log[-1].startswith("canceled")
    other = await server.add()
    await server.until(lambda: other.text == "working")
    assert run.released == 0
    assert run.text == "working"


async def test_a_stopped_run_posts_nothing(server: Server, start: Start) -> None:
    stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("one")
        await run.flush()
        server.answer(EVENTS, 410, reason="over")
        try:
            while True:
                await run.text("more")
                await asyncio.sleep(0.01)
        except BaseException as e:
            stopped.set_result(f"{type(e).__name__} {run.stop_reason}")
            raise

    start(agent)
    run = await server.add()
    assert await asyncio.wait_for(stopped, LIMIT) in ("Stopped over", "CancelledError over")
    await server.add()
    await server.until(lambda: len(server.runs) == 2)
    assert run.events == [{"type": "text", "text": "one"}]
    assert run.released == 0


@pytest.mark.parametrize("stop", ["lost", "over"])
async def test_lost_runs_are_forgotten(server: Server, start: Start, stop: str) -> None:
    log: list[str] = []
    start(sleeper(log), concurrency=1)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.stop(run, stop)
    await server.until(lambda: len(log) == 2)
    assert log[1] == stop
    other = await server.add()
    await server.until(lambda: other.text == "working")
    beats = len(server.of(BEAT))
    await server.until(lambda: len(server.of(BEAT)) > beats)
    assert server.of(BEAT)[-1].doc["runs"] == [other.id]
    assert run.text == "working"
    assert run.released == 0


async def test_cancel_has_metadata_and_is_released(server: Server, start: Start) -> None:
    log: list[str] = []
    start(sleeper(log))
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.stop(run, "canceled", {"why": "changed my mind"})
    await server.until(lambda: run.released == 1)
    assert log == ["begun", "canceled changed my mind"]
    assert run.kinds == ["text", "text"]
    assert run.text == "working bye"
    assert any(run.id in r.doc["stopping"] for r in server.of(BEAT)) or run.released


async def test_cancel_of_a_sync_run(server: Server, start: Start) -> None:
    agent = Agent("hello")
    seen: list[Any] = []

    @agent.run
    def answer(run: SyncRun) -> None:
        run.text("working")
        run.stopped.wait(60)
        seen.append((run.canceled, run.cancel_metadata))
        run.check()

    start(agent)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.stop(run, "canceled", {"why": "x"})
    await server.until(lambda: run.released == 1)
    assert seen == [(True, {"why": "x"})]
    assert not run.ended


async def test_an_explicit_end_after_a_cancel_counts(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        try:
            await run.text("working")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await run.complete("Done already.")

    start(agent)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.stop(run, "canceled")
    await server.until(lambda: run.ended)
    assert run.events[-1] == {"type": "complete", "message": "Done already."}
    assert run.released == 0


async def test_a_run_that_comes_twice_runs_once(server: Server, start: Start) -> None:
    log: list[str] = []
    start(sleeper(log))
    run = await server.add()
    await server.until(lambda: run.text == "working")

    async def again(request: Request) -> Answer:
        return Answer({"runs": [{"id": run.id, "run": run.document, "lease": 6}]})

    claims = len(server.of(CLAIMS))
    server.hook(CLAIMS, again)
    server.hook(CLAIMS, again)
    await server.drain("replica")  # ends the claim that waits
    await server.until(lambda: len(server.of(CLAIMS)) >= claims + 3)
    assert log == ["begun"]
    assert server.of(CLAIMS)[-1].doc["running"] == [run.id]


async def test_a_claim_whose_answer_is_cut_is_repeated(server: Server, start: Start) -> None:
    server.cut(CLAIMS, after=True)
    run = await server.add()
    start(hello())
    await server.until(lambda: run.ended)
    assert run.delivered == 2
    assert run.text == "Hello, hi!"


async def test_slots(server: Server, start: Start) -> None:
    agent, other = sleeper([]), Agent("other", concurrency=1)

    @other.run
    async def answer(run: Run) -> None:
        await run.text("other")

    start(agent, other, concurrency=2)
    runs = [await server.add() for _ in range(4)]
    await server.until(lambda: sum(r.text == "working" for r in runs) == 2)
    await server.until(
        lambda: server.of(CLAIMS)[-1].doc["agents"] == [{"name": "hello", "slots": 0}, {"name": "other", "slots": 1}]
    )
    mine = await server.add(agent="other")
    await server.until(lambda: mine.ended)
    # A claim that waits for the other agent is repeated when this one has a free slot.
    done = next(r for r in runs if r.text)
    await server.stop(done, "canceled")
    await server.until(lambda: sum(r.text == "working" for r in runs) == 2 and done.released == 1)
    assert max(len(r.doc["runs"]) for r in server.of(BEAT)) <= 3


async def test_heartbeats_pause_when_the_server_does_not_wait(server: Server, start: Start) -> None:
    times: list[float] = []

    async def at_once(request: Request) -> Answer:
        times.append(time.monotonic())
        return Answer({"lease": server.lease})

    server.lease = 120
    for _ in range(100):
        server.hook(BEAT, at_once)
    start(sleeper([]))
    await server.add()
    await server.until(lambda: len(times) >= 4)
    # The first heartbeat of a run does not wait. After each of the next two, the worker pauses for a second.
    assert times[3] - times[0] > 1.9


async def test_a_pause_of_heartbeats_ends_with_a_new_run(server: Server, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    paused, here = asyncio.Event(), asyncio.get_running_loop()
    pause = Pulse._pause

    async def long(self: Pulse, seconds: float, *, until_fresh: bool = False) -> None:
        here.call_soon_threadsafe(paused.set)
        await pause(self, 3600, until_fresh=until_fresh)

    async def at_once(request: Request) -> Answer:
        return Answer({"lease": 120})

    monkeypatch.setattr(Pulse, "_pause", long)
    server.lease = 120
    for _ in range(2):
        server.hook(BEAT, at_once)
    start(sleeper([]))
    await server.add()
    await asyncio.wait_for(paused.wait(), LIMIT)
    other = await server.add()
    await server.until(lambda: any(other.id in r.doc["runs"] for r in server.of(BEAT)))


def strange(server: Server, why: str) -> RunOf:
    """The next claim gets a run that the worker cannot execute."""
    run = document_of("hi", "other" if why == "unknown agent" else "hello")
    if why == "no task":
        del run.document["task"]
    if why == "odd message":
        run.document["message"] = "hi"
    server.runs[run.id] = run
    return run


@pytest.mark.parametrize("why", ["unknown agent", "no task", "odd message"])
async def test_a_strange_run_is_kept_until_the_drain(server: Server, start: Start, why: str) -> None:
    """The server would give it to this worker again at once."""
    odd = strange(server, why)
    running = start(hello(), concurrency=1)
    await server.until(lambda: any(odd.id in r.doc["runs"] for r in server.of(BEAT)))
    run = await server.add()
    await server.until(lambda: run.ended)
    await server.until(lambda: odd.id in server.of(CLAIMS)[-1].doc["running"])
    assert server.of(CLAIMS)[-1].doc["agents"] == [{"name": "hello", "slots": 1}]
    running.worker.drain()
    await running.ended()
    assert (odd.delivered, odd.released) == (1, 1)


async def test_a_strange_run_is_released_after_a_pause(server: Server, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_agent._worker.STRANGE_PAUSE", 1.0)
    odd = strange(server, "unknown agent")
    began = time.monotonic()
    start(hello())
    await server.until(lambda: odd.released)
    assert time.monotonic() - began > 0.9
    run = await server.add()
    await server.until(lambda: run.ended)


async def test_a_strange_run_that_is_lost_is_forgotten(server: Server, start: Start) -> None:
    odd = strange(server, "no task")
    running = start(hello())
    await server.until(lambda: any(odd.id in r.doc["runs"] for r in server.of(BEAT)))
    await server.stop(odd, "lost")
    while odd.id in server.of(CLAIMS)[-1].doc["running"]:  # a claim that waits was sent before the stop
        await server.add()
        await server.until(lambda: all(r.ended for r in server.runs.values() if r is not odd) and not server.queue)
    running.worker.drain()
    await running.ended()
    assert odd.released == 0


async def test_many_strange_runs_take_slots(server: Server, start: Start) -> None:
    """A worker that can read no run does not claim the whole queue."""
    odd = [strange(server, "odd message") for _ in range(3)]
    other = Agent("other")
    other.run(lambda run: None)
    start(hello(), other, concurrency=2)
    await server.until(lambda: server.requests and set(server.of(CLAIMS)[-1].doc["running"]) == {r.id for r in odd})
    assert server.of(CLAIMS)[-1].doc["agents"] == [{"name": "hello", "slots": 1}, {"name": "other", "slots": 2}]


async def test_addresses_show_no_password(server: Server, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.cut(CLAIMS)
    start(hello(), url=server.url.replace("//", "//ann:pass%40word@"))
    run = await server.add()
    await server.until(lambda: run.ended)
    assert server.of(CLAIMS)[-1].headers["authorization"] == "Basic " + base64.b64encode(b"ann:pass@word").decode()
    assert server.of(EVENTS)[-1].bearer == run.token
    texts = "".join(f"{r.getMessage()} {r.__dict__}" for r in caplog.records)
    assert "cannot claim runs" in texts
    assert server.url in texts
    assert not any(word in texts for word in ("pass%40word", "pass@word", "ann:"))


async def test_drain_of_a_replica(server: Server, start: Start) -> None:
    log: list[str] = []
    start(sleeper(log))
    run = await server.add()
    await server.until(lambda: run.text == "working")
    before = {r.connection for r in server.of(CLAIMS)}
    await server.drain("replica")
    await server.until(lambda: any(r.connection not in before for r in server.of(CLAIMS)))
    other = await server.add()
    await server.until(lambda: other.text == "working")
    assert log == ["begun", "begun"]
    assert run.released == 0


async def test_drain_of_the_worker(server: Server, start: Start) -> None:
    finish = asyncio.Event()
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("working")
        await finish.wait()

    running = start(agent, drain_timeout=0)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.drain("worker")
    await server.until(lambda: not server.drains)
    later = await server.add()
    beats = len(server.of(BEAT))
    await server.until(lambda: len(server.of(BEAT)) > beats)  # the lease is renewed meanwhile
    finish.set()
    await running.ended()
    assert run.kinds == ["text", "complete"]
    assert later.delivered == 0


async def test_a_retired_worker_drains(server: Server, start: Start) -> None:
    running = start(sleeper([]), drain_timeout=0)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    await server.drain("worker")
    await server.until(lambda: not server.drains)
    running.worker.drain()
    await running.ended()
    assert run.released == 1


async def test_a_wake_up_reaches_who_began_to_wait(start: Start) -> None:
    running = start(sleeper([]))
    sleepers = [running.worker._sleeper()]
    running.worker._wake()
    sleepers.append(running.worker._sleeper())
    assert [s.done() for s in sleepers] == [True, False]
    running.worker._wake()
    await asyncio.gather(*sleepers)


async def test_drain_finishes_and_releases_the_rest(server: Server, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = asyncio.Event()
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("working")
        if run.message.text == "short":
            await finish.wait()
            return
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await run.checkpoint({"reason": run.stop_reason})
            raise

    monkeypatch.setattr("holdfast_agent._worker.STOP_GRACE", LIMIT)
    running = start(agent, drain_timeout=3)
    short, long = await server.add("short"), await server.add("long")
    await server.until(lambda: short.text == long.text == "working")
    running.worker.drain()
    finish.set()
    await running.ended()
    assert short.kinds == ["text", "complete"]
    assert long.kinds == ["text", "checkpoint"]
    assert long.events[-1]["data"] == {"reason": "released"}
    assert (short.released, long.released) == (0, 1)


async def test_stop_releases_at_once(server: Server, start: Start) -> None:
    agent = Agent("hello")
    never = threading.Event()

    @agent.run
    def answer(run: SyncRun) -> None:
        run.text("working")
        never.wait(60)

    running = start(agent)
    run = await server.add()
    await server.until(lambda: run.text == "working")
    running.worker.drain()
    running.worker.stop()
    await running.ended()
    never.set()
    assert run.released == 1
    assert run.kinds == ["text"]


async def test_connect_is_canceled(server: Server) -> None:
    log: list[str] = []
    task = asyncio.create_task(sleeper(log).connect(url=server.url))
    run = await server.add()
    await server.until(lambda: run.text == "working")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.released == 1
    assert log == ["begun", "released"]


async def test_unknown_version_ends_the_worker(server: Server, start: Start) -> None:
    server.answer(CLAIMS, 404, reason="version", versions=["2", "3"])
    running = start(hello())
    with pytest.raises(hf.ConnectError, match="version 1 of the worker protocol, but 2, 3"):
        await running.ended()


async def test_credential_file_is_read_for_each_request(server: Server, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")
    server.answer(CLAIMS, 401, reason="unauthenticated")
    start(hello(), api_key_file=file)
    await server.until(lambda: len(server.of(CLAIMS)) >= 1)
    file.write_text("new\n")
    run = await server.add()
    await server.until(lambda: run.ended)
    assert server.of(CLAIMS)[0].bearer == "old"
    assert server.of(CLAIMS)[-1].bearer == "new"
    assert all(r.bearer == run.token for r in server.of(EVENTS))


async def test_errors_end_the_run(server: Server, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.text("x")
        raise {
            "fail": hf.Fail("Out of paper."),
            "reject": hf.Reject("Not me."),
            "retry": hf.Retry("busy", after=3),
            "crash": RuntimeError("secret 42"),
            "exit": SystemExit(3),
        }[run.message.text]

    start(agent)
    runs = {word: await server.add(word) for word in ("fail", "reject", "retry", "crash", "exit")}
    await server.until(lambda: all(r.ended for r in runs.values()))
    ends = {word: dict(r.events[-1]) for word, r in runs.items()}
    raised = {word: (e["type"], e["message"]) for word, end in ends.items() if (e := end.pop("error", None))}
    assert raised == {
        "crash": ("RuntimeError", "secret 42"),
        "exit": ("RuntimeError", "the agent's code raised SystemExit(3)"),
    }
    assert ends == {
        "fail": {"type": "fail", "message": "Out of paper."},
        "reject": {"type": "reject", "message": "Not me."},
        "retry": {"type": "retry", "reason": "busy", "after": 3},
        "crash": {"type": "fail", "message": "The agent failed."},
        "exit": {"type": "fail", "message": "The agent failed."},
    }
    while caplog.text.count("run ended") < 5:
        await asyncio.sleep(0)
    logged = [(r.levelname, r.getMessage(), r.__dict__.get("outcome")) for r in caplog.records if r.__dict__.get("run")]
    assert logged.count(("INFO", "run began", None)) == 5
    assert logged.count(("ERROR", "the agent failed", None)) == 3
    assert logged.count(("INFO", "the agent asks for a retry", None)) == 1
    ended = [(level, outcome) for level, text, outcome in logged if text == "run ended"]
    assert sorted(ended) == [("INFO", o) for o in ("failed", "failed", "failed", "rejected", "retried")]
    record = next(r for r in caplog.records if r.exc_info and "secret 42" in str(r.exc_info[1]))
    assert record.__dict__["task_id"] == runs["crash"].document["task"]["id"]
    assert record.__dict__["run"] == runs["crash"].id
    assert record.__dict__["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_httpx_logs_only_the_requests_of_the_program(server: Server, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        await run.flush()
        async with httpx.AsyncClient() as client:
            await client.get(server.url + "/mine")

    start(agent)
    run = await server.add()
    await server.until(lambda: run.ended)
    assert {r.name.partition(".")[0] for r in caplog.records} >= {"httpx", "httpcore"}
    assert all("/mine" in r.getMessage() for r in caplog.records if r.name == "httpx")


async def test_a_refused_event_fails_the_run(server: Server, start: Start) -> None:
    server.answer(EVENTS, 400, reason="invalid", field="text", detail="too odd", next=0, line=1)
    start(hello())
    run = await server.add()
    await server.until(lambda: run.ended)
    (end,) = run.events
    assert (end["message"], end["error"]["type"]) == ("The agent failed.", "EventRefused")
    assert "too odd" in end["error"]["message"]


async def test_the_agent_learns_of_a_refused_event(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        server.answer(EVENTS, 413, reason="too_large", detail="16 MiB at most")
        await run.text("big")
        with pytest.raises(hf.EventRefused, match="16 MiB at most"):
            await run.flush()
        await run.text("small")

    start(agent)
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.events == [{"type": "text", "text": "small"}, {"type": "complete"}]


async def test_what_is_too_large_is_refused_by_its_own_call(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    def answer(run: SyncRun) -> None:
        with pytest.raises(hf.EventRefused, match=r"'artifact'.* has 4\d\d\d bytes; the limit is 4000 \(limits.max_event\)"):
            run.artifact(hf.file(b"x" * 3000))
        with pytest.raises(hf.Problem, match=r"the state has 12 bytes; the limit is 10 \(limits.max_state\)"):
            run.set_state("x" * 10)
        run.text("x" * 4000)

    start(agent)
    run = await server.add(limits={"event": 4000, "state": 10})
    await server.until(lambda: run.events)
    assert run.events[0]["type"] == "fail"
    assert run.events[0]["error"]["place"].startswith("test_worker.py:")


@pytest.mark.parametrize("stored", [0, 1])
async def test_an_upload_that_breaks_at_a_living_server_is_given_up(
    stored: int, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Backoff, "pause", lambda *_: 0.0)
    tries = 0

    async def post(ordinal: int, lines: bytes) -> Any:
        nonlocal tries
        if not lines:
            return {"next": ordinal + stored}
        tries += 1
        raise hf.Unreachable("reset")

    outbox = Outbox(post, lambda reason: None, RunLogger(logging.getLogger("test"), {}), lambda: tries // 5)
    upload = asyncio.create_task(outbox.upload())
    await outbox.put("artifact", b"x" * 300_000)
    if stored:  # only its answers were lost
        await outbox.flush()
    else:
        with pytest.raises(hf.EventRefused, match="broke 5 times, while the server answered heartbeats: reset"):
            await outbox.flush()
    assert (tries, [r.__dict__["failures"] for r in caplog.records]) == (25, [1, 11, 21])
    outbox.close(hf.Stopped())
    await upload


async def test_state(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        assert run.state() == hf.State({"n": 1}, 4)
        server.states["task"] = ({"n": 1}, 4)
        with pytest.raises(hf.StateChanged):
            await run.set_state({"n": 2}, version=3)
        server.cut("/run/v1/state/task", after=True)
        assert await run.set_state({"n": 2}, version=4) == 5  # stored, and repeated after a cut
        server.states["task"] = ({"n": 9}, 7)
        server.cut("/run/v1/state/task")
        with pytest.raises(hf.StateChanged):
            await run.set_state({"n": 2}, version=5)
        assert await run.get_state("context") == hf.State(None, 0)
        assert await run.set_state([1], "context", version=0) == 1
        with pytest.raises(ValueError, match="scope"):
            await run.get_state("tsak")  # type: ignore[arg-type]

    start(agent)
    run = await server.add(state={"task": {"data": {"n": 1}, "version": 4}})
    await server.until(lambda: run.ended)
    assert run.kinds == ["complete"]


async def test_reads(server: Server, start: Start) -> None:
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        history = await run.read_history("context", count=5)
        assert [s.text for s in history.entries] == ["before"]
        assert [a.id for a in await run.read_artifacts()] == ["a", "b"]
        assert (await run.read_artifact("a/b ä")).text == "abc"
        with pytest.raises(hf.NotFound):
            await run.read_task("t-2")

    start(agent)
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.kinds == ["complete"]
    assert server.of("/run/v1/history")[0].query == {"scope": "context", "count": "5"}


async def test_back_pressure(server: Server, start: Start) -> None:
    """While the server takes nothing, the agent waits, and the worker holds about a mebibyte."""
    blocked = asyncio.Event()
    sent = 0
    agent = Agent("hello")

    @agent.run
    async def answer(run: Run) -> None:
        nonlocal sent
        for _ in range(1000):
            await run.text("x" * 10_000)
            sent += 1

    async def slow(request: Request) -> None:
        await blocked.wait()

    server.hook(EVENTS, slow)
    start(agent)
    run = await server.add()
    await server.until(lambda: len(server.of(EVENTS)) == 1)
    before = -1
    while before != sent:  # until the agent stands still
        before = sent
        await asyncio.sleep(0.2)
    assert 50 < sent < 110
    blocked.set()
    await server.until(lambda: run.ended)
    assert len(run.text) == 10_000_000


async def test_a_blocked_loop_keeps_its_lease(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has a thread of its own here, because the agent blocks the loop of the test."""
    monkeypatch.setattr("holdfast_agent._pulse.BLOCKED", 0.5)
    ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
    here = asyncio.get_running_loop()
    end = threading.Event()

    async def other() -> None:
        async with Server(lease=2) as server:
            run = await server.add()
            here.call_soon_threadsafe(ready.set_result, server)
            while not end.is_set():
                await asyncio.sleep(0.05)
            assert run.kinds == ["text", "complete"]

    failures: list[BaseException] = []

    def body() -> None:
        try:
            asyncio.run(other())
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=body)
    thread.start()
    server = await ready
    done = asyncio.Event()
    beats, warned = 0, False
    agent = Agent("hello")

    def blocked() -> bool:
        """The warning shows where the code is."""
        return any("the event loop is blocked" in r.getMessage() and "in answer" in r.getMessage() for r in list(caplog.records))

    @agent.run
    async def answer(run: Run) -> None:
        nonlocal beats, warned
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit and not (len(server.of(BEAT)) >= 4 and blocked()):
            time.sleep(0.05)  # noqa: ASYNC251
        beats, warned = len(server.of(BEAT)), blocked()
        await run.text("done")
        await run.complete()
        done.set()

    start(agent, url=server.url)
    await asyncio.wait_for(done.wait(), 2 * LIMIT)
    end.set()
    thread.join(LIMIT)
    assert not failures
    assert beats >= 4
    assert warned


async def test_a_server_that_is_away(start: Start, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def cut(request: Request) -> Answer:
        raise Cut

    for path in (CLAIMS, BEAT, EVENTS):
        for _ in range(3):
            server.hook(path, cut)
    start(stream(10))
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == numbers(10)
    assert any("cannot claim runs" in r.message and r.levelno == logging.WARNING for r in caplog.records)


async def test_many_runs(server: Server, start: Start) -> None:
    start(stream(30), concurrency=20)
    runs = [await server.add() for _ in range(200)]
    await server.until(lambda: all(r.ended for r in runs))
    assert {r.text for r in runs} == {numbers(30)}
    assert all(r.kinds == ["text"] * 30 + ["complete"] for r in runs)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"url": "localhost:8080"}, "url: 'localhost:8080' is no address"),
        ({"url": ""}, "url: no address"),
        ({"url": "ann:word@box:8080"}, "url: 'box:8080' is no address"),
        ({"url": "https://ann:pa/ss@box:8080"}, "url: 'https://box:8080' is no address"),
        ({"url": "http://:80"}, "url: 'http://:80' is no address"),
        ({"concurrency": 0}, "concurrency: 0 is not a whole number from 1 to 1000"),
        ({"drain_timeout": -1}, "drain_timeout: -1 is negative"),
        ({"api_key_file": "/does/not/exist"}, "api_key_file"),
    ],
)
def test_wrong_settings(options: dict[str, Any], want: str) -> None:
    with pytest.raises(hf.ConnectError, match=want):
        hf.worker(hello(), **options)


def test_names() -> None:
    with pytest.raises(hf.ConnectError, match="two of them are named 'hello'"):
        hf.worker(hello(), hello())
    with pytest.raises(hf.ConnectError, match="no name"):
        hf.worker(Agent())
    with pytest.raises(hf.ConnectError, match="no function"):
        hf.worker(Agent("x"))


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t-1")
    monkeypatch.setenv("HOLDFAST_URL", "http://a:1/, http://b:2")
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("HOLDFAST_AGENT", "env")
    agent = Agent()
    agent.run(lambda run: None)
    made = hf.worker(agent)
    assert made._settings.urls == ["http://a:1", "http://b:2"]
    assert made._settings.credential() == "t-1"
    assert list(made._handlers) == ["env"]
    assert hf.worker(agent, url="http://c:3", api_key="k")._settings.credential() == "k"
