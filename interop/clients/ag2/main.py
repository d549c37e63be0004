"""Interop program of AG2: an Agent whose model is a remote agent, and AG2's own calls for tasks and webhooks."""

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import httpx
from a2a.client import A2ACardResolver
from a2a.types import AgentCard, Part, StreamResponse, Task, TaskState
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from ag2 import Agent, BinaryInput, MemoryStream
from ag2.a2a import A2AConfig, push, tasks
from ag2.a2a.events import A2AEvent, A2ATaskArtifactUpdate, A2ATaskSnapshot, A2ATaskStatusUpdate
from ag2.events.types import HumanInputRequest
from google.protobuf.json_format import MessageToDict, Parse

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import absent
from interop import BYTES, DEMO_FILE, NESTED, Hook, Job, equal, equal_chunks, expect, main


def config(job: Job, to: str = "a", **options: Any) -> A2AConfig:
    return A2AConfig({"a": job.a, "b": job.b}[to], prefer=job.binding, **options)


class Turn:
    """What a remote agent answers, and the events that AG2 shows meanwhile."""

    def __init__(self, remote: A2AConfig) -> None:
        self.agent = Agent("remote", config=remote)
        self.task = asyncio.get_running_loop().create_future()
        self.chunks: list[str] = []
        self.last: TaskState | None = None
        self.question = ""

    async def ask(self, *said: Any, **options: Any) -> str:
        stream = MemoryStream()
        stream.where(A2AEvent).subscribe(self.see)
        reply = await self.agent.ask(*said, stream=stream, **options)
        return reply.body or ""

    async def see(self, event: A2AEvent) -> None:
        match event:
            case A2ATaskSnapshot():
                if not self.task.done():
                    self.task.set_result(event.task)
            case A2ATaskStatusUpdate():
                self.last = event.state
            case A2ATaskArtifactUpdate():
                self.chunks += texts(event.update.artifact.parts)


def texts(parts: Iterable[Part]) -> list[str]:
    return [p.text for p in parts if p.HasField("text")]


async def refused(call: Awaitable[Any], want: type[Exception]) -> None:
    try:
        answer = await call
    except want:
        return
    expect(False, f"no error but {answer!r}")


async def card(job: Job) -> None:
    reply = await Agent("remote", config=config(job)).ask("echo:from the card")
    equal((reply.body, reply.response.model), ("from the card", "demo"), "answer, and the name in the card")


async def send(job: Job) -> None:
    turn = Turn(config(job, streaming=False))
    equal(await turn.ask("echo:hello"), "hello", "answer")


async def stream(job: Job) -> None:
    turn = Turn(config(job))
    whole = await turn.ask("chunks=20 size=64 delay=5ms")
    equal_chunks(turn.chunks, 20, 64)
    equal(whole, "".join(turn.chunks), "answer")
    equal(turn.last, TaskState.TASK_STATE_COMPLETED, "last state")


async def answered(job: Job, answer: str, **options: Any) -> tuple[Task, str, str]:
    """A task that asked, its question, and what it says to the answer."""
    turn, asked = Turn(config(job)), []

    async def human(event: HumanInputRequest) -> str:
        asked.append(event.content)
        if "meanwhile" in options:
            await options["meanwhile"](turn.task.result())
        return answer

    said = await turn.ask("ask:which?", hitl_hook=human)
    equal(len(asked), 1, "questions")
    return turn.task.result(), asked[0], said


async def get(job: Job) -> None:
    first, _, _ = await answered(job, "blue")
    task = await tasks.get_task(config(job, "b"), first.id)
    equal([texts(m.parts) for m in task.history], [["ask:which?"], ["which?"], ["blue"]], "history")
    equal(texts(task.artifacts[0].parts), ["You answered: blue"], "artifact")
    task = await tasks.get_task(config(job, "b"), first.id, history_length=1)
    equal([texts(m.parts) for m in task.history], [["blue"]], "history of one message")


async def list_(job: Job) -> None:
    agent = Agent("remote", config=config(job))
    reply = await agent.ask("echo:one")
    reply = await reply.ask("echo:two")
    reply = await reply.ask("echo:three")
    context = next(value for name, value in reply.context.variables.items() if name.startswith("a2a:context_id"))
    page = await tasks.list_tasks(config(job), context_id=context, page_size=2)
    rest = await tasks.list_tasks(config(job), context_id=context, page_size=2, page_token=page.next_page_token)
    equal([len(page.tasks), page.total_size], [2, 3], "first page")
    equal([len(rest.tasks), rest.next_page_token], [1, ""], "last page")
    equal(len({t.id for t in [*page.tasks, *rest.tasks]}), 3, "tasks")


async def cancel(job: Job) -> None:
    turn = Turn(config(job))
    asking = asyncio.create_task(turn.ask("hold"))
    task = await turn.task
    canceled = await tasks.cancel_task(config(job, "b"), task.id)
    equal(canceled.status.state, TaskState.TASK_STATE_CANCELED, "state in the answer")
    await asking
    equal(turn.last, TaskState.TASK_STATE_CANCELED, "last state in the stream")


async def multi_turn(job: Job) -> None:
    _, question, said = await answered(job, "the blue one")
    equal((question, said), ("which?", "You answered: the blue one"), "question and answer")


async def resubscribe(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        card: AgentCard = await A2ACardResolver(http, job.a).get_agent_card()
    for interface in card.supported_interfaces:
        interface.url = job.moved(interface.url, "through")
    turn = Turn(A2AConfig.from_card(card, prefer=job.binding))

    async def cut(_: A2ATaskArtifactUpdate) -> None:
        if len(turn.chunks) == 10:
            await job.cut_connections()

    stream = MemoryStream()
    stream.where(A2AEvent).subscribe(turn.see)
    stream.where(A2ATaskArtifactUpdate).subscribe(cut)
    await turn.agent.ask("chunks=60 size=64 delay=100ms", stream=stream)
    equal(turn.last, TaskState.TASK_STATE_COMPLETED, "last state")
    task = await tasks.get_task(config(job, "b"), turn.task.result().id)
    equal_chunks(texts(task.artifacts[0].parts), 60, 64)
    equal_chunks(turn.chunks, 60, 64)


async def parts(job: Job) -> None:
    turn, found = Turn(config(job)), []

    async def see(event: A2ATaskArtifactUpdate) -> None:
        found.extend((p.raw, p.media_type, p.filename) for p in event.update.artifact.parts if p.HasField("raw"))

    async def ask(*said: Any) -> list[tuple[bytes, str, str]]:
        stream = MemoryStream()
        stream.where(A2ATaskArtifactUpdate).subscribe(see)
        found.clear()
        await turn.agent.ask(*said, stream=stream)
        return list(found)

    sent = BinaryInput(BYTES, media_type="image/png", vendor_metadata={"filename": "all.png"})
    equal(await ask("look at this", sent), [(BYTES, "image/png", "all.png")], "file that comes back")
    equal(await ask("file"), [(DEMO_FILE, "text/plain", "hello.txt")], "answer to file")


async def metadata(job: Job) -> None:
    turn = Turn(config(job))
    await turn.ask("echo:with metadata", variables=dict(NESTED))
    task = await tasks.get_task(config(job), turn.task.result().id)
    equal(MessageToDict(task.history[0].metadata).get("ag2.context_update"), NESTED, "metadata")


async def error_not_found(job: Job) -> None:
    await refused(tasks.get_task(config(job), str(uuid.uuid4())), TaskNotFoundError)


async def error_terminal(job: Job) -> None:
    turn = Turn(config(job))
    await turn.ask("echo:done")
    await refused(tasks.cancel_task(config(job), turn.task.result().id), TaskNotCancelableError)


def webhook(job: Job, id: str) -> push.A2APushConfig:
    hook = Hook(id)
    secret = push.A2APushAuthentication(scheme="Bearer", credentials=hook.credentials)
    return push.A2APushConfig(id=id, url=hook.url(job), token=hook.token, authentication=secret)


async def push_config(job: Job) -> None:
    a, b = config(job), config(job, "b")

    async def meanwhile(task: Task) -> None:
        async def ids(remote: A2AConfig) -> list[str | None]:
            return sorted(c.id for c in await push.list_push_notification_configs(remote, task.id))

        for id in ("one", "two"):
            created = await push.create_push_notification_config(a, task.id, webhook(job, id))
            equal((created.id, created.url), (id, Hook(id).url(job)), "created")
        found = await push.get_push_notification_config(b, task.id, "one")
        equal((found.id, found.url), ("one", Hook("one").url(job)), "found")
        equal(await ids(b), ["one", "two"], "listed")
        for _ in range(2):  # it is gone either way
            await push.delete_push_notification_config(a, task.id, "one")
        await refused(push.get_push_notification_config(a, task.id, "one"), TaskNotFoundError)
        equal(await ids(a), ["two"], "left")
        await push.delete_push_notification_config(a, task.id, "two")

    await answered(job, "any", meanwhile=meanwhile)


async def push_(job: Job) -> None:
    """AG2 cannot put a webhook into a send, so this is the half with the webhook of a parked task."""

    async def meanwhile(task: Task) -> None:
        await push.create_push_notification_config(config(job), task.id, webhook(job, "kept"))
        await push.create_push_notification_config(config(job), task.id, webhook(job, "deleted"))
        await push.delete_push_notification_config(config(job, "b"), task.id, "deleted")

    task, _, _ = await answered(job, "that one", meanwhile=meanwhile)
    bodies = await job.delivered(Hook("kept"), 3, "a2a-notification-token")
    updates = [Parse(body, StreamResponse()).status_update for body in bodies]
    states = [TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
    equal([(u.task_id, u.status.state) for u in updates], [(task.id, state) for state in states], "delivered")
    await job.delivered(Hook("deleted"), 0)


async def extended_card(job: Job) -> None:
    """AG2 asks for it before it sends, and shows each card that it gets to the verifier of signatures."""
    seen: list[AgentCard] = []
    await Turn(config(job, card_signature_verifier=seen.append)).ask("echo:hello")
    equal([c.name for c in seen], ["demo", "demo"], "the public card and the extended one")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    answers = await asyncio.gather(*(Turn(config(job)).ask(f"echo:{w}") for w in words))
    equal(answers, words, "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            stream,
            get,
            list_,
            cancel,
            multi_turn,
            resubscribe,
            parts,
            metadata,
            error_not_found,
            error_terminal,
            push_config,
            push_,
            extended_card,
            concurrent,
            *absent("AG2 follows a task until it ends or asks", "return-immediately"),
        ]
    )
