"""Interop program of Strands Agents: A2AAgent, on a2a-sdk 0.3."""

import asyncio
import sys
from pathlib import Path

from a2a.client import ClientConfig
from a2a.types import TaskArtifactUpdateEvent, TransportProtocol
from strands.agent.a2a_agent import A2AAgent
from strands.agent.agent_result import AgentResult

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import OTHER_CALLS, absent
from interop import Job, equal, equal_chunks, main


def remote(job: Job) -> A2AAgent:
    """Without a configuration A2AAgent calls JSON-RPC."""
    if job.binding == "rest":
        return A2AAgent(job.a, client_config=ClientConfig(supported_transports=[TransportProtocol.http_json]))
    return A2AAgent(job.a)


def texts(result: AgentResult) -> list[str]:
    return [block["text"] for block in result.message["content"]]


async def card(job: Job) -> None:
    agent = remote(job)
    equal((await agent.get_agent_card()).name, "demo", "name")
    equal((agent.name, agent.description), ("demo", "The agent demo."), "what the agent took from the card")


async def send(job: Job) -> None:
    result = await remote(job).invoke_async("echo:hello")
    equal((result.stop_reason, texts(result)), ("end_turn", ["hello"]), "result")
    question = await remote(job).invoke_async("ask:which?")
    equal((question.stop_reason, texts(question)), ("interrupt", ["which?"]), "question")


async def stream(job: Job) -> None:
    chunks: list[str] = []
    async for event in remote(job).stream_async("chunks=20 size=64 delay=5ms"):
        if "result" in event:
            result = event["result"]
        elif isinstance(event["event"][1], TaskArtifactUpdateEvent):
            chunks += [part.root.text for part in event["event"][1].artifact.parts]
    equal_chunks(chunks, 20, 64)
    equal_chunks(texts(result), 20, 64)
    equal(result.state["a2a_task_state"], "completed", "last state")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    agent = remote(job)
    results = await asyncio.gather(*(agent.invoke_async(f"echo:{w}") for w in words))
    equal([texts(r) for r in results], [[w] for w in words], "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            stream,
            concurrent,
            *absent("A2AAgent sends no id of a task or a context, so it cannot answer a question", "multi-turn"),
            *absent("A2AAgent sends and shows only text", "parts", "metadata"),
            *absent("A2AAgent has no such call", *OTHER_CALLS),
        ]
    )
