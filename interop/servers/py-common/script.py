"""The script that agents on official servers follow: a part of that of Holdfast's demo agent."""

import asyncio
import re

SAMPLE = {"greeting": "hello", "big": 12345678901234567890, "float": 1.0, "list": [1, "two", None, True], "a": {"z": 1, "a": 2}}


async def perform(task, make, said, parts, answers):
    """Does what a message says. task is a TaskUpdater of the SDK; make builds its parts."""
    print("executed", task.task_id, said, flush=True)
    await task.start_work()
    verb, _, rest = said.partition(":")
    chunks = re.match(r"chunks=(\d+) size=(\d+) delay=(\d+)ms", said)
    if answers:
        await task.add_artifact([make.text("You answered: " + said)], artifact_id="answer")
    elif verb == "echo":
        await task.add_artifact([make.text(rest)], artifact_id="echo")
    elif verb == "ask":
        await task.requires_input(task.new_agent_message([make.text(rest)]))
        return
    elif said == "hold":
        await asyncio.Event().wait()
    elif sleep := re.match(r"sleep=(\d+)ms", said):
        await asyncio.sleep(int(sleep[1]) / 1000)
    elif chunks:
        count, size, delay = map(int, chunks.groups())
        for i in range(count):
            await task.add_artifact([make.text(f"{i:08d} ".ljust(size, "."))], artifact_id="chunks", append=i > 0)
            await asyncio.sleep(delay / 1000)
    elif said == "file":
        await task.add_artifact([make.file("hello.txt", "text/plain", b"Hello from Holdfast.\n")], artifact_id="file")
    elif said == "data":
        await task.add_artifact([make.data(SAMPLE)], artifact_id="data")
    else:
        await task.add_artifact(parts, artifact_id="echo")
    await task.complete()
