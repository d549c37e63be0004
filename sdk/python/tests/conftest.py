from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast_agent import Agent, Worker, worker
from server import LIMIT, Server


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for key in [k for k in os.environ if k.startswith("HOLDFAST_")]:
        monkeypatch.delenv(key)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as s:
        yield s


class Running:
    """A worker in this loop."""

    def __init__(self, made: Worker) -> None:
        self.worker = made
        self.task = asyncio.create_task(made.run())

    async def ended(self) -> None:
        await asyncio.wait_for(self.task, LIMIT)


Start = Callable[..., Running]


@pytest.fixture
async def start(server: Server) -> AsyncIterator[Start]:
    """Start a worker; it is stopped at the end of the test."""
    started: list[Running] = []

    def begin(*agents: Agent, **options: Any) -> Running:
        running = Running(worker(*agents, **{"url": server.url, **options}))
        started.append(running)
        return running

    yield begin
    for running in started:
        running.worker.stop()
        with contextlib.suppress(Exception):
            await running.ended()
