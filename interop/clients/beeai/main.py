"""Interop program of the BeeAI framework: A2AAgent, on a2a-sdk 0.3."""

import asyncio
import base64
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
from a2a.client import A2ACardResolver
from a2a.types import (
    AgentCard,
    FilePart,
    FileWithBytes,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TextPart,
    TransportProtocol,
)
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.adapters.a2a.agents.types import A2AAgentOutput
from beeai_framework.backend import UserMessage
from beeai_framework.memory import UnconstrainedMemory

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import OTHER_CALLS, absent
from interop import BYTES, DEMO_FILE, NESTED, Job, equal, equal_chunks, expect, main

BINDINGS = {"rest": TransportProtocol.http_json, "grpc": TransportProtocol.grpc}


async def remote(job: Job, to: str = "a") -> A2AAgent:
    """The agent by its URL, which calls the binding that the card prefers; for another one, by a card that prefers it."""
    base = {"a": job.a, "b": job.b}[to]
    if job.binding == "jsonrpc":
        return A2AAgent(url=base, memory=UnconstrainedMemory())
    async with httpx.AsyncClient() as http:
        card: AgentCard = await A2ACardResolver(http, base).get_agent_card()
    wanted = next(i for i in card.additional_interfaces or [] if i.transport == BINDINGS[job.binding])
    card = card.model_copy(update={"preferred_transport": wanted.transport, "url": wanted.url})
    return A2AAgent(agent_card=card, memory=UnconstrainedMemory())


def texts(output: A2AAgentOutput) -> list[str]:
    return [content.text for content in output.last_message.content if content.type == "text"]


async def card(job: Job) -> None:
    agent = await remote(job)
    await agent.check_agent_exists()
    equal((agent.name, agent.meta.description), ("demo", "The agent demo."), "what the agent took from the card")


async def send(job: Job) -> None:
    agent = await remote(job)
    equal(texts(await agent.run("echo:hello", streaming=False)), ["hello"], "answer")


async def stream(job: Job) -> None:
    agent = await remote(job)
    chunks: list[str] = []
    states: list[TaskState] = []

    def update(data: Any, _event: Any) -> None:
        task, event = data.value
        states.append(task.status.state)
        if isinstance(event, TaskArtifactUpdateEvent):
            chunks.extend(part.root.text for part in event.artifact.parts)

    output = await agent.run("chunks=20 size=64 delay=5ms").on("update", update)
    equal_chunks(chunks, 20, 64)
    equal_chunks(texts(output), 20, 64)
    equal(states[-1], TaskState.completed, "last state")


async def multi_turn(job: Job) -> None:
    agent = await remote(job)
    question = await agent.run("ask:which?")
    equal(texts(question), ["which?"], "question")
    task, _ = question.event
    equal(task.status.state, TaskState.input_required, "state")
    other = await remote(job, "b")
    answer = await other.run("the blue one", task_id=task.id, context_id=task.context_id)
    equal(texts(answer), ["You answered: the blue one"], "answer")

    agent = await remote(job)
    await agent.run("ask:which?")
    equal(texts(await agent.run("the red one")), ["You answered: the red one"], "answer, by the agent's own memory")


async def parts(job: Job) -> None:
    file = FileWithBytes(bytes=base64.b64encode(BYTES).decode(), mime_type="image/png", name="all.png")
    sent = [Part(root=TextPart(text="look at this")), Part(root=FilePart(file=file))]
    output = await (await remote(job)).run(Message(role=Role.user, message_id=str(uuid.uuid4()), parts=sent))
    equal((texts(output), files(output)), (["look at this"], [(BYTES, "image/png", "all.png")]), "parts that come back")
    output = await (await remote(job)).run("file")
    equal(files(output), [(DEMO_FILE, "text/plain", "hello.txt")], "answer to file")


def files(output: A2AAgentOutput) -> list[tuple[bytes, str, str]]:
    found = [content.file for content in output.last_message.content if content.type == "file"]
    return [(base64.b64decode(f["file_data"]), f["format"], f["filename"]) for f in found]


async def metadata(job: Job) -> None:
    output = await (await remote(job)).run(UserMessage("echo:with metadata", dict(NESTED)))
    task, _ = output.event
    equal({name: task.history[0].metadata.get(name) for name in NESTED}, NESTED, "metadata")


async def extended_card(job: Job) -> None:
    """The agent gets it before it sends, if the card says that there is one."""
    agent = await remote(job)
    await agent.check_agent_exists()
    public = agent.agent_card
    await agent.run("echo:hello")
    expect(agent.agent_card is not public, "the agent kept the public card")
    equal(agent.agent_card.name, "demo", "name")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    agents = [await remote(job) for _ in words]
    outputs = await asyncio.gather(*(agent.run(f"echo:{w}") for agent, w in zip(agents, words, strict=True)))
    equal([texts(o) for o in outputs], [[w] for w in words], "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            stream,
            multi_turn,
            parts,
            metadata,
            extended_card,
            concurrent,
            *absent("A2AAgent has no such call", *(name for name in OTHER_CALLS if name != "extended-card")),
        ]
    )
