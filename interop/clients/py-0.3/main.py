"""Interop program of the Python SDK 0.3 (a2a-sdk on PyPI): one client, three transports."""

import asyncio
import base64
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError, A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    AgentCard,
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from channel import header, showing
from interop import (
    BYTES,
    DEMO_DATA,
    DEMO_FILE,
    NESTED,
    Absent,
    Hook,
    Job,
    equal,
    equal_chunks,
    expect,
    main,
    unauthenticated,
    until,
)

TRANSPORTS = {
    "jsonrpc": TransportProtocol.jsonrpc,
    "rest": TransportProtocol.http_json,
    "grpc": TransportProtocol.grpc,
}

# What says task not found, not cancelable and so on: the JSON-RPC code; over HTTP+JSON that code beside
# the HTTP status; over gRPC the status, which is all there is.
NOT_FOUND = {"jsonrpc": -32001, "rest": (404, -32001), "grpc": grpc.StatusCode.NOT_FOUND}
NOT_CANCELABLE = {"jsonrpc": -32002, "rest": (409, -32002), "grpc": grpc.StatusCode.FAILED_PRECONDITION}


@asynccontextmanager
async def connect(
    job: Job,
    to: str = "a",
    interceptors: Any = (),
    headers: Any = None,
    channel: Any = grpc.aio.insecure_channel,
    **config: Any,
) -> AsyncIterator[Client]:
    """A client made from the card of replica A, for that replica or another address."""
    async with httpx.AsyncClient(headers=headers) as http:
        card = await A2ACardResolver(http, job.a).get_agent_card()
        factory = ClientFactory(
            ClientConfig(
                httpx_client=http,
                grpc_channel_factory=channel,
                supported_transports=[TRANSPORTS[job.binding]],
                **config,
            )
        )
        client = factory.create(moved(card, job, to), interceptors=list(interceptors))
        try:
            yield client
        finally:
            await client.close()


def moved(card: AgentCard, job: Job, to: str) -> AgentCard:
    interfaces = [i.model_copy(update={"url": job.moved(i.url, to)}) for i in card.additional_interfaces or []]
    return card.model_copy(update={"url": job.moved(card.url, to), "additional_interfaces": interfaces})


def message(text: str, *more: Part, **fields: Any) -> Message:
    return Message(
        role=Role.user, message_id=str(uuid.uuid4()), parts=[Part(root=TextPart(text=text)), *more], **fields
    )


async def sent(client: Client, msg: Message) -> Task:
    """The task that a client, which does not stream, got for its message."""
    async for event in client.send_message(msg):
        expect(isinstance(event, tuple), f"a bare message instead of a task: {event!r}")
        return event[0]
    raise AssertionError("the client ended without an event")


async def ask(job: Job, msg: Message) -> Task:
    async with connect(job, streaming=False) as client:
        return await sent(client, msg)


async def got(job: Job, task: Task, to: str = "a", **query: Any) -> Task:
    async with connect(job, to) as client:
        return await client.get_task(TaskQueryParams(id=task.id, **query))


def texts(parts: list[Part]) -> list[str]:
    return [p.root.text for p in parts if isinstance(p.root, TextPart)]


def artifact(task: Task) -> list[Part]:
    equal(len(task.artifacts or []), 1, "artifacts")
    return task.artifacts[0].parts


def plain(parts: list[Part]) -> list[dict[str, Any]]:
    """What is said in parts, whatever the transport makes of members that are not set."""
    said = []
    for part in parts:
        match part.root:
            case TextPart(text=text):
                said.append({"text": text})
            case DataPart(data=data):
                said.append({"data": data})
            case FilePart(file=FileWithBytes() as file):
                said.append({"bytes": file.bytes, "type": file.mime_type, "name": file.name})
            case other:
                said.append({"other": other})
    return said


def webhook(job: Job, id: str) -> PushNotificationConfig:
    hook = Hook(id)
    auth = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials=hook.credentials)
    return PushNotificationConfig(id=id, url=hook.url(job), token=hook.token, authentication=auth)


async def delivered(job: Job, id: str, task: Task, *states: TaskState) -> None:
    """A webhook gets a task as it was in these states, each once and in this order."""
    then = [Task.model_validate_json(body) for body in await job.delivered(Hook(id), len(states))]
    equal([(t.id, t.status.state) for t in then], [(task.id, state) for state in states], f"delivered to {id}")
    made = [int(state == TaskState.completed) for state in states]
    equal([len(t.artifacts or []) for t in then], made, "artifacts")


def reason(job: Job, e: BaseException) -> Any:
    match job.binding, e:
        case "jsonrpc", A2AClientJSONRPCError():
            return e.error.code
        case "rest", A2AClientHTTPError(__cause__=httpx.HTTPStatusError() as cause):
            return e.status_code, cause.response.json().get("code")
        case "grpc", grpc.aio.AioRpcError():
            return e.code()
    return f"{type(e).__name__}: {e}"


async def refused(job: Job, call: Any, want: dict[str, Any]) -> None:
    try:
        answer = await call
    except (A2AClientError, grpc.aio.AioRpcError) as e:
        equal(reason(job, e), want[job.binding], "error")
    else:
        expect(False, f"no error but {answer!r}")


async def card(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        found = await A2ACardResolver(http, job.a).get_agent_card()
    equal(found.name, "demo", "name")
    expect(found.capabilities.streaming, "the card tells of no streaming")
    async with connect(job) as client:
        await sent(client, message("echo:from the card"))


async def send(job: Job) -> None:
    task = await ask(job, message("echo:hello"))
    equal(task.status.state, TaskState.completed, "state")
    equal(texts(artifact(task)), ["hello"], "artifact")


async def return_immediately(job: Job) -> None:
    async with connect(job, streaming=False, polling=True) as client:
        task = await sent(client, message("sleep=300ms"))
        expect(task.status.state in (TaskState.submitted, TaskState.working), f"already {task.status.state}")
        await until(
            lambda: client.get_task(TaskQueryParams(id=task.id)),
            lambda t: t.status.state == TaskState.completed,
        )


async def stream(job: Job) -> None:
    chunks, task = [], None
    async with connect(job) as client:
        async for task, update in client.send_message(message("chunks=20 size=64 delay=5ms")):
            if isinstance(update, TaskArtifactUpdateEvent):
                chunks += texts(update.artifact.parts)
    equal_chunks(chunks, 20, 64)
    equal_chunks(texts(artifact(task)), 20, 64)
    equal(task.status.state, TaskState.completed, "last state")


async def get(job: Job) -> None:
    first = await ask(job, message("ask:which?"))
    await ask(job, message("blue", task_id=first.id, context_id=first.context_id))
    task = await got(job, first)
    equal([texts(m.parts) for m in task.history], [["ask:which?"], ["which?"], ["blue"]], "history")
    equal(texts(artifact(task)), ["You answered: blue"], "artifact")
    task = await got(job, first, history_length=1)
    equal([texts(m.parts) for m in task.history], [["blue"]], "history of one message")


async def list_(job: Job) -> None:
    raise Absent("Client has no call to list tasks")


async def cancel(job: Job) -> None:
    async with connect(job, streaming=False, polling=True) as client:
        task = await sent(client, message("hold"))
        canceled = await client.cancel_task(TaskIdParams(id=task.id))
        equal(canceled.status.state, TaskState.canceled, "state in the answer")
    equal((await got(job, task)).status.state, TaskState.canceled, "state")


async def multi_turn(job: Job) -> None:
    question = await ask(job, message("ask:which?"))
    equal(question.status.state, TaskState.input_required, "state")
    equal(texts(question.status.message.parts), ["which?"], "question")
    async with connect(job, "b", streaming=False) as client:
        answer = message("the blue one", task_id=question.id, context_id=question.context_id)
        task = await sent(client, answer)
    equal(task.id, question.id, "task")
    equal(task.status.state, TaskState.completed, "state after the answer")
    equal(texts(artifact(task)), ["You answered: the blue one"], "artifact")


async def resubscribe(job: Job) -> None:
    task, seen = None, 0
    try:
        async with connect(job, "through") as client:
            async for task, update in client.send_message(message("chunks=60 size=64 delay=100ms")):
                seen += isinstance(update, TaskArtifactUpdateEvent)
                if seen == 10:
                    await job.cut_connections()
    except (A2AClientError, grpc.aio.AioRpcError):
        expect(10 <= seen < 60, f"{seen} chunks before the cut")
    else:
        expect(False, f"the stream ended as if it had not been cut, after {seen} chunks")
    async with connect(job, "b") as client:
        async for task, _ in client.resubscribe(TaskIdParams(id=task.id)):
            pass
    equal(task.status.state, TaskState.completed, "state at the end of the stream")
    equal_chunks(texts(artifact(task)), 60, 64)
    equal_chunks(texts(artifact(await got(job, task, "b"))), 60, 64)


async def parts(job: Job) -> None:
    file = FileWithBytes(bytes=base64.b64encode(BYTES).decode(), mime_type="image/png", name="all.png")
    msg = message("look at these", Part(root=FilePart(file=file)), Part(root=DataPart(data=NESTED)))
    task = await ask(job, msg)
    equal(plain(task.history[0].parts), plain(msg.parts), "parts in the history")
    equal(plain((await got(job, task)).history[0].parts), plain(msg.parts), "parts in the history, read again")
    equal(plain(artifact(task)), plain(msg.parts), "parts in the artifact")

    answer = plain(artifact(await ask(job, message("data"))))
    whole = None if job.binding == "jsonrpc" else float  # a protobuf Struct knows doubles only
    equal(answer, [{"data": json.loads(DEMO_DATA, parse_int=whole)}], "answer to data")
    answer = plain(artifact(await ask(job, message("file"))))
    want = {"bytes": base64.b64encode(DEMO_FILE).decode(), "type": "text/plain", "name": "hello.txt"}
    equal(answer, [want], "answer to file")


async def metadata(job: Job) -> None:
    task = await ask(job, message("echo:with metadata", metadata=NESTED))
    equal(task.history[0].metadata, NESTED, "metadata")
    equal((await got(job, task)).history[0].metadata, NESTED, "metadata, read again")


async def error_not_found(job: Job) -> None:
    async with connect(job) as client:
        await refused(job, client.get_task(TaskQueryParams(id=str(uuid.uuid4()))), NOT_FOUND)


async def error_terminal(job: Job) -> None:
    task = await ask(job, message("echo:done"))
    async with connect(job) as client:
        await refused(job, client.cancel_task(TaskIdParams(id=task.id)), NOT_CANCELABLE)


async def push_config(job: Job) -> None:
    """Client has no calls to list and to delete."""
    task = await ask(job, message("ask:which?"))

    def shown(c: TaskPushNotificationConfig) -> tuple[str, str | None, str]:
        return c.task_id, c.push_notification_config.id, c.push_notification_config.url

    async with connect(job) as a, connect(job, "b") as b:
        for id in ("one", "two"):
            hook = TaskPushNotificationConfig(task_id=task.id, push_notification_config=webhook(job, id))
            equal(shown(await a.set_task_callback(hook)), (task.id, id, Hook(id).url(job)), "set")
        two = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="two")
        equal(shown(await b.get_task_callback(two)), (task.id, "two", Hook("two").url(job)), "found")
        three = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="three")
        await refused(job, b.get_task_callback(three), NOT_FOUND)


async def push(job: Job) -> None:
    inline = [webhook(job, "inline")]
    async with connect(job, streaming=False, polling=True, push_notification_configs=inline) as client:
        task = await sent(client, message("chunks=3 size=64 delay=20ms"))
    await delivered(job, "inline", task, TaskState.working, TaskState.completed)

    task = await ask(job, message("ask:which?"))
    async with connect(job) as a, connect(job, "b", streaming=False) as b:
        hook = webhook(job, "later")
        await a.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=hook))
        await sent(b, message("that one", task_id=task.id, context_id=task.context_id))
    await delivered(job, "later", task, TaskState.submitted, TaskState.working, TaskState.completed)


async def extended_card(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        public = await A2ACardResolver(http, job.a).get_agent_card()
    # Without this the client answers with the public card and calls nobody.
    expect(public.supports_authenticated_extended_card, "the card tells of no extended card")
    async with connect(job) as client:
        extended = await client.get_card()
    equal(extended.name, "demo", "name")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    async with connect(job, streaming=False) as client:
        tasks = await asyncio.gather(*(sent(client, message(f"echo:{w}")) for w in words))
    equal([texts(artifact(t)) for t in tasks], [[w] for w in words], "artifacts")
    equal({t.status.state for t in tasks}, {TaskState.completed}, "states")
    equal(len({t.id for t in tasks}), 20, "tasks")


async def auth(job: Job) -> None:
    """The SDK's interceptor adds the credential of a session, by the schemes of the card. It reaches JSON-RPC only:
    elsewhere the HTTP client or the channel adds it."""
    job = job.unlocked()

    async def followed(client: Client, session: ClientCallContext) -> Task:
        task = None
        async for task, _ in client.send_message(message("echo:hello"), context=session):
            pass
        return task

    for streaming in (False, True):
        for scheme, credential, accepted in [("keys", "", False), *job.credentials()]:
            session, more = await shown(job, scheme, credential)
            async with connect(job, streaming=streaming, **more) as client:
                if not accepted:
                    await unauthenticated(followed(client, session), credential)
                    continue
                equal(texts(artifact(await followed(client, session))), ["hello"], "artifact")


async def shown(job: Job, scheme: str, credential: str) -> tuple[ClientCallContext, dict[str, Any]]:
    """A session with a credential, and what else a client needs to show it."""
    store = InMemoryContextCredentialStore()
    await store.set_credentials("session", scheme, credential)
    name, value = header(scheme, credential)
    more: dict[str, Any] = {"interceptors": [AuthInterceptor(store)]}
    if credential and job.binding == "rest":
        more = {"headers": {name: value}}
    if credential and job.binding == "grpc":
        more = {"channel": showing(name, value)}
    return ClientCallContext(state={"sessionId": "session"}), more


async def auth_card(job: Job) -> None:
    job = job.unlocked()
    async with httpx.AsyncClient() as http:
        public = await A2ACardResolver(http, job.a).get_agent_card()
    equal([s.id for s in public.skills], ["open"], "public skills")
    for scheme, credential, accepted in job.credentials():
        session, more = await shown(job, scheme, credential)
        async with connect(job, **more) as client:
            call = client.get_card(context=session)
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
