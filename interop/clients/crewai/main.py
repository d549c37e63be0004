"""Interop program of CrewAI: an Agent that delegates to a remote agent (A2AClientConfig), on a2a-sdk 0.3.

An agent delegates when its model says so. The model here is a class that says what the scenario tells it.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}

from crewai import Agent, BaseLLM, Task
from crewai.a2a import A2AClientConfig
from crewai.a2a.config import ClientTransportConfig
from crewai.a2a.updates import PollingConfig
from crewai.events import crewai_event_bus
from crewai.events.base_events import BaseEvent
from crewai.events.types.a2a_events import (
    A2AAgentCardFetchedEvent,
    A2AArtifactReceivedEvent,
    A2APollingStartedEvent,
    A2APollingStatusEvent,
    A2AResponseReceivedEvent,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import OTHER_CALLS, absent
from interop import Job, equal, equal_chunks, expect, main

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}
CARD = "/.well-known/agent-card.json"


class Script(BaseLLM):
    """A model that delegates each of these messages, and then answers with the text after the last one."""

    delegates: list[str]
    answer: str = "done"

    def call(self, messages: Any, *args: Any, **options: Any) -> str:
        remote = bool(self.delegates)
        said = {"a2a_ids": [self.model] if remote else [], "message": self.delegates.pop(0) if remote else self.answer}
        return json.dumps({**said, "is_a2a": remote})

    async def acall(self, messages: Any, *args: Any, **options: Any) -> str:
        return self.call(messages)


def delegate(job: Job, *messages: str, **options: Any) -> str:
    endpoint = job.a + CARD
    config = A2AClientConfig(
        endpoint=endpoint,
        trust_remote_completion_status=True,
        transport=ClientTransportConfig(preferred=BINDINGS[job.binding], supported=[BINDINGS[job.binding]]),
        **options,
    )
    agent = Agent(
        role="asker",
        goal="ask",
        backstory="asks",
        llm=Script(model=endpoint, delegates=list(messages)),
        a2a=config,
    )
    return agent.execute_task(Task(description="ask the remote agent", expected_output="an answer", agent=agent))


async def delegated(job: Job, *messages: str, **options: Any) -> str:
    return await asyncio.to_thread(delegate, job, *messages, **options)


@contextmanager
def events(*kinds: type[BaseEvent]) -> Iterator[list[Any]]:
    """The events of these kinds that CrewAI emits: complete at the end, in any order, since threads handle them."""
    seen: list[Any] = []
    with crewai_event_bus.scoped_handlers():
        for kind in kinds:
            crewai_event_bus.on(kind)(lambda _source, event: seen.append(event))
        yield seen
        crewai_event_bus.flush()


async def card(job: Job) -> None:
    with events(A2AAgentCardFetchedEvent) as fetched:
        await delegated(job, "echo:from the card")
    equal({event.a2a_agent_name for event in fetched}, {"demo"}, "name")


async def send(job: Job) -> None:
    equal(await delegated(job, "echo:hello"), "hello", "answer")


async def return_immediately(job: Job) -> None:
    with events(A2APollingStartedEvent, A2APollingStatusEvent) as seen:
        await delegated(job, "sleep=300ms", updates=PollingConfig(interval=0.05))
    expect(any(isinstance(e, A2APollingStartedEvent) for e in seen), "no polling: the task was over in the answer")
    expect(any(isinstance(e, A2APollingStatusEvent) and e.state == "completed" for e in seen), "no poll saw the end")


async def stream(job: Job) -> None:
    with events(A2AArtifactReceivedEvent) as chunks:
        answer = await delegated(job, "chunks=20 size=64 delay=5ms")
    shown = Counter((c.append, c.last_chunk) for c in chunks)
    equal(shown, {(False, False): 1, (True, False): 18, (True, True): 1}, "chunks that begin, append and end")
    # CrewAI puts a space between them.
    equal_chunks([answer[i : i + 64] for i in range(0, len(answer), 65)], 20, 64)


async def multi_turn(job: Job) -> None:
    with events(A2AResponseReceivedEvent) as responses:
        answer = await delegated(job, "ask:which?", "the blue one")
    expect(("which?", "input_required") in {(r.response, r.status) for r in responses}, "no question")
    equal(answer, "You answered: the blue one", "answer")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    equal(await asyncio.gather(*(delegated(job, f"echo:{w}") for w in words)), words, "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            return_immediately,
            stream,
            multi_turn,
            concurrent,
            *absent("an Agent sends and shows only text", "parts", "metadata"),
            *absent(
                "an Agent follows a task until it ends or asks, at the address in the card",
                *(name for name in OTHER_CALLS if name != "return-immediately"),
            ),
        ]
    )
