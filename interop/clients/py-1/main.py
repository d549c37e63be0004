"""Interop program of the Python SDK 1 (a2a-sdk on PyPI): one client, three transports, A2A 1.0."""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError
from a2a.helpers import get_text_parts, new_data_part, new_message, new_raw_part, new_text_part
from a2a.types.a2a_pb2 import (
    AgentCard,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import MessageToDict, Parse
from jwt import PyJWK, PyJWKSet

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from interop import (
    BYTES,
    DEMO_DATA,
    DEMO_FILE,
    NESTED,
    Hook,
    Job,
    equal,
    equal_chunks,
    expect,
    main,
    unauthenticated,
    until,
)

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}


@asynccontextmanager
async def connect(job: Job, to: str = "a", interceptors: Any = (), **config: Any) -> AsyncIterator[Client]:
    """A client made from the card of replica A, for that replica or another address."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, job.a).get_agent_card()
        for interface in card.supported_interfaces:
            interface.url = job.moved(interface.url, to)
        factory = ClientFactory(
            ClientConfig(
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=[BINDINGS[job.binding]],
                **config,
            )
        )
        async with factory.create(card, list(interceptors)) as client:
            yield client


def message(text: str, *more: Part, **fields: Any) -> Message:
    return new_message([new_text_part(text), *more], role=Role.ROLE_USER, **fields)


async def sent(client: Client, msg: Message) -> Task:
    """The task that a client, which does not stream, got for its message."""
    async for event in client.send_message(SendMessageRequest(message=msg)):
        expect(event.HasField("task"), f"no task but {event!r}")
        return event.task
    raise AssertionError("the client ended without an event")


async def ask(job: Job, msg: Message) -> Task:
    async with connect(job, streaming=False) as client:
        return await sent(client, msg)


async def got(job: Job, task: Task, to: str = "a", **query: Any) -> Task:
    async with connect(job, to) as client:
        return await client.get_task(GetTaskRequest(id=task.id, **query))


async def folded(events: AsyncIterable[StreamResponse], task: Task) -> AsyncIterator[int]:
    """Brings the task up to date with each event, and tells how many chunks came as events so far."""
    chunks = 0
    async for event in events:
        match event.WhichOneof("payload"):
            case "task":
                task.CopyFrom(event.task)
            case "status_update":
                task.status.CopyFrom(event.status_update.status)
            case "artifact_update":
                chunks += 1
                update = event.artifact_update
                if update.append:
                    equal(task.artifacts[-1].artifact_id, update.artifact.artifact_id, "appended to")
                    task.artifacts[-1].parts.extend(update.artifact.parts)
                else:
                    task.artifacts.append(update.artifact)
            case other:
                expect(False, f"an event with {other}")
        yield chunks


def artifact(task: Task) -> Iterable[Part]:
    equal(len(task.artifacts), 1, "artifacts")
    return task.artifacts[0].parts


def texts(parts: Iterable[Part]) -> list[str]:
    return get_text_parts(list(parts))


def plain(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [MessageToDict(p) for p in parts]


def webhook(job: Job, id: str, task: Task | None = None) -> TaskPushNotificationConfig:
    hook = Hook(id)
    return TaskPushNotificationConfig(
        task_id=task.id if task else "",
        id=id,
        url=hook.url(job),
        token=hook.token,
        authentication=AuthenticationInfo(scheme="Bearer", credentials=hook.credentials),
    )


async def delivered(job: Job, id: str, task: Task, *states: TaskState) -> None:
    """A webhook gets these states of a task, each once and in this order."""
    bodies = await job.delivered(Hook(id), len(states), "a2a-notification-token")
    updates = [Parse(body, StreamResponse()).status_update for body in bodies]
    equal([(u.task_id, u.status.state) for u in updates], [(task.id, state) for state in states], f"delivered to {id}")


async def refused(call: Awaitable[Any], want: type[Exception]) -> None:
    try:
        answer = await call
    except want:
        return
    expect(False, f"no error but {answer!r}")


async def card(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        found: AgentCard = await A2ACardResolver(http, job.a).get_agent_card()
    equal(found.name, "demo", "name")
    expect(found.capabilities.streaming, "the card tells of no streaming")
    async with connect(job) as client:
        await sent(client, message("echo:from the card"))


async def send(job: Job) -> None:
    task = await ask(job, message("echo:hello"))
    equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "state")
    equal(texts(artifact(task)), ["hello"], "artifact")


async def return_immediately(job: Job) -> None:
    async with connect(job, streaming=False, polling=True) as client:
        task = await sent(client, message("sleep=300ms"))
        early = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        expect(task.status.state in early, f"already {TaskState.Name(task.status.state)}")
        await until(
            lambda: client.get_task(GetTaskRequest(id=task.id)),
            lambda t: t.status.state == TaskState.TASK_STATE_COMPLETED,
        )


async def stream(job: Job) -> None:
    task, chunks = Task(), 0
    async with connect(job) as client:
        events = client.send_message(SendMessageRequest(message=message("chunks=20 size=64 delay=5ms")))
        async for chunks in folded(events, task):
            pass
    equal_chunks(texts(artifact(task)), 20, 64)
    equal(chunks, 20, "chunks that came as events")
    equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "last state")


async def get(job: Job) -> None:
    first = await ask(job, message("ask:which?"))
    await ask(job, message("blue", task_id=first.id, context_id=first.context_id))
    task = await got(job, first)
    equal([texts(m.parts) for m in task.history], [["ask:which?"], ["which?"], ["blue"]], "history")
    equal(texts(artifact(task)), ["You answered: blue"], "artifact")
    task = await got(job, first, history_length=1)
    equal([texts(m.parts) for m in task.history], [["blue"]], "history of one message")


async def list_(job: Job) -> None:
    first = await ask(job, message("echo:one"))
    others = [await ask(job, message(f"echo:{n}", context_id=first.context_id)) for n in ("two", "three")]
    async with connect(job) as client:
        page = await client.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=2))
        rest = await client.list_tasks(
            ListTasksRequest(context_id=first.context_id, page_size=2, page_token=page.next_page_token)
        )
    equal([len(page.tasks), page.total_size], [2, 3], "first page")
    equal([len(rest.tasks), rest.next_page_token], [1, ""], "last page")
    ids = [t.id for t in [*page.tasks, *rest.tasks]]
    equal(ids, [t.id for t in (others[1], others[0], first)], "tasks, newest first")


async def cancel(job: Job) -> None:
    async with connect(job, streaming=False, polling=True) as client:
        task = await sent(client, message("hold"))
        canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    equal(canceled.status.state, TaskState.TASK_STATE_CANCELED, "state in the answer")
    equal((await got(job, task)).status.state, TaskState.TASK_STATE_CANCELED, "state")


async def multi_turn(job: Job) -> None:
    question = await ask(job, message("ask:which?"))
    equal(question.status.state, TaskState.TASK_STATE_INPUT_REQUIRED, "state")
    equal(texts(question.status.message.parts), ["which?"], "question")
    async with connect(job, "b", streaming=False) as client:
        answer = message("the blue one", task_id=question.id, context_id=question.context_id)
        task = await sent(client, answer)
    equal(task.id, question.id, "task")
    equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "state after the answer")
    equal(texts(artifact(task)), ["You answered: the blue one"], "artifact")


async def resubscribe(job: Job) -> None:
    task, chunks = Task(), 0
    try:
        async with connect(job, "through") as client:
            events = client.send_message(SendMessageRequest(message=message("chunks=60 size=64 delay=100ms")))
            async for chunks in folded(events, task):
                if chunks == 10:
                    await job.cut_connections()
    except A2AClientError:
        expect(10 <= chunks < 60, f"{chunks} chunks before the cut")
    else:
        expect(False, f"the stream ended as if it had not been cut, after {chunks} chunks")
    async with connect(job, "b") as client:
        async for _ in folded(client.subscribe(SubscribeToTaskRequest(id=task.id)), task):
            pass
    equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "state at the end of the stream")
    equal_chunks(texts(artifact(task)), 60, 64)
    equal_chunks(texts(artifact(await got(job, task, "b"))), 60, 64)


async def parts(job: Job) -> None:
    file = new_raw_part(BYTES, media_type="image/png", filename="all.png")
    msg = message("look at these", file, new_data_part(NESTED, media_type="application/json"))
    task = await ask(job, msg)
    equal(plain(task.history[0].parts), plain(msg.parts), "parts in the history")
    equal(plain((await got(job, task)).history[0].parts), plain(msg.parts), "parts in the history, read again")
    equal(plain(artifact(task)), plain(msg.parts), "parts in the artifact")

    answer = plain(artifact(await ask(job, message("data"))))
    # A protobuf Value knows doubles only.
    equal(answer, [{"data": json.loads(DEMO_DATA, parse_int=float)}], "answer to data")
    answer = plain(artifact(await ask(job, message("file"))))
    equal(answer, plain([new_raw_part(DEMO_FILE, media_type="text/plain", filename="hello.txt")]), "answer to file")


async def metadata(job: Job) -> None:
    msg = message("echo:with metadata")
    msg.metadata.update(NESTED)
    equal(MessageToDict(msg.metadata), NESTED, "metadata before it is sent")
    task = await ask(job, msg)
    equal(MessageToDict(task.history[0].metadata), NESTED, "metadata")
    equal(MessageToDict((await got(job, task)).history[0].metadata), NESTED, "metadata, read again")


async def error_not_found(job: Job) -> None:
    async with connect(job) as client:
        await refused(client.get_task(GetTaskRequest(id=str(uuid.uuid4()))), TaskNotFoundError)


async def error_terminal(job: Job) -> None:
    task = await ask(job, message("echo:done"))
    async with connect(job) as client:
        await refused(client.cancel_task(CancelTaskRequest(id=task.id)), TaskNotCancelableError)


async def push_config(job: Job) -> None:
    task = await ask(job, message("ask:which?"))
    one = {"task_id": task.id, "id": "one"}
    async with connect(job) as a, connect(job, "b") as b:

        async def ids(client: Client) -> list[str]:
            request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
            return sorted(c.id for c in (await client.list_task_push_notification_configs(request)).configs)

        for id in ("one", "two"):
            created = await a.create_task_push_notification_config(webhook(job, id, task))
            equal((created.task_id, created.id, created.url), (task.id, id, Hook(id).url(job)), "created")
        found = await b.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**one))
        equal((found.task_id, found.id, found.url), (task.id, "one", Hook("one").url(job)), "found")
        equal(await ids(b), ["one", "two"], "listed")
        for _ in range(2):  # it is gone either way
            await a.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(**one))
        get = a.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**one))
        await refused(get, TaskNotFoundError)
        equal(await ids(a), ["two"], "left")


async def push(job: Job) -> None:
    submitted, working, completed = (
        TaskState.TASK_STATE_SUBMITTED,
        TaskState.TASK_STATE_WORKING,
        TaskState.TASK_STATE_COMPLETED,
    )
    inline = webhook(job, "inline")
    async with connect(job, streaming=False, polling=True, push_notification_config=inline) as client:
        task = await sent(client, message("chunks=3 size=64 delay=20ms"))
    await delivered(job, "inline", task, working, completed)

    task = await ask(job, message("ask:which?"))
    async with connect(job) as a, connect(job, "b", streaming=False) as b:
        await a.create_task_push_notification_config(webhook(job, "kept", task))
        await a.create_task_push_notification_config(webhook(job, "deleted", task))
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="deleted")
        await b.delete_task_push_notification_config(gone)
        await sent(b, message("that one", task_id=task.id, context_id=task.context_id))
    await delivered(job, "kept", task, submitted, working, completed)
    await delivered(job, "deleted", task)


async def extended_card(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        public = await A2ACardResolver(http, job.a).get_agent_card()
    # Without this the client answers with the public card and calls nobody.
    expect(public.capabilities.extended_agent_card, "the card tells of no extended card")
    async with connect(job) as client:
        extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
    equal(extended.name, "demo", "name")
    expect(extended.supported_interfaces, "the extended card has no interfaces")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    async with connect(job, streaming=False) as client:
        tasks = await asyncio.gather(*(sent(client, message(f"echo:{w}")) for w in words))
    equal([texts(artifact(t)) for t in tasks], [[w] for w in words], "artifacts")
    equal({t.status.state for t in tasks}, {TaskState.TASK_STATE_COMPLETED}, "states")
    equal(len({t.id for t in tasks}), 20, "tasks")


async def auth(job: Job) -> None:
    """The SDK's interceptor adds the credential of a session, by the schemes of the card."""
    job = job.unlocked()
    store = InMemoryContextCredentialStore()
    hello = SendMessageRequest(message=message("echo:hello"))

    async def followed(client: Client, session: ClientCallContext) -> Task:
        task = Task()
        async for _ in folded(client.send_message(hello, context=session), task):
            pass
        return task

    for streaming in (False, True):
        for scheme, credential, accepted in [("keys", "", False), *job.credentials()]:
            if credential:
                await store.set_credentials(credential, scheme, credential)
            session = ClientCallContext(state={"sessionId": credential})
            async with connect(job, streaming=streaming, interceptors=[AuthInterceptor(store)]) as client:
                if not accepted:
                    await unauthenticated(followed(client, session), credential)
                    continue
                equal(texts(artifact(await followed(client, session))), ["hello"], "artifact")


async def auth_card(job: Job) -> None:
    job = job.unlocked()

    def key(kid: str | None, jku: str | None) -> PyJWK:
        """The keys are where the signature says."""
        return PyJWKSet.from_dict(httpx.get(str(jku)).json())[str(kid)]

    verify = create_signature_verifier(key, ["ES256"])
    async with httpx.AsyncClient() as http:
        for version in ("1.0", "0.3", ""):
            resolver = A2ACardResolver(http, job.a)
            headers = {"headers": {"A2A-Version": version}} if version else {}
            public = await resolver.get_agent_card(http_kwargs=headers, signature_verifier=verify)
    equal([s.id for s in public.skills], ["open"], "public skills")
    store = InMemoryContextCredentialStore()
    for scheme, credential, accepted in job.credentials():
        await store.set_credentials(credential, scheme, credential)
        session = ClientCallContext(state={"sessionId": credential})
        async with connect(job, interceptors=[AuthInterceptor(store)]) as client:
            call = client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=session)
            if not accepted:
                await unauthenticated(call, credential)
                continue
            equal([s.id for s in (await call).skills], ["open", "hidden"], "skills")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            return_immediately,
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
            push,
            extended_card,
            concurrent,
            auth,
            auth_card,
        ]
    )
