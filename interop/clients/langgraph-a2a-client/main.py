"""Interop program of langgraph-a2a-client: its tools, called as LangGraph calls them, on a2a-sdk 0.3."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx
from a2a.types import Task, TaskState
from langgraph_a2a_client import A2AClientToolProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
from framework import OTHER_CALLS, absent
from interop import Job, equal, main, until


async def call(provider: A2AClientToolProvider, name: str, **arguments: Any) -> dict[str, Any]:
    tool = next(tool for tool in provider.tools if tool.name == name)
    answer = await tool.ainvoke(arguments)
    equal((answer["status"], answer.get("error")), ("success", None), "outcome of the tool")
    return answer


async def ask(provider: A2AClientToolProvider, job: Job, text: str) -> Task:
    answer = await call(provider, "a2a_send_message", message_text=text, target_agent_url=job.a)
    return Task.model_validate(answer["response"]["task"])


def texts(task: Task) -> list[str]:
    return [part.root.text for part in task.artifacts[0].parts]


async def card(job: Job) -> None:
    async with A2AClientToolProvider() as provider:
        found = await call(provider, "a2a_discover_agent", url=job.a)
    equal(found["agent_card"]["name"], "demo", "name")
    async with A2AClientToolProvider(known_agent_urls=[job.a, job.b]) as provider:
        listed = await call(provider, "a2a_list_discovered_agents")
    equal([agent["name"] for agent in listed["agents"]], ["demo", "demo"], "known agents")


async def send(job: Job) -> None:
    async with A2AClientToolProvider() as provider:
        task = await ask(provider, job, "echo:hello")
        equal((task.status.state, texts(task)), (TaskState.completed, ["hello"]), "answer")
        question = await ask(provider, job, "ask:which?")
        equal(question.status.state, TaskState.input_required, "state of a question")


async def push(job: Job) -> None:
    """Its webhooks come with the send, and have a token and no credentials."""
    async with A2AClientToolProvider(webhook_url=f"{job.receiver}/hook", webhook_token="t-1") as provider:
        task = await ask(provider, job, "chunks=3 size=64 delay=20ms")

    async def arrived() -> list[dict[str, Any]]:
        async with httpx.AsyncClient() as http:
            return (await http.get(f"{job.receiver}/received", params={"path": "/hook"})).raise_for_status().json()

    requests = await until(arrived, lambda requests: len(requests) >= 2)
    equal([r["headers"].get("x-a2a-notification-token") for r in requests], ["t-1", "t-1"], "tokens")
    bodies = [Task.model_validate_json(r["body"]) for r in requests]
    states = [(task.id, TaskState.working), (task.id, TaskState.completed)]
    equal([(body.id, body.status.state) for body in bodies], states, "delivered")


async def concurrent(job: Job) -> None:
    words = [f"word {i}" for i in range(20)]
    async with A2AClientToolProvider() as provider:
        tasks = await asyncio.gather(*(ask(provider, job, f"echo:{w}") for w in words))
    equal([texts(task) for task in tasks], [[w] for w in words], "answers")


if __name__ == "__main__":
    main(
        [
            card,
            send,
            push,
            concurrent,
            *absent("its tool sends one text and waits", "stream", "multi-turn", "parts", "metadata"),
            *absent("it has no such tool", *(name for name in OTHER_CALLS if name != "push")),
        ]
    )
