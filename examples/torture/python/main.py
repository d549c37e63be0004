"""An agent that obeys the contract of docs/torture.md, on the official Python SDK: main.py PORT [memory | database | cluster].

The database is that of DATABASE_URL, such as postgresql+asyncpg://user:password@host/name. The name of the caller is the bearer token.
"""

import asyncio
import contextlib
import os
import sys

import httpx
import uvicorn
from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.tasks import (
    BasePushNotificationSender, DatabasePushNotificationConfigStore, DatabaseTaskStore, InMemoryPushNotificationConfigStore, InMemoryTaskStore,
    TaskUpdater)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette

URL = f"http://127.0.0.1:{sys.argv[1]}/"
STORE = sys.argv[2] if len(sys.argv) > 2 else "memory"


def text(said):
    return [Part(text=said)]


class Agent(AgentExecutor):
    ended = set()  # tasks; a cancel that comes too late must not end them again

    async def execute(self, context, event_queue):
        said, answers = context.message.parts[0].text, context.current_task is not None
        # The context of a message that names only its task is a new one.
        task = TaskUpdater(event_queue, context.task_id, (context.current_task or context).context_id)
        _, verb, rest = (said + "  ").split(" ", 2)
        rest = rest.removesuffix("  ").removesuffix(" ")
        if not answers:
            await event_queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED), history=[context.message]))
        await task.start_work()
        if answers:
            await task.add_artifact(text("You said: " + said), artifact_id=context.message.message_id)
        if said.startswith("torture ask "):
            return await task.requires_input(task.new_agent_message(text(rest)))
        if not answers:
            await self.perform(task, verb, rest)
        self.ended.add(context.task_id)
        await task.complete()

    async def perform(self, task, verb, rest):
        match verb:
            case "echo":
                await task.add_artifact(text(rest), artifact_id="echo")
            case "chunks":
                count, size, pause = map(int, rest.split())
                for i in range(count):
                    if i > 0:
                        await asyncio.sleep(pause / 1000)
                    await task.add_artifact(
                        text(f"{i:08d}".ljust(size, ".")), artifact_id="chunks", append=i > 0, last_chunk=i == count - 1)
            case "sleep":
                await asyncio.sleep(int(rest) / 1000)
            case "hold":
                await asyncio.Event().wait()

    async def cancel(self, context, event_queue):
        if context.task_id not in self.ended:
            await TaskUpdater(event_queue, context.task_id, context.current_task.context_id).cancel()


class Caller(User):
    is_authenticated = True
    user_name = ""

    def __init__(self, name):
        self.user_name = name


class Callers(DefaultServerCallContextBuilder):
    def build_user(self, request):
        scheme, _, name = request.headers.get("authorization", "").partition(" ")
        return Caller(name) if scheme == "Bearer" else UnauthenticatedUser()


def stores():
    if STORE == "memory":
        return InMemoryTaskStore(), InMemoryPushNotificationConfigStore(), {}
    from sqlalchemy.ext.asyncio import create_async_engine
    engine = create_async_engine(os.environ["DATABASE_URL"])
    configs = DatabasePushNotificationConfigStore(engine)
    if STORE == "database":
        return DatabaseTaskStore(engine), configs, {}
    from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
    return VersionedDatabaseTaskStore(engine), configs, {"event_stream": DatabaseTaskEventStream(engine)}


@contextlib.asynccontextmanager
async def tables(_):
    if STORE != "memory":
        await tasks.initialize()
        await configs.initialize()
    yield


card = AgentCard(
    name="torture", description="Obeys the contract of docs/torture.md.", version="1",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    default_input_modes=["text/plain"], default_output_modes=["text/plain"],
    skills=[AgentSkill(id="torture", name="Torture", description="Follows a script.", tags=["test"])],
    supported_interfaces=[
        AgentInterface(url=URL, protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=URL + "rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
        AgentInterface(url=URL, protocol_binding="JSONRPC", protocol_version="0.3")])
tasks, configs, more = stores()
handler = DefaultRequestHandler(
    agent_executor=Agent(), task_store=tasks, agent_card=card, push_config_store=configs,
    push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs), **more)
app = Starlette(lifespan=tables, routes=[
    *create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/", Callers(), enable_v0_3_compat=True),
    *create_rest_routes(handler, Callers(), path_prefix="/rest")])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
