"""Interop program of Microsoft Agent Framework: A2AAgent, on a2a-sdk 1."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from a2a.client import A2ACardResolver
from a2a.client.errors import A2AClientError
from agent_framework import AgentSession, Content, Message
from agent_framework_a2a import A2AAgent
from google.protobuf.json_format import MessageToDict

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import OTHER_CALLS, absent
from interop import BYTES, DEMO_DATA, DEMO_FILE, NESTED, Job, equal, equal_chunks, expect, main, until

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


@asynccontextmanager
async def remote(job: Job, to: str = "a") -> AsyncIterator[A2AAgent]:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, job.a).get_agent_card()
    for interface in card.supported_interfaces:
        interface.url = job.moved(interface.url, to)
    async with A2AAgent(agent_card=card, supported_protocol_bindings=[BINDINGS[job.binding]]) as agent:
        yield agent


async def card(job: Job) -> None:
    async with remote(job) as agent:
        equal((agent.name, agent.description), ("demo", "The agent demo."), "what the agent took from the card")
    if job.binding == "jsonrpc":
        async with A2AAgent(url=job.a) as agent:  # no card: JSON-RPC at this URL
            equal((await agent.run("echo:without a card")).text, "without a card", "answer")


async def send(job: Job) -> None:
    async with remote(job) as agent:
        equal((await agent.run("echo:hello")).text, "hello", "answer")


async def return_immediately(job: Job) -> None:
    async with remote(job) as agent:
        response = await agent.run("sleep=300ms", background=True)
        token = response.continuation_token
        expect(token, "no continuation token: the task is over")
        await until(lambda: agent.poll_task(token), lambda r: r.continuation_token is None)


async def stream(job: Job) -> None:
    async with remote(job) as agent:
        updates = agent.run("chunks=20 size=64 delay=5ms", stream=True)
        chunks = [update.text async for update in updates if update.text]
        equal_chunks(chunks, 20, 64)
        equal((await updates.get_final_response()).text, "".join(chunks), "answer")


async def multi_turn(job: Job) -> None:
    session = AgentSession()
    async with remote(job) as a, remote(job, "b") as b:
        question = await a.run("ask:which?", session=session)
        equal([r.text for r in question.user_input_requests], ["which?"], "question")
        answer = await b.run("the blue one", session=session)
        equal(answer.text, "You answered: the blue one", "answer")
        equal((await b.run("echo:and more", session=session)).text, "and more", "next task of the session")


async def resubscribe(job: Job) -> None:
    chunks, token = [], None
    async with remote(job, "through") as agent:
        try:
            async for update in agent.run("chunks=60 size=64 delay=100ms", stream=True, background=True):
                chunks += [update.text] if update.text else []
                token = update.continuation_token or token
                if len(chunks) == 10:
                    await job.cut_connections()
        except A2AClientError as e:
            print("the stream was cut:", e, file=sys.stderr)
    expect(10 <= len(chunks) < 60, f"{len(chunks)} chunks before the cut")
    async with remote(job, "b") as agent:
        followed = await agent.run(continuation_token=token)
        read = await agent.poll_task(token)
    equal_chunks([read.text], 60, 64)
    equal_chunks([followed.text], 60, 64)


async def parts(job: Job) -> None:
    async with remote(job) as agent:
        file = Content.from_data(BYTES, media_type="image/png")
        said = (await agent.run(Message("user", ["look at this", file]))).messages[-1].contents
        equal([c.text for c in said if c.type == "text"], ["look at this"], "text that comes back")
        equal([(c.media_type, c.uri) for c in said if c.type == "data"], [("image/png", file.uri)], "file that comes back")

        (answer,) = (await agent.run("file")).messages[-1].contents
        equal((answer.media_type, answer.uri), ("text/plain", Content.from_data(DEMO_FILE, "text/plain").uri), "answer to file")
        answer = (await agent.run("data")).text
        # A protobuf Value knows doubles only.
        equal(json.loads(answer), json.loads(DEMO_DATA, parse_int=float), "answer to data")


async def metadata(job: Job) -> None:
    async with remote(job) as agent:
        response = await agent.run(Message("user", ["echo:with metadata"], additional_properties={"a2a": NESTED}))
    (task,) = response.raw_representation
    equal(MessageToDict(task.history[0].metadata), NESTED, "metadata")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    async with remote(job) as agent:
        responses = await asyncio.gather(*(agent.run(f"echo:{w}") for w in words))
    equal([r.text for r in responses], words, "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            return_immediately,
            stream,
            multi_turn,
            resubscribe,
            parts,
            metadata,
            concurrent,
            *absent(
                "A2AAgent has no such call",
                *(name for name in OTHER_CALLS if name not in ("return-immediately", "resubscribe")),
            ),
        ]
    )
