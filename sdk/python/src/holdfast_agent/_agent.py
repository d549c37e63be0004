"""Agents, and serving them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from . import _logs, _reload
from ._active import Handler, is_async
from ._durable import Durable, DurableRun
from ._run import Run, SyncRun
from ._settings import Settings, logger, slots
from ._worker import Worker
from .errors import ConnectError

AsyncFunction = TypeVar("AsyncFunction", bound=Callable[[Run], Awaitable[Any]])
SyncFunction = TypeVar("SyncFunction", bound=Callable[[SyncRun], Any])
Function = TypeVar("Function", bound=Handler)
DurableFunction = TypeVar("DurableFunction", bound=Callable[[DurableRun], Any])

EXECUTOR = "holdfast agent"


class Agent:
    """An agent: a name as configured in the server, and a function that answers a message.

    Without a name it is HOLDFAST_AGENT. `concurrency` is how many runs of it the worker has at once.
    """

    def __init__(self, name: str | None = None, *, concurrency: int | None = None) -> None:
        if name is not None and not name:
            raise ValueError("name: an agent's name is not empty")
        self._name = name
        self.concurrency = None if concurrency is None else slots(concurrency, "concurrency")
        self._handler: Handler | None = None

    @property
    def name(self) -> str:
        name = self._name or os.environ.get("HOLDFAST_AGENT")
        if not name:
            raise ConnectError("name: the agent has no name; write Agent(name) or set HOLDFAST_AGENT")
        return name

    def run(self, function: Function) -> Function:
        """Decorate the function that answers a message: async with a Run, or plain with a SyncRun in a thread of its own."""
        if not callable(function):
            raise TypeError(f"run decorates a function, not {type(function).__name__}")
        self._handler = function
        return function

    def durable(self, function: DurableFunction) -> DurableFunction:
        """Decorate an async function that begins at its top in every try and turn, and gets back what it has recorded."""
        if not is_async(function):
            raise TypeError("durable decorates an async function")
        self._handler = Durable(function)
        return function

    @property
    def handler(self) -> Handler:
        if self._handler is None:
            raise ConnectError(
                f"agent {self._name or 'without a name'}: no function; decorate one with @agent.durable or @agent.run"
            )
        return self._handler

    def serve(self, **options: Any) -> None:
        """Serve this agent until SIGTERM or SIGINT. The options are those of serve."""
        serve(self, **options)

    async def connect(self, **options: Any) -> None:
        """Serve this agent in the present event loop, until the worker is retired or this is canceled."""
        await connect(self, **options)


def worker(
    *agents: Agent,
    url: str | Sequence[str] | None = None,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    concurrency: int | None = None,
    name: str | None = None,
    version: str | None = None,
    drain_timeout: float | None = None,
) -> Worker:
    """Make a worker for these agents. Await its run(); drain() and stop() end it."""
    if not agents:
        raise ConnectError("agents: a worker needs at least one")
    settings = Settings.of(
        url=url,
        api_key=api_key,
        api_key_file=api_key_file,
        concurrency=concurrency,
        name=name,
        version=version,
        drain_timeout=drain_timeout,
    )
    handlers: dict[str, tuple[Handler, int]] = {}
    for agent in agents:
        if agent.name in handlers:
            raise ConnectError(f"agents: two of them are named {agent.name!r}")
        handlers[agent.name] = (agent.handler, agent.concurrency or settings.concurrency)
    return Worker(handlers, settings)


async def connect(*agents: Agent, **options: Any) -> None:
    """Serve agents in the present event loop, until the worker is retired or this is canceled.

    The options are those of serve, without reload.
    """
    await worker(*agents, **options).run()


def serve(
    *agents: Agent,
    url: str | Sequence[str] | None = None,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    concurrency: int | None = None,
    name: str | None = None,
    version: str | None = None,
    drain_timeout: float | None = None,
    reload: bool | None = None,
) -> None:
    """Serve agents until SIGTERM or SIGINT.

    The first signal drains: no more runs are claimed, those under way get `drain_timeout` seconds (30), and the rest are
    released. A second signal releases at once.

    url: of the server, or several; HOLDFAST_URL, default http://127.0.0.1:8080.
    api_key, api_key_file: the credential; HOLDFAST_API_KEY, HOLDFAST_API_KEY_FILE, HOLDFAST_TOKEN_FILE.
    concurrency: how many runs of each agent at once; default 10.
    name, version: of the worker, for operators; HOLDFAST_WORKER_NAME, HOLDFAST_WORKER_VERSION.
    reload: start again when a source file changes; HOLDFAST_RELOAD=1.
    """
    _logs.configure()
    if reload is None:
        reload = os.environ.get("HOLDFAST_RELOAD", "") not in ("", "0")
    if reload and not _reload.is_child():
        raise SystemExit(_reload.supervise())
    if _reload.is_child():
        _reload.follow()
    try:
        made = worker(
            *agents,
            url=url,
            api_key=api_key,
            api_key_file=api_key_file,
            concurrency=concurrency,
            name=name,
            version=version,
            drain_timeout=drain_timeout,
        )
        executor = ThreadPoolExecutor(thread_name_prefix=EXECUTOR)
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            loop.set_default_executor(executor)
            loop.run_until_complete(_run(made))
        finally:
            _shut(loop)
            executor.shutdown(wait=False, cancel_futures=True)
    except ConnectError as e:
        raise SystemExit(f"holdfast: {e}") from None
    _leave()


async def _run(made: Worker) -> None:
    loop = asyncio.get_running_loop()
    signals = 0

    def signaled() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            made.drain()
        else:
            made.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, signaled)
        except (NotImplementedError, RuntimeError):  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(signaled))
    await made.run()


def _shut(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what the agents have left in the loop, and close it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    with contextlib.suppress(Exception):
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        loop.run_until_complete(loop.shutdown_asyncgens())
    if not any(not t.done() for t in left):
        asyncio.set_event_loop(None)
        loop.close()


def _leave() -> None:
    """Exit, although code of the agents that does not end would keep the interpreter."""
    end = time.monotonic() + 1
    for thread in threading.enumerate():
        if thread.name.startswith(EXECUTOR):
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                logger.warning("code of an agent has not ended, the process exits without it")
                logging.shutdown()
                sys.stdout.flush()
                os._exit(0)
