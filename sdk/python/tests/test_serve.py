"""serve, as a process: signals, exit codes, logs, reload."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast_agent import _reload
from server import LIMIT, Server

HEAD = """
import asyncio, logging, threading, time
from holdfast_agent import Agent, serve
agent = Agent("hello")
"""

Program = asyncio.subprocess.Process
Begin = Callable[..., Awaitable[Program]]


@pytest.fixture
async def begin(server: Server, tmp_path: Path) -> AsyncIterator[Begin]:
    """Run a program with HEAD before it, and the server in its environment."""
    started: list[Program] = []

    async def run(source: str, **env: str) -> Program:
        file = tmp_path / "agent.py"
        file.write_text(HEAD + textwrap.dedent(source))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(file),
            env={**os.environ, "HOLDFAST_URL": server.url, **env},
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.terminate()
            process.terminate()
        _, log = await ended(process)
        print(log)  # for the report of a test that failed


async def ended(process: Program) -> tuple[int, str]:
    assert process.stderr is not None
    log = await asyncio.wait_for(process.stderr.read(), LIMIT)
    return await asyncio.wait_for(process.wait(), LIMIT), log.decode()


async def logged(process: Program, text: str) -> None:
    """Wait for a line of the log."""
    assert process.stderr is not None
    while text not in (line := (await asyncio.wait_for(process.stderr.readline(), LIMIT)).decode()):
        assert line, f"the program has ended without {text!r}"


async def says(server: Server, answer: str) -> None:
    """Wait until a program answers so. A program that is being replaced may answer a run first, or release it."""

    async def ask() -> str:
        run = await server.add()
        await server.until(lambda: run.ended or run.released)
        return run.text

    async def asked() -> None:
        while await ask() != answer:
            pass

    await asyncio.wait_for(asked(), LIMIT)


HELLO = """
    @agent.run
    async def hello(run):
        logging.getLogger("mine").info("greeting")
        await run.text(f"Hello, {run.message.text}!")
"""

SLOW = """
    @agent.run
    async def slow(run):
        await run.text("working")
        try:
            await asyncio.sleep(float(run.message.text))
        finally:
            print("cleaned up")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains(server: Server, begin: Begin, number: signal.Signals) -> None:
    process = await begin(SLOW + "    agent.serve()")
    run = await server.add("1")
    await server.until(lambda: run.text == "working")
    process.send_signal(number)
    code, log = await ended(process)
    assert (code, run.kinds) == (0, ["text", "complete"]), log
    assert "the worker drains" in log
    assert "the worker has stopped" in log


async def test_drain_timeout_releases(server: Server, begin: Begin) -> None:
    process = await begin(SLOW + "    agent.serve(drain_timeout=0.5)")
    run = await server.add("3600")
    await server.until(lambda: run.text == "working")
    process.terminate()
    code, log = await ended(process)
    assert (code, run.kinds, run.released) == (0, ["text"], 1), log


async def test_second_signal_releases(server: Server, begin: Begin) -> None:
    process = await begin(SLOW + "    agent.serve(drain_timeout=3600)")
    run = await server.add("3600")
    await server.until(lambda: run.text == "working")
    process.terminate()
    await logged(process, "the worker drains")
    process.terminate()
    code, log = await ended(process)
    assert (code, run.kinds, run.released) == (0, ["text"], 1), log


@pytest.mark.parametrize("form", ["sync", "to_thread"])
async def test_code_that_does_not_end_does_not_keep_the_process(server: Server, begin: Begin, form: str) -> None:
    sync = """
    @agent.run
    def stuck(run):
        run.text("working")
        time.sleep(3600)
    """
    to_thread = """
    @agent.run
    async def stuck(run):
        await run.text("working")
        await asyncio.to_thread(time.sleep, 3600)
    """
    process = await begin((sync if form == "sync" else to_thread) + "\n    agent.serve(drain_timeout=0)")
    run = await server.add()
    await server.until(lambda: run.text == "working")
    process.terminate()
    code, log = await ended(process)
    assert (code, run.released) == (0, 1), log


async def test_logs_carry_the_run(server: Server, begin: Begin) -> None:
    process = await begin(HELLO + "    agent.serve()")
    run = await server.add()
    await server.until(lambda: run.ended)
    process.terminate()
    _, log = await ended(process)
    line = next(line for line in log.splitlines() if "greeting" in line)
    assert f"task_id={run.document['task']['id']} run={run.id} trace_id=4bf92f3577b34da6a3ce929d0e0e4736" in line


async def test_several_agents(server: Server, begin: Begin) -> None:
    process = await begin(HELLO + '    other = Agent("other")\n    other.run(hello)\n    serve(agent, other)')
    runs = [await server.add(agent=name) for name in ("hello", "other")]
    await server.until(lambda: all(r.ended for r in runs))
    process.terminate()
    assert (await ended(process))[0] == 0


async def test_wrong_settings_are_one_line(server: Server, begin: Begin) -> None:
    code, log = await ended(await begin(HELLO + "    agent.serve()", HOLDFAST_URL="localhost"))
    assert code == 1
    assert log == "holdfast: url: 'localhost' is no address; write http://HOST:PORT or https://HOST\n"


async def test_unknown_version(server: Server, begin: Begin) -> None:
    server.answer("/worker/v1/claims", 404, reason="version", versions=["2"])
    code, log = await ended(await begin(HELLO + "    agent.serve()"))
    assert code == 1
    assert "holdfast: the server does not speak version 1 of the worker protocol, but 2" in log


async def test_reload(server: Server, begin: Begin, tmp_path: Path) -> None:
    process = await begin(HELLO + "    agent.serve()", HOLDFAST_RELOAD="1")
    run = await server.add()
    await server.until(lambda: run.ended)
    assert run.text == "Hello, hi!"
    file = tmp_path / "agent.py"
    source = file.read_text()
    file.write_text("this is no program")
    await asyncio.sleep(0)
    file.write_text(source.replace("Hello", "Good morning"))
    await says(server, "Good morning, hi!")
    process.terminate()
    code, log = await ended(process)
    assert code == 0, log
    assert "reload: agent.py changed" in log


async def test_reload_waits_for_a_mended_program(server: Server, begin: Begin, tmp_path: Path) -> None:
    process = await begin(HELLO + "    agent.serve()", HOLDFAST_RELOAD="1")
    run = await server.add()
    await server.until(lambda: run.ended)
    file = tmp_path / "agent.py"
    source = file.read_text()
    file.write_text("this is no program")
    await logged(process, "waiting for a change")
    file.write_text(source.replace("Hello", "Good morning"))
    await says(server, "Good morning, hi!")
    process.terminate()
    assert (await ended(process))[0] == 0


def test_reload_waits_until_a_save_is_over(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text("")
    writes = ["half", "the whole"]

    class Ending(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if writes:
                file.write_text(writes.pop(0))
            return False

    _, size = _reload._settled(tmp_path, Ending())[file]
    assert size == len("the whole")


async def test_reload_ends_with_a_program_that_has_only_just_begun(begin: Begin) -> None:
    slow = """
    import os, sys, time
    if os.environ.get("HOLDFAST_RELOAD_CHILD"):
        print("importing", file=sys.stderr, flush=True)
        time.sleep(60)
    agent.serve()
"""
    process = await begin(slow, HOLDFAST_RELOAD="1")
    await logged(process, "importing")
    process.terminate()
    assert (await ended(process))[0] == 0
