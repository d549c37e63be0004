"""An agent on the server of the official Python SDK 1.x: main.py PORT [PORT OF GRPC]. It prints a line for each execution."""

import asyncio
import sys
from pathlib import Path

import grpc
import httpx
import uvicorn
from a2a.helpers import new_data_part, new_raw_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus, a2a_pb2_grpc
from starlette.applications import Starlette

sys.path.insert(0, str(Path(__file__).parent.parent / "py-common"))
from script import perform

PORT = int(sys.argv[1])
GRPC = f"127.0.0.1:{sys.argv[2]}" if len(sys.argv) > 2 else None


class Make:
    def text(self, text):
        return Part(text=text)

    def file(self, name, media_type, raw):
        return new_raw_part(raw, media_type=media_type, filename=name)

    def data(self, value):
        return new_data_part(value)


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        if not context.current_task:
            await event_queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED), history=[context.message]))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        parts = context.message.parts
        await perform(task, Make(), parts[0].text, parts, bool(context.current_task))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="demo", description="Follows the script in its message.", version="1",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    default_input_modes=["*/*"], default_output_modes=["*/*"],
    skills=[AgentSkill(id="demo", name="Demo", description="Follows a script.", tags=["demo"])],
    supported_interfaces=[AgentInterface(url=f"http://127.0.0.1:{PORT}/", protocol_binding="JSONRPC", protocol_version="1.0")],
)
if GRPC:
    card.supported_interfaces.append(AgentInterface(url=GRPC, protocol_binding="GRPC", protocol_version="1.0"))
pushes = InMemoryPushNotificationConfigStore()
handler = DefaultRequestHandler(
    agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card,
    push_config_store=pushes, push_sender=BasePushNotificationSender(httpx.AsyncClient(), pushes))
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])


async def serve():
    if GRPC:
        server = grpc.aio.server()
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        server.add_insecure_port(GRPC)
        await server.start()
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=PORT, log_level="warning")).serve()


asyncio.run(serve())
