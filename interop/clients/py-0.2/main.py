"""Interop program of the Python SDK 0.2 (a2a-sdk on PyPI): a client for JSON-RPC and one for gRPC."""

import asyncio
import base64
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, A2AClient, A2AGrpcClient
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.middleware import ClientCallContext
from a2a.grpc import a2a_pb2_grpc
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    JSONRPCErrorResponse,
    Message,
    MessageSendConfiguration,
    MessageSendParams,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    SendMessageRequest,
    SendStreamingMessageRequest,
    SetTaskPushNotificationConfigRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a.utils.constants import EXTENDED_AGENT_CARD_PATH

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

# What says task not found, not cancelable and so on: the JSON-RPC code; over gRPC the status, which is all there is.
NOT_FOUND = {"jsonrpc": -32001, "grpc": grpc.StatusCode.NOT_FOUND}
NOT_CANCELABLE = {"jsonrpc": -32002, "grpc": grpc.StatusCode.FAILED_PRECONDITION}


class Refused(Exception):
    """The error of an answer; why is its code."""

    def __init__(self, why: Any):
        super().__init__(why)
        self.why = why


class JsonRpc:
    """A2AClient, which takes and gives envelopes, without them."""

    def __init__(self, client: A2AClient, session: ClientCallContext | None = None):
        self.client = client
        self.session = session

    @staticmethod
    def result(response: Any) -> Any:
        if isinstance(response.root, JSONRPCErrorResponse):
            raise Refused(response.root.error.code)
        return response.root.result

    async def send(self, params: MessageSendParams) -> Any:
        request = SendMessageRequest(id=str(uuid.uuid4()), params=params)
        return self.result(await self.client.send_message(request, context=self.session))

    async def stream(self, params: MessageSendParams) -> AsyncIterator[Any]:
        request = SendStreamingMessageRequest(id=str(uuid.uuid4()), params=params)
        async for response in self.client.send_message_streaming(request, context=self.session):
            yield self.result(response)

    async def get(self, params: TaskQueryParams) -> Task:
        return self.result(await self.client.get_task(GetTaskRequest(id=str(uuid.uuid4()), params=params)))

    async def cancel(self, params: TaskIdParams) -> Task:
        return self.result(await self.client.cancel_task(CancelTaskRequest(id=str(uuid.uuid4()), params=params)))

    async def set_push(self, params: TaskPushNotificationConfig) -> Any:
        request = SetTaskPushNotificationConfigRequest(id=str(uuid.uuid4()), params=params)
        return self.result(await self.client.set_task_callback(request))

    async def get_push(self, params: TaskIdParams) -> TaskPushNotificationConfig:
        request = GetTaskPushNotificationConfigRequest(id=str(uuid.uuid4()), params=params)
        return self.result(await self.client.get_task_callback(request))


class Grpc:
    """A2AGrpcClient under the same names."""

    def __init__(self, client: A2AGrpcClient):
        self.stream = client.send_message_streaming
        self.send = self.refusing(client.send_message)
        self.get = self.refusing(client.get_task)
        self.cancel = self.refusing(client.cancel_task)
        self.set_push = self.refusing(client.set_task_callback)
        self.get_push = self.refusing(client.get_task_callback)

    @staticmethod
    def refusing(call: Any) -> Any:
        async def refusing(params: Any) -> Any:
            try:
                return await call(params)
            except grpc.aio.AioRpcError as e:
                raise Refused(e.code()) from e

        return refusing


@asynccontextmanager
async def connect(
    job: Job, to: str = "a", interceptors: Any = (), session: Any = None, channel: Any = grpc.aio.insecure_channel
) -> AsyncIterator[JsonRpc | Grpc]:
    """A client made from the card of replica A, for that replica or another address."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, job.a).get_agent_card()
        match job.binding:
            case "jsonrpc":
                moved = card.model_copy(update={"url": job.moved(card.url, to)})
                yield JsonRpc(A2AClient(http, agent_card=moved, interceptors=list(interceptors)), session)
            case "grpc":
                # The client takes a stub, and leaves it to the program to find the address in the card.
                async with channel(job.moved(grpc_address(card), to)) as opened:
                    yield Grpc(A2AGrpcClient(a2a_pb2_grpc.A2AServiceStub(opened), card))
            case other:
                raise Absent(f"there is no client for {other}")


def grpc_address(card: AgentCard) -> str:
    for interface in card.additional_interfaces or []:
        if interface.transport == "GRPC":
            return interface.url
    raise AssertionError("the card tells of no gRPC")


def message(text: str, *more: Part, **fields: Any) -> Message:
    return Message(
        role=Role.user, message_id=str(uuid.uuid4()), parts=[Part(root=TextPart(text=text)), *more], **fields
    )


def params(msg: Message, blocking: bool = True, **more: Any) -> MessageSendParams:
    configuration = MessageSendConfiguration(accepted_output_modes=["*/*"], blocking=blocking, **more)
    return MessageSendParams(message=msg, configuration=configuration)


async def ask(job: Job, msg: Message, to: str = "a") -> Task:
    async with connect(job, to) as client:
        return await client.send(params(msg))


async def got(job: Job, task: Task, **query: Any) -> Task:
    async with connect(job) as client:
        return await client.get(TaskQueryParams(id=task.id, **query))


def texts(parts: list[Part]) -> list[str]:
    return [p.root.text for p in parts if isinstance(p.root, TextPart)]


def artifact(task: Task) -> list[Part]:
    equal(len(task.artifacts or []), 1, "artifacts")
    return task.artifacts[0].parts


def plain(parts: list[Part]) -> list[dict[str, Any]]:
    """What is said in parts, without members that are not set."""
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


async def refused(job: Job, call: Awaitable[Any], want: dict[str, Any]) -> None:
    try:
        answer = await call
    except Refused as e:
        equal(e.why, want[job.binding], "error")
    else:
        expect(False, f"no error but {answer!r}")


async def card(job: Job) -> None:
    async with httpx.AsyncClient() as http:
        found = await A2ACardResolver(http, job.a).get_agent_card()
    equal(found.name, "demo", "name")
    expect(found.capabilities.streaming, "the card tells of no streaming")
    await ask(job, message("echo:from the card"))


async def send(job: Job) -> None:
    task = await ask(job, message("echo:hello"))
    equal(task.status.state, TaskState.completed, "state")
    equal(texts(artifact(task)), ["hello"], "artifact")


async def return_immediately(job: Job) -> None:
    async with connect(job) as client:
        task = await client.send(params(message("sleep=300ms"), blocking=False))
        expect(task.status.state in (TaskState.submitted, TaskState.working), f"already {task.status.state}")
        await until(lambda: got(job, task), lambda t: t.status.state == TaskState.completed)


async def stream(job: Job) -> None:
    chunks, last = [], None
    async with connect(job) as client:
        async for event in client.stream(params(message("chunks=20 size=64 delay=5ms"))):
            match event:
                case Task():
                    equal(event.artifacts or [], [], "artifacts when the stream opens")
                case TaskArtifactUpdateEvent():
                    equal(event.append or False, bool(chunks), "append")
                    chunks += texts(event.artifact.parts)
                case TaskStatusUpdateEvent():
                    last = event
    equal_chunks(chunks, 20, 64)
    equal(last.status.state, TaskState.completed, "last state")
    expect(last.final, "the last event is not final")


async def get(job: Job) -> None:
    first = await ask(job, message("ask:which?"))
    await ask(job, message("blue", task_id=first.id, context_id=first.context_id))
    task = await got(job, first)
    equal([texts(m.parts) for m in task.history], [["ask:which?"], ["which?"], ["blue"]], "history")
    equal(texts(artifact(task)), ["You answered: blue"], "artifact")
    task = await got(job, first, history_length=1)
    equal([texts(m.parts) for m in task.history], [["blue"]], "history of one message")


async def list_(job: Job) -> None:
    raise Absent("A2AClient and A2AGrpcClient have no call to list tasks")


async def cancel(job: Job) -> None:
    async with connect(job) as client:
        task = await client.send(params(message("hold"), blocking=False))
        canceled = await client.cancel(TaskIdParams(id=task.id))
    equal(canceled.status.state, TaskState.canceled, "state in the answer")
    equal((await got(job, task)).status.state, TaskState.canceled, "state")


async def multi_turn(job: Job) -> None:
    question = await ask(job, message("ask:which?"))
    equal(question.status.state, TaskState.input_required, "state")
    equal(texts(question.status.message.parts), ["which?"], "question")
    task = await ask(job, message("the blue one", task_id=question.id, context_id=question.context_id), to="b")
    equal(task.id, question.id, "task")
    equal(task.status.state, TaskState.completed, "state after the answer")
    equal(texts(artifact(task)), ["You answered: the blue one"], "artifact")


async def resubscribe(job: Job) -> None:
    raise Absent("A2AClient and A2AGrpcClient have no call to resubscribe")


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
        await refused(job, client.get(TaskQueryParams(id=str(uuid.uuid4()))), NOT_FOUND)


async def error_terminal(job: Job) -> None:
    task = await ask(job, message("echo:done"))
    async with connect(job) as client:
        await refused(job, client.cancel(TaskIdParams(id=task.id)), NOT_CANCELABLE)


async def push_config(job: Job) -> None:
    """Neither client has calls to list and to delete."""
    task = await ask(job, message("ask:which?"))
    async with connect(job) as a, connect(job, "b") as b:
        await refused(job, a.get_push(TaskIdParams(id=task.id)), NOT_FOUND)
        hook = TaskPushNotificationConfig(task_id=task.id, push_notification_config=webhook(job, "one"))
        for config in (await a.set_push(hook), await b.get_push(TaskIdParams(id=task.id))):
            got = config.task_id, config.push_notification_config.id, config.push_notification_config.url
            equal(got, (task.id, "one", Hook("one").url(job)), "configuration")


async def push(job: Job) -> None:
    async with connect(job) as a, connect(job, "b") as b:
        inline = params(message("chunks=3 size=64 delay=20ms"), False, push_notification_config=webhook(job, "inline"))
        task = await a.send(inline)
        await delivered(job, "inline", task, TaskState.working, TaskState.completed)

        task = await ask(job, message("ask:which?"))
        hook = TaskPushNotificationConfig(task_id=task.id, push_notification_config=webhook(job, "later"))
        try:
            await a.set_push(hook)
        except AttributeError:
            # A2AGrpcClient cannot read the answer, which push-config is about. The webhook is set.
            equal(job.binding, "grpc", "binding")
        await b.send(params(message("that one", task_id=task.id, context_id=task.context_id)))
        await delivered(job, "later", task, TaskState.submitted, TaskState.working, TaskState.completed)


async def extended_card(job: Job) -> None:
    if job.binding == "grpc":
        raise Absent("A2AGrpcClient has no call for a card")
    async with httpx.AsyncClient() as http:
        resolver = A2ACardResolver(http, job.a)
        public = await resolver.get_agent_card()
        expect(public.supports_authenticated_extended_card, "the card tells of no extended card")
        extended = await resolver.get_agent_card(EXTENDED_AGENT_CARD_PATH)
    equal(extended.name, "demo", "name")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    async with connect(job) as client:
        tasks = await asyncio.gather(*(client.send(params(message(f"echo:{w}"))) for w in words))
    equal([texts(artifact(t)) for t in tasks], [[w] for w in words], "artifacts")
    equal({t.status.state for t in tasks}, {TaskState.completed}, "states")
    equal(len({t.id for t in tasks}), 20, "tasks")


async def auth(job: Job) -> None:
    """The SDK's interceptor adds the credential of a session, by the schemes of the card. A2AGrpcClient has none: there
    the channel adds it."""
    job = job.unlocked()
    store = InMemoryContextCredentialStore()

    async def streamed(client: JsonRpc | Grpc) -> list[str]:
        said = []
        async for event in client.stream(params(message("echo:hello"))):
            match event:
                case Task():
                    said = [t for a in event.artifacts or [] for t in texts(a.parts)]
                case TaskArtifactUpdateEvent():
                    said += texts(event.artifact.parts)
        return said

    for scheme, credential, accepted in [("keys", "", False), *job.credentials()]:
        more: dict[str, Any] = {"interceptors": [AuthInterceptor(store)]}
        if credential:
            await store.set_credentials(credential, scheme, credential)
            if job.binding == "grpc":
                more = {"channel": showing(*header(scheme, credential))}
        async with connect(job, session=ClientCallContext(state={"sessionId": credential}), **more) as client:
            if not accepted:
                await unauthenticated(client.send(params(message("echo:hello"))), credential)
                # Of an answer that is no stream, the SDK tells only that.
                await unauthenticated(streamed(client), credential, "text/event-stream")
                continue
            equal(texts(artifact(await client.send(params(message("echo:hello"))))), ["hello"], "artifact")
            equal(await streamed(client), ["hello"], "artifact on the stream")


async def auth_card(job: Job) -> None:
    """The resolver takes headers for the extended card."""
    if job.binding == "grpc":
        raise Absent("A2AGrpcClient has no call for a card")
    job = job.unlocked()
    async with httpx.AsyncClient() as http:
        resolver = A2ACardResolver(http, job.a)
        public = await resolver.get_agent_card()
        equal([s.id for s in public.skills], ["open"], "public skills")
        await unauthenticated(resolver.get_agent_card(EXTENDED_AGENT_CARD_PATH), "")
        for scheme, credential, accepted in job.credentials():
            name, value = header(scheme, credential)
            call = resolver.get_agent_card(EXTENDED_AGENT_CARD_PATH, {"headers": {name: value}})
            if accepted:
                equal([s.id for s in (await call).skills], ["open", "hidden"], "skills")
            else:
                await unauthenticated(call, credential)


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
