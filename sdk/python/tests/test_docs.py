"""The programs in docs/agents/python.md and charge-once.md are those of the examples, and work."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from examples import ROOT, load
from holdfast_agent import testing

PAGE = (ROOT / "docs/agents/python.md").read_text()
CHARGE = (ROOT / "docs/agents/charge-once.md").read_text()
FENCE = re.compile(r"```python (\S+)\n(.*?)```", re.S)
NAMED = FENCE.findall(PAGE)
ALL = NAMED + FENCE.findall(CHARGE)


@pytest.mark.parametrize(("name", "source"), ALL, ids=[n for n, _ in ALL])
def test_the_page_has_the_examples(name: str, source: str) -> None:
    assert (ROOT / "examples/python/worker" / name).read_text() == source


def test_named_programs_are_there() -> None:
    assert [n for n, _ in ALL] == ["refund.py", "test_refund.py", "pay.py"]


async def test_hello() -> None:
    turn = await testing.run(load("worker/hello.py"), "world")
    assert (turn.state, turn.text) == ("completed", "Hello, world!")


@pytest.mark.parametrize("name", ["test_refund.py", "test_trip.py"])
def test_the_tests_of_the_examples_pass(name: str) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, name],
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


async def test_a_second_try_does_not_pay_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    charges: dict[str, str] = {}
    asked: list[str] = []

    class Bank(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers["Idempotency-Key"]
            asked.append(key)
            id = charges.setdefault(key, f"charge-{len(charges) + 1}")
            if len(asked) > 1:  # the first answer is lost
                answer = f'{{"id": "{id}"}}'.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Bank) as bank:
        threading.Thread(target=bank.serve_forever, daemon=True).start()
        monkeypatch.setenv("BANK_URL", f"http://127.0.0.1:{bank.server_port}/charges")
        task = testing.Task(load("worker/pay.py"))
        turn = await task.send("Pay")
        assert turn.end["type"] == "retry"
        turn = await task.retry()
        bank.shutdown()
    assert (turn.state, turn.message.text) == ("completed", "Paid: charge-1")
    assert len(asked) == 2
    assert list(charges) == asked[:1]
