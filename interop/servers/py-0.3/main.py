"""An agent on the server of the official Python SDK 0.3: main.py PORT [PORT OF GRPC]. It prints a line for each execution."""

import asyncio
import base64
import sys
from pathlib import Path

import grpc
import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.grpc import a2a_pb2_grpc
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, DataPart, FilePart, FileWithBytes, Part, TextPart
from a2a.utils import new_task

sys.path.insert(0, str(Path(__file__).parent.parent / "py-common"))
from script import perform

PORT = int(sys.argv[1])
GRPC = f"127.0.0.1:{sys.argv[2]}" if len(sys.argv) > 2 else None


class Make:
    def text(self, text):
        return Part(root=TextPart(text=text))

    def file(self, name, media_type, raw):
        return Part(root=FilePart(file=FileWithBytes(name=name, mime_type=media_type, bytes=base64.b64encode(raw).decode())))

    def data(self, value):
        return Part(root=DataPart(data=value))


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        if not context.current_task:
            await event_queue.enqueue_event(new_task(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        parts = context.message.parts
        await perform(task, Make(), parts[0].root.text, parts, bool(context.current_task))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="demo", description="Follows the script in its message.", version="1", url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True), default_input_modes=["*/*"], default_output_modes=["*/*"],
    skills=[AgentSkill(id="demo", name="Demo", description="Follows a script.", tags=["demo"])],
)
if GRPC:
    card.additional_interfaces = [AgentInterface(url=GRPC, transport="GRPC")]
pushes = InMemoryPushNotificationConfigStore()
handler = DefaultRequestHandler(
    agent_executor=Agent(), task_store=InMemoryTaskStore(),
    push_config_store=pushes, push_sender=BasePushNotificationSender(httpx.AsyncClient(), pushes))


async def serve():
    if GRPC:
        server = grpc.aio.server()
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
        server.add_insecure_port(GRPC)
        await server.start()
    app = A2AStarletteApplication(card, handler).build()
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=PORT, log_level="warning")).serve()


asyncio.run(serve())
