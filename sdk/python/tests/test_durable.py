"""Durable agents, without a server."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast_agent as hf
from holdfast_agent import Agent, DurableRun, testing


@dataclass
class Order:
    id: str
    total: int


@dataclass
class Approval:
    approved: bool


def make(function: Any) -> Agent:
    agent = Agent("x")
    agent.durable(function)
    return agent


def rewind(task: testing.Task, crashed: testing.Turn, records: list[Any], events: int) -> None:
    """Let a run have crashed when so many of its events were stored. `records` were there before it."""
    task.turns.pop()
    task.records, task._kept, task._earlier = list(records), [], {}
    turn = testing.Turn(number=crashed.number)
    for event in crashed.events[:events]:
        task._store(turn, event)


def comparable(end: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in end.items() if k != "until"}


class Shop:
    """The agent of the guide, and how often its steps ran."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.agent = make(self.refund)

    async def lookup(self, id: str) -> Order:
        self.ran["look up"] += 1
        return Order(id, 5)

    def pay_back(self, run: DurableRun, order: Order) -> Order:
        assert isinstance(order, Order)
        self.ran["refund"] += 1
        self.keys.add(run.idempotency_key)
        return order

    async def refund(self, run: DurableRun) -> str:
        await run.text("Looking. ")
        order = await run.step("look up", self.lookup, run.message.text)
        await run.status("Found.")
        await run.text("Found. ")
        answer = await run.ask(f"Refund {order.total}?", schema=Approval)
        if not answer.approved:
            return "Nothing was refunded."
        receipt = await run.step("refund", self.pay_back, run, order, retries=5)
        await run.text("Paid. ")
        await run.sleep(days=3)
        feedback, survey = await run.call(("feedback", order.id), ("survey", order.id))
        return f"Refunded {receipt.id}. {feedback.text} {survey.text}"

    async def turn(self, task: testing.Task, n: int) -> testing.Turn:
        if n == 1:
            return await task.send("o-7")
        if n == 2:
            return await task.send(hf.data({"approved": True}))
        return await (task.timer() if n == 3 else task.results({"feedback#1": "Good.", "survey#1": "Bad."}))


async def test_refund() -> None:
    shop = Shop()
    task = testing.Task(shop.agent)
    turn = await shop.turn(task, 1)
    assert (turn.state, turn.text, [m.text for m in turn.progress]) == ("input-required", "Looking. Found. ", ["Found."])
    assert turn.message.text == "Refund 5?"
    form = turn.message.data["requestedSchema"]
    assert form == {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    turn = await shop.turn(task, 2)
    assert (turn.end["type"], turn.text, turn.progress) == ("wait", "Paid. ", [])
    turn = await shop.turn(task, 3)
    assert [(c["id"], c["agent"]) for c in turn.calls] == [("feedback#1", "feedback"), ("survey#1", "survey")]
    turn = await shop.turn(task, 4)
    assert (turn.state, turn.text) == ("completed", "Refunded o-7. Good. Bad.")
    assert shop.ran == {"look up": 1, "refund": 1}
    assert shop.keys == {f"{task.key}/refund/1"}
    assert [(r["kind"], r["name"]) for r in task.records] == [
        ("message", "message"),
        ("step", "look up"),
        ("wait", "wait"),
        ("ask", "ask"),
        ("step", "refund"),
        ("wait", "wait"),
        ("sleep", "sleep"),
        ("wait", "wait"),
        ("call", "feedback"),
        ("call", "survey"),
    ]
    for n in range(len(task.records) + 1):
        await testing.replay(shop.agent, task.records[:n])


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_crash_after_each_event(at: int) -> None:
    for events in itertools.count():
        shop = Shop()
        task = testing.Task(shop.agent)
        for n in range(1, at):
            await shop.turn(task, n)
        before = list(task.records)
        whole = await shop.turn(task, at)
        if events == len(whole.events):
            break
        rewind(task, whole, before, events)
        recorded = {r["name"] for r in task.records if r["kind"] == "step"}
        ran = dict(shop.ran)
        again = await task.retry()
        assert comparable(again.end) == comparable(whole.end)
        assert again.text == whole.text
        for name, times in ran.items():
            assert shop.ran[name] == times + (name not in recorded)
        assert len(shop.keys) <= 1
        for n in range(at + 1, 5):
            await shop.turn(task, n)
        assert task.turns[-1].text == "Refunded o-7. Good. Bad."


async def test_a_no() -> None:
    shop = Shop()
    task = testing.Task(shop.agent)
    await shop.turn(task, 1)
    turn = await task.send(hf.data({"approved": "perhaps"}))
    assert turn.state == "input-required"
    assert turn.message.text == "The answer does not fit: 'perhaps' is not boolean\nRefund 5?"
    turn = await task.send("Never!")
    assert (turn.state, turn.text, shop.ran["refund"]) == ("completed", "Nothing was refunded.", 0)


async def test_questions_at_once_are_one_form() -> None:
    async def both(run: DurableRun) -> str:
        where, sure, note = await run.gather(
            run.ask("Where to?", name="city"), run.ask("Sure?", name="sure", schema=Approval), run.ask("And?", name="note")
        )
        return f"{where.text} {sure.approved} {note.text}"

    task = testing.Task(make(both))
    turn = await task.send("hi")
    assert turn.message.text == "Where to?\nSure?\nAnd?"
    assert turn.message.data["requestedSchema"]["properties"] == {
        "city": {"type": "string", "title": "Where to?"},
        "sure": {"type": "boolean", "title": "Sure?"},
        "note": {"type": "string", "title": "And?"},
    }
    turn = await task.send(hf.data({"city": "Oslo", "sure": True}))
    assert (turn.state, turn.message.text) == ("input-required", "And?")
    turn = await task.send("Nothing.")
    assert (turn.state, turn.text) == ("completed", "Oslo True Nothing.")
    task = testing.Task(make(both))
    await task.send("hi")
    turn = await task.send("Oslo\nyes\n\nNothing.\n")
    assert turn.text == "Oslo True Nothing."


async def test_branches_meet_their_own_records() -> None:
    order = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}

    async def fetch(item: str) -> str:
        await order[item].wait()
        following = {"c": "a", "a": "b"}.get(item)
        if following:
            order[following].set()
        return item

    async def save(item: str, got: str) -> str:
        assert item == got
        return item

    async def branch(run: DurableRun, item: str) -> str:
        got = await run.step("fetch", fetch, item)
        return str(await run.step("save", save, item, got))

    async def each(run: DurableRun) -> str:
        saved = await run.gather(*(branch(run, item) for item in "abc"))
        await run.ask("Go on?")
        return "".join(saved)

    task = testing.Task(make(each))
    order["c"].set()
    whole = await task.send("hi")
    assert [r["data"] for r in task.records if r["name"] == "fetch"] == ["c", "a", "b"]
    for events in range(len(whole.events)):
        rewind(task, whole, [], events)
        assert (await task.retry()).state == "input-required"
    assert (await task.send("yes")).text == "abc"


async def test_steps_at_once_stream_to_their_own_artifacts() -> None:
    async def write(run: DurableRun, name: str) -> str:
        await run.text(f"{name}1 ")
        for _ in range({"a": 90, "b": 30}[name]):  # b ends first
            await asyncio.sleep(0)
        await run.text(f"{name}2 ")
        return name

    async def pair(run: DurableRun) -> None:
        await run.text("Begin. ")
        await asyncio.gather(*(run.step("write", write, run, name) for name in "ab"))
        await run.text("End.")
        await run.ask("Well?")

    task = testing.Task(make(pair))
    want = {"text-1": "Begin. a1 a2 End.", "text-1-write-2": "b1 b2 "}
    whole = await task.send("hi")
    assert {a.id: a.text for a in whole.artifacts} == want
    first, second = (r for r in task.records if r["kind"] == "step")
    assert (first["nth"], first["emitted"], first["open"]) == (2, {}, ["text-1"])
    assert (second["nth"], second["emitted"], second.get("open")) == (1, {"text-1": 1}, None)
    for events in range(len(whole.events)):
        rewind(task, whole, [], events)
        again = await task.retry()
        assert again.state == "input-required"
        assert {a.id: a.text for a in again.artifacts} == want, f"after {events} events"
    turn = await task.send("well")
    assert (turn.state, turn.text) == ("completed", "")


async def test_errors_are_the_same_in_a_replay() -> None:
    ran: list[str] = []

    async def broken() -> None:
        ran.append("broken")
        raise KeyError("o-7")

    async def careful(run: DurableRun) -> str:
        try:
            await run.step("break", broken)
        except hf.StepFailed as e:
            await run.ask(f"{e.type}: go on?")
            return f"{e.step} {e.type} {e.message}"
        return "?"

    task = testing.Task(make(careful))
    assert (await task.send("hi")).message.text == "KeyError: go on?"
    assert (await task.send("yes")).text == "break KeyError 'o-7'"
    assert ran == ["broken"]
    error = task.records[1]["error"]
    assert error["place"].startswith("test_durable.py:")
    assert task.records[1]["tries"] == 1


async def test_an_error_that_nobody_catches_fails_the_task() -> None:
    async def broken(word: str) -> None:
        raise hf.Fail("There is no such order.") if word == "fail" else ValueError("no")

    async def careless(run: DurableRun) -> None:
        await run.step("break", broken, run.message.text, retries=9, backoff=0, final=ValueError)

    turn = await testing.run(make(careless), "fail")
    assert (turn.state, turn.message.text) == ("failed", "There is no such order.")
    turn = await testing.run(make(careless), "value")
    assert (turn.message.text, turn.end["error"]["type"]) == ("The agent failed.", "StepFailed")


async def test_retries() -> None:
    ran: list[str] = []

    async def flaky(run: DurableRun) -> int:
        ran.append(run.idempotency_key)
        if len(ran) < 3:
            raise OSError("away")
        return len(ran)

    async def patient(run: DurableRun) -> str:
        return str(await run.step("flaky", flaky, run, retries=2, backoff=0.001))

    task = testing.Task(make(patient))
    turn = await task.send("hi")
    assert (turn.text, len(set(ran))) == ("3", 1)
    assert task.records[-1]["tries"] == 3


async def test_long_pauses_end_the_run() -> None:
    ran: list[int] = []

    async def flaky() -> int:
        ran.append(1)
        if len(ran) < 3:
            raise OSError("away")
        return len(ran)

    async def patient(run: DurableRun) -> str:
        return str(await run.step("flaky", flaky, retries=2, backoff=30))

    task = testing.Task(make(patient))
    assert (await task.send("hi")).end["type"] == "wait"
    assert (await task.timer()).end["type"] == "wait"
    assert (await task.timer()).text == "3"
    assert task.records[-1]["tries"] == 3


async def test_a_timeout() -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    async def hurried(run: DurableRun) -> str:
        try:
            await run.step("slow", slow, timeout=0.001)
        except hf.StepFailed as e:
            return e.type
        return "?"

    assert (await testing.run(make(hurried), "hi")).text == "TimeoutError"


async def one() -> int:
    return 1


async def test_changed_code() -> None:
    async def old(run: DurableRun) -> None:
        await run.step("first", one)
        await run.step("second", one)
        await run.ask("Go on?")

    async def renamed(run: DurableRun) -> None:
        await run.step("first", one)
        await run.step("another", one)
        await run.ask("Go on?")

    async def shorter(run: DurableRun) -> None:
        await run.step("first", one)

    async def other_kind(run: DurableRun) -> None:
        await run.step("first", one)
        await run.ask("Go on?", name="second")

    async def longer(run: DurableRun) -> None:
        await run.step("first", one)
        await run.step("second", one)
        await run.step("third", one)
        await run.ask("Go on?")

    task = testing.Task(make(old))
    await task.send("hi")
    log = [{"seq": 1, "kind": "message", "payload": {"id": "m"}}, {"seq": 2, "kind": "status", "state": "working"}]
    log += [{"kind": "run", "payload": {"outcome": "record", "checkpoint": r}} for r in task.records]
    await testing.replay(task.agent, "\n".join(map(json.dumps, log)) + "\n")
    for code, want in [
        (renamed, r"the task has step 'second' \(1\) next, but the function has step 'another' \(1\) at test_durable\.py:\d+"),
        (shorter, r"step 'second' \(1\) next, but the function has ended"),
        (other_kind, r"step 'second' \(1\) next, but the function has ask 'second' \(1\)"),
        (longer, r"the task has wait for 'ask' \(1\) next, but the function has step 'third' \(1\)"),
    ]:
        with pytest.raises(hf.CodeChanged, match=want):
            await testing.replay(make(code), task.records)
    task.agent = make(renamed)
    turn = await task.send("yes")
    assert (turn.state, turn.end["error"]["type"]) == ("failed", "CodeChanged")


async def test_version() -> None:
    async def old(run: DurableRun) -> str:
        await run.step("first", one)
        await run.ask("Go on?")
        return "old"

    async def new(run: DurableRun) -> str:
        if await run.version("checks"):
            await run.step("check", one)
        await run.step("first", one)
        await run.ask("Go on?")
        return "new" if await run.version("words") else "old"

    task = testing.Task(make(old))
    await task.send("hi")
    await testing.replay(make(new), task.records)
    task.agent = make(new)
    assert (await task.send("yes")).text == "new"
    assert "check" not in {r["name"] for r in task.records}
    task = testing.Task(make(new))
    await task.send("hi")
    assert "check" in {r["name"] for r in task.records}
    assert (await task.send("yes")).text == "new"


async def test_cancel() -> None:
    done: list[str] = []

    async def note(word: str) -> None:
        done.append(word)

    async def forever(begun: asyncio.Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def slow(begun: asyncio.Event) -> None:
        begun.set()
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("slow")

    async def trip(run: DurableRun) -> None:
        try:
            await run.step("book", note, "book")
            if run.message.text == "shield":
                await run.shield(run.step("slow", slow, begun))
            else:
                await run.step("wait", forever, begun)
        except asyncio.CancelledError:
            await run.step("unbook", note, f"unbook {run.cancel_metadata['why']}")
            raise
        finally:
            done.append("finally")

    for word, want in [("x", ["book", "unbook me", "finally"]), ("shield", ["book", "slow", "unbook me", "finally"])]:
        done.clear()
        begun = asyncio.Event()
        task = testing.Task(make(trip))
        running = task.begin(word)
        await begun.wait()
        running.cancel({"why": "me"})
        turn = await running.finish()
        assert (turn.state, done) == ("canceled", want)
        assert task.records[-1]["name"] == "unbook"


async def test_a_released_run_compensates_nothing() -> None:
    done: list[str] = []
    begun = asyncio.Event()

    async def note(word: str) -> None:
        done.append(word)

    async def stuck() -> None:
        begun.set()
        if len(done) < 2:
            await asyncio.Event().wait()

    async def trip(run: DurableRun) -> str:
        try:
            await run.step("book", note, "book")
            await run.step("stuck", stuck)
        except asyncio.CancelledError:
            await run.step("unbook", note, "unbook")
            raise
        finally:
            done.append("finally")
        return "Booked."

    task = testing.Task(make(trip))
    running = task.begin("hi")
    await begun.wait()
    running._active.stop("released")
    await running.finish()
    assert done == ["book", "finally"]
    assert (await task.retry()).text == "Booked."
    assert done == ["book", "finally", "finally"]


async def test_the_end_of_a_run_raises_in_finally() -> None:
    seen: list[str] = []

    async def asking(run: DurableRun) -> None:
        try:
            await run.ask("Well?")
        except Exception:
            seen.append("an exception")
        finally:
            seen.append("finally")
            await run.step("late", one)

    task = testing.Task(make(asking))
    turn = await task.send("hi")
    assert (turn.state, seen) == ("input-required", ["finally"])
    assert (await task.send("well")).state == "completed"
    assert [r["name"] for r in task.records] == ["message", "wait", "ask", "late"]


async def test_an_answer_or_a_deadline() -> None:
    async def reminded(run: DurableRun) -> str:
        asked = asyncio.create_task(run.ask("Well?"))
        passed = asyncio.create_task(run.sleep(days=1))
        await asyncio.wait({asked, passed}, return_when=asyncio.FIRST_COMPLETED)
        for task in (asked, passed):
            task.cancel()
        word = "answer" if asked.done() and not asked.cancelled() else "deadline"
        await run.step(word, one)
        await run.ask("Sure?")
        return word

    task = testing.Task(make(reminded))
    assert (await task.send("hi")).message.text == "Well?"
    assert (await task.send("well")).message.text == "Sure?"
    assert (await task.send("yes")).text == "answer"


async def test_a_run_waits_for_branches_that_can_go_on() -> None:
    async def branches(run: DurableRun) -> str:
        gate = asyncio.Semaphore(1)

        async def limited(n: int) -> int:
            async with gate:
                return int(await run.step("limited", one)) + n

        async def busy() -> int:
            for _ in range(100):
                await asyncio.sleep(0)
            return int(await run.step("busy", one))

        answer, found, *_ = await asyncio.gather(run.ask("Well?"), busy(), *(limited(n) for n in range(5)))
        return f"{answer.text} {found}"

    task = testing.Task(make(branches))
    turn = await task.send("hi")
    assert turn.state == "input-required"
    assert Counter(r["name"] for r in task.records) == {"message": 1, "limited": 5, "busy": 1, "wait": 1}
    assert (await task.send("well")).text == "well 1"


async def test_a_branch_that_awaits_another_one_does_not_keep_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_agent._durable.PATIENCE", 0.01)

    async def in_order(run: DurableRun) -> str:
        gate = asyncio.Lock()

        async def branch(name: str) -> str:
            async with gate:
                return str((await run.ask(f"{name}?", name=name)).text)

        return " ".join(await run.gather(branch("first"), branch("second")))

    task = testing.Task(make(in_order))
    assert (await task.send("hi")).message.text == "first?"
    assert (await task.send("1")).message.text == "second?"
    assert (await task.send("2")).text == "1 2"


async def test_a_large_result_comes_without_its_artifacts() -> None:
    async def caller(run: DurableRun) -> str:
        result = await run.call(("other", "hi"))
        return f"{result.state} {result.text} {result.omitted > 300_000}"

    task = testing.Task(make(caller))
    await task.send("hi")
    assert (await task.results({"other#1": "x" * 300_000})).text == "completed  True"


async def test_a_lost_end_is_said_again() -> None:
    shop = Shop()
    task = testing.Task(shop.agent)
    whole = await shop.turn(task, 1)
    rewind(task, whole, [], len(whole.events) - 1)
    turn = await task.retry()
    assert [e["type"] for e in turn.events] == ["ask"]
    assert [r["kind"] for r in task.records].count("wait") == 1


async def test_values() -> None:
    seen: list[Any] = []

    async def values(run: DurableRun) -> None:
        state = await run.state()
        version = await run.set_state({"n": (state.data or {"n": 0})["n"] + 1})
        seen.append((await run.now(), await run.random(), await run.uuid(), state, version))
        await run.ask("Well?")

    task = testing.Task(make(values))
    await task.send("hi")
    await task.send("well")
    assert seen[0] == seen[1]
    assert task.states["task"] == ({"n": 1}, 1)


async def test_wrong_words() -> None:
    async def nested(run: DurableRun) -> None:
        await run.step("inner", one)

    async def wrong(run: DurableRun) -> None:
        with pytest.raises(ValueError, match="1 to 200 characters"):
            await run.step("", one)
        with pytest.raises(hf.StepFailed, match="RuntimeError: 'inner' is in a step"):
            await run.step("outer", nested, run)
        with pytest.raises(hf.StepFailed, match="is not JSON"):
            await run.step("set", lambda: {1, 2})
        with pytest.raises(hf.StepFailed, match=r"limits\.max_state"):
            await run.step("large", lambda: "x" * 300_000)

    assert (await testing.run(make(wrong), "hi")).state == "completed"
    with pytest.raises(TypeError, match="async function"):
        make(lambda run: None)


async def test_records_come_in_pages() -> None:
    class Paged(testing._Memory):
        async def call(self, method: str, path: str, **options: Any) -> Any:
            if path == "/records":
                after = int(options["query"]["after"])
                return {"records": self._task.records[after : after + 1], "next": after + 1 if after < 2 else None}
            return await super().call(method, path, **options)

    shop = Shop()
    task = testing.Task(shop.agent)
    await shop.turn(task, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_Memory", Paged)
        turn = await task.send(hf.data({"approved": True}), records={"records": task.records[:1], "next": 1})
    assert (turn.end["type"], shop.ran) == ("wait", {"look up": 1, "refund": 1})


async def test_a_thousand_steps() -> None:
    ran: list[int] = []

    async def count(n: int) -> int:
        ran.append(n)
        return n

    async def many(run: DurableRun) -> str:
        total = 0
        for n in range(1000):
            total += await run.step("add", count, n)
            await run.text(".")
        await run.ask("Go on?")
        both = await run.gather(*(run.step("again", one) for _ in range(100)))
        return f"{total + sum(both)}"

    task = testing.Task(make(many))
    turn = await task.send("hi")
    assert (len(turn.text), len(ran)) == (1000, 1000)
    turn = await task.send("yes")
    assert (turn.text, len(ran)) == ("499600", 1000)
    await testing.replay(task.agent, task.records)
