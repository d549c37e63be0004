"""What main.go does, in Python."""

import asyncio
import re

from holdfast_agent import Agent

agent = Agent(concurrency=20)


@agent.run
async def answer(run):
    asked = re.match(r"chunks=(\d+) size=(\d+) delay=(\d+)ms", run.message.text)
    if asked is None:  # "hold"
        await asyncio.Event().wait()
    count, size, delay = map(int, asked.groups())
    for n in range(sum(a.chunks for a in run.earlier), count):
        await run.text(f"{n:08d} ".ljust(size, "."), artifact_id="chunks", append=n > 0, last=n == count - 1)
        await asyncio.sleep(delay / 1000)


if __name__ == "__main__":
    agent.serve(drain_timeout=2)
