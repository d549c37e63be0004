"""The program of Google ADK: RemoteA2aAgent, run by a Runner with its session, as in an application."""

import asyncio
from collections.abc import Callable
from typing import Any

from a2a.client import ClientFactory
from framework import OTHER_CALLS, absent
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from interop import BYTES, DEMO_FILE, NESTED, Job, Mismatch, equal, equal_chunks, expect, main

QUESTION = "mock_function_call_for_required_user_input"  # how ADK shows input-required
CARD = "/.well-known/agent-card.json"

# A client factory for a job, or none for ADK's own; the flag says that its clients must stream.
Factory = Callable[[Job, bool], ClientFactory | None]


class Conversation:
    """A session with the remote agent, and the events of its last turn."""

    def __init__(self, job: Job, factory: ClientFactory | None, **options: Any) -> None:
        self.job, self.options = job, {"a2a_client_factory": factory, **options}
        self.sessions = InMemorySessionService()
        self.session = ""

    async def say(self, *parts: types.Part, base: str = "") -> list[Event]:
        agent = RemoteA2aAgent(name="remote", agent_card=(base or self.job.a) + CARD, **self.options)
        runner = Runner(app_name="interop", agent=agent, session_service=self.sessions)
        if not self.session:
            self.session = (await self.sessions.create_session(app_name="interop", user_id="u")).id
        message = types.Content(role="user", parts=list(parts))
        events = [e async for e in runner.run_async(user_id="u", session_id=self.session, new_message=message)]
        await agent.cleanup()
        for event in events:
            if event.error_message:
                raise Mismatch(event.error_message)
        self.agent = agent
        return events


def text(said: str) -> types.Part:
    return types.Part(text=said)


def parts(events: list[Event]) -> list[types.Part]:
    """What the agent said, without what ADK takes for its thoughts: the messages of a task that is not done."""
    return [part for e in events if e.content for part in e.content.parts or [] if not part.thought]


def texts(events: list[Event]) -> list[str]:
    return [part.text for part in parts(events) if part.text]


def run(factory: Factory, folded: bool) -> None:
    """Folded says that the last event of a stream has all chunks; otherwise each event has its own."""

    def talk(job: Job, streaming: bool = False, **options: Any) -> Conversation:
        return Conversation(job, factory(job, streaming), **options)

    async def card(job: Job) -> None:
        conversation = talk(job)
        await conversation.say(text("echo:from the card"))
        expect("The agent demo." in conversation.agent.description, f"description: {conversation.agent.description!r}")

    async def send(job: Job) -> None:
        equal(texts(await talk(job).say(text("echo:hello"))), ["hello"], "answer")

    async def stream(job: Job) -> None:
        events = await talk(job, streaming=True).say(text("chunks=20 size=64 delay=5ms"))
        said = [e for e in events if texts([e])]
        expect(len(said) > 1, "the answer came at once")
        equal_chunks(texts(said[-1:] if folded else said), 20, 64)

    async def multi_turn(job: Job) -> None:
        conversation = talk(job)
        asked = [p.function_call for p in parts(await conversation.say(text("ask:which?"))) if p.function_call]
        equal([(c.name, c.args) for c in asked], [(QUESTION, {"input_required": "which?"})], "question")
        answer = types.FunctionResponse(id=asked[0].id, name=QUESTION, response={"result": "the blue one"})
        events = await conversation.say(types.Part(function_response=answer), base=job.b)
        equal(texts(events), ["You answered: the blue one"], "answer")

    async def files(job: Job) -> None:
        sent = types.Blob(data=BYTES, mime_type="image/png", display_name="all.png")
        events = await talk(job).say(text("look at this"), types.Part(inline_data=sent))
        answer = [(p.inline_data.data, p.inline_data.mime_type) for p in parts(events) if p.inline_data]
        equal(answer, [(BYTES, "image/png")], "file that comes back")
        events = await talk(job).say(text("file"))
        answer = [(p.inline_data.data, p.inline_data.mime_type) for p in parts(events) if p.inline_data]
        equal(answer, [(DEMO_FILE, "text/plain")], "answer to file")

    async def metadata(job: Job) -> None:
        conversation = talk(job, a2a_request_meta_provider=lambda _context, _message: NESTED)
        events = await conversation.say(text("echo:with metadata"))
        equal(events[-1].custom_metadata["a2a:response"]["metadata"], NESTED, "metadata of the request")

    async def concurrent(job: Job) -> None:
        words = [f"word {i}" for i in range(20)]
        answers = await asyncio.gather(*(talk(job).say(text(f"echo:{w}")) for w in words))
        equal([texts(events) for events in answers], [[w] for w in words], "answers")

    files.__name__ = "parts"
    main([card, send, stream, multi_turn, files, metadata, concurrent, *absent("RemoteA2aAgent has no such call", *OTHER_CALLS)])
