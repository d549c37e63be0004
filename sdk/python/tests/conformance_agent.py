"""The agent under test of sdk/conformance, see its README. CONFORMANCE_FORM=sync serves the plain form."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import holdfast_agent as hf
from holdfast_agent import Agent, Call, Resume, Run, SyncRun

agent = Agent()


def piece(n: int, size: int) -> str:
    return f"{n:08d}".ljust(size, ".")


def given(run: hf.RunInfo) -> str:
    """The text about what began a turn without a message."""
    assert run.input is not None
    if run.input.source == "calls":
        return "\n".join(f"{r.id} {r.state} {''.join(a.text for a in r.artifacts)}" for r in run.results)
    if run.input.source == "resume":
        body = run.input.text if run.input.text is not None else json.dumps(run.input.data, separators=(",", ":"))
        return f"resume {body}"
    return run.input.source


def stopped(run: hf.RunInfo) -> None:
    reason = "canceled" if run.canceled else "stopped"
    print("stopped", run.task_id, reason, run.cancel_metadata.get("why", ""), flush=True)


def said(run: hf.RunInfo) -> str:
    return "\n".join(f"{s.role} {s.text}" for s in run.history)


async def in_loop(run: Run) -> None:
    try:
        await do(run)
    except (asyncio.CancelledError, hf.Stopped):
        stopped(run)
        if run.message.text == "goodbye":
            await run.text("bye")
        raise


async def do(run: Run) -> None:
    word, _, rest = run.message.text.partition(" ")
    if not run.message:
        await run.text(given(run))
    elif word == "hello":
        await run.text("Hello, world!")
    elif word == "echo":
        await run.text(rest)
    elif word == "who":
        await run.text(run.task_id)
    elif word in ("stream", "slow"):
        n, number = (int(x) for x in rest.split(" "))
        for i in range(n):
            await run.text(piece(i, number if word == "stream" else 8))
            if word == "slow":
                await asyncio.sleep(number / 1000)
    elif word == "block":
        time.sleep(float(rest))  # noqa: ASYNC251
        await run.text("done")
    elif word == "progress":
        await run.progress("Half way.")
    elif word == "data":
        await run.artifact(hf.data(run.message.data))
    elif word == "file":
        await run.artifact(hf.file(b"Hello", filename="f.txt", media_type="text/plain"))
    elif word == "history":
        await run.text(said(run))
    elif word == "reads":
        await run.text(f"{len((await run.read_history('context')).entries)} entries")
    elif word == "state":
        found = await run.get_state()
        n = (found.data or {"n": 0})["n"] + 1
        await run.set_state({"n": n}, version=found.version)
        await run.text(f"n={n}")
    elif word == "checkpoint":
        if run.last_checkpoint is not None:
            await run.text(f"at {run.last_checkpoint['n']}")
        else:
            await run.checkpoint({"n": 1})
            await run.text("begun")
    elif word == "ask":
        await run.ask("Name?")
    elif word == "auth":
        await run.auth("Sign in.", resume=Resume(seconds=60))
    elif word == "link":
        await run.text(run.resume_url or "")
    elif word == "wait":
        await run.wait(float(rest))
    elif word == "call":
        await run.call(Call(agent=rest, message="hi", id="c"))
    elif word == "complete":
        await run.complete("Bye.")
    elif word == "fail":
        raise hf.Fail("Out of paper.")
    elif word == "crash":
        raise RuntimeError("secret 42")
    elif word == "retry":
        raise hf.Retry("busy", after=float(rest))
    elif word == "reject":
        raise hf.Reject("Not me.")
    elif word == "reply":
        await run.reply("Hi.")
    elif word in ("sleep", "goodbye"):
        print("begun", run.task_id, flush=True)
        await asyncio.sleep(3600)
    else:
        raise hf.Fail(f"unknown command {word!r}")


def in_thread(run: SyncRun) -> None:
    word, _, rest = run.message.text.partition(" ")
    words: dict[str, Any] = {
        "hello": lambda: run.text("Hello, world!"),
        "echo": lambda: run.text(rest),
        "who": lambda: run.text(run.task_id),
        "progress": lambda: run.progress("Half way."),
        "data": lambda: run.artifact(hf.data(run.message.data)),
        "file": lambda: run.artifact(hf.file(b"Hello", filename="f.txt", media_type="text/plain")),
        "history": lambda: run.text(said(run)),
        "reads": lambda: run.text(f"{len(run.read_history('context').entries)} entries"),
        "ask": lambda: run.ask("Name?"),
        "auth": lambda: run.auth("Sign in.", resume=Resume(seconds=60)),
        "link": lambda: run.text(run.resume_url or ""),
        "wait": lambda: run.wait(float(rest)),
        "call": lambda: run.call(Call(agent=rest, message="hi", id="c")),
        "complete": lambda: run.complete("Bye."),
        "fail": lambda: run.fail("Out of paper."),
        "retry": lambda: run.retry("busy", after=float(rest)),
        "reject": lambda: run.reject("Not me."),
        "reply": lambda: run.reply("Hi."),
    }
    if not run.message:
        run.text(given(run))
    elif word in words:
        words[word]()
    elif word in ("stream", "slow"):
        n, number = (int(x) for x in rest.split(" "))
        for i in range(n):
            if run.stopped.is_set():
                stopped(run)
                return
            run.text(piece(i, number if word == "stream" else 8))
            if word == "slow":
                time.sleep(number / 1000)
    elif word == "block":
        time.sleep(float(rest))
        run.text("done")
    elif word == "state":
        found = run.get_state()
        n = (found.data or {"n": 0})["n"] + 1
        run.set_state({"n": n}, version=found.version)
        run.text(f"n={n}")
    elif word == "checkpoint":
        if run.last_checkpoint is not None:
            run.text(f"at {run.last_checkpoint['n']}")
        else:
            run.checkpoint({"n": 1})
            run.text("begun")
    elif word == "crash":
        raise RuntimeError("secret 42")
    elif word in ("sleep", "goodbye"):
        print("begun", run.task_id, flush=True)
        run.stopped.wait()
        stopped(run)
        if word == "goodbye":
            run.text("bye")
    else:
        run.fail(f"unknown command {word!r}")


agent.run(in_thread if os.environ.get("CONFORMANCE_FORM") == "sync" else in_loop)

if __name__ == "__main__":
    agent.serve(
        concurrency=int(os.environ["CONFORMANCE_SLOTS"]),
        version=os.environ["CONFORMANCE_VERSION"],
        name=os.environ["CONFORMANCE_NAME"],
        drain_timeout=float(os.environ["CONFORMANCE_DRAIN"]),
    )
