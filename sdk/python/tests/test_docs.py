"""The programs in docs/agents/python.md are those of the examples, and work."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from examples import ROOT, load
from holdfast_agent import testing

PAGE = (ROOT / "docs/agents/python.md").read_text()
NAMED = re.findall(r"```python (\S+)\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize(("name", "source"), NAMED, ids=[n for n, _ in NAMED])
def test_the_page_has_the_examples(name: str, source: str) -> None:
    assert (ROOT / "examples/python/worker" / name).read_text() == source


def test_named_programs_are_there() -> None:
    assert [n for n, _ in NAMED] == ["hello.py", "trip.py", "test_trip.py"]


async def test_hello() -> None:
    turn = await testing.run(load("worker/hello.py"), "world")
    assert (turn.state, turn.text) == ("completed", "Hello, world!")


def test_the_test_of_the_page_passes() -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_trip.py"],
        cwd=ROOT / "examples/python/worker",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


async def test_a_try_after_a_crash_continues() -> None:
    agent = load("worker/trip.py")
    task = testing.Task(agent)
    await task.send("Book me a trip")
    running = task.begin("Oslo")
    await running.until(lambda events: any(e["type"] == "checkpoint" and e["data"] == 2 for e in events))
    running._active.stop("released")
    await running.finish()
    turn = await task.retry()
    assert turn.state == "completed"
    days = [line.split(",")[1].split(":")[0] for line in turn.text.splitlines()]
    assert days == [f" day {n}" for n in range(1, 5)]
