"""A server for tests, with a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from ._agent import Agent, worker
from ._worker import Worker
from .content import JSON, Artifact, Message, MessageLike, to_message

log = logging.getLogger("holdfast.server")
START = 120.0
"""Seconds that a start may take: the first one on a machine unpacks PostgreSQL."""


@dataclass
class Answered:
    """A task, as its client sees it."""

    id: str
    state: str
    """completed, input-required and so on."""
    message: Message
    """Of the status: the question, or what the task failed with."""
    artifacts: list[Artifact] = field(default_factory=list)
    document: dict[str, JSON] = field(default_factory=dict)
    """The task in A2A 1.0."""

    @property
    def text(self) -> str:
        """The text of all artifacts."""
        return "".join(a.text for a in self.artifacts)


class DevServer:
    """A Holdfast server with a database of its own, for tests that see an agent as its clients do.

        @pytest.fixture(scope="session")
        def server():
            with testing.DevServer(agent) as server:
                yield server

        def test_trip(server):
            asked = server.send("Book me a trip")
            server.kill()  # as kill -9 does
            server.start()
            assert server.send("Oslo", task=asked.id).text == "Oslo it is."

    agents: those to serve, in a thread of this process; a str is the name of an agent that other processes of the test serve.
    binary: the server's; default HOLDFAST_BINARY, then what `pip install holdfast` brought, then PATH.
    database_url: a PostgreSQL to use instead of one in a temporary directory.

    The log goes to the logger holdfast.server, so pytest shows it with a test that fails.
    """

    def __init__(self, *agents: Agent | str, binary: str | None = None, database_url: str | None = None) -> None:
        if not agents:
            raise ValueError("agents: a server needs at least one")
        self._agents = agents
        self._binary = binary or _find()
        self._database_url = database_url
        self._http = httpx.Client(timeout=60.0)
        self._process: subprocess.Popen[str] | None = None
        self._thread: _Thread | None = None
        self._directory = ""
        self.url = ""
        """The base URL of the agents: HOLDFAST_URL of a worker."""
        self.admin_url = ""
        """The base URL of metrics, health and console."""

    @property
    def console_url(self) -> str:
        """The console's address."""
        return self.admin_url + "/console/"

    def __enter__(self) -> DevServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the server; again with the same addresses and data after kill or stop."""
        if self._process is not None:
            return
        if not self._directory:
            self._directory = tempfile.mkdtemp(prefix="holdfast-dev-")
            os.chmod(self._directory, 0o755)  # root's PostgreSQL runs as another user
            names = [a if isinstance(a, str) else a.name for a in self._agents]
            agents = [{"name": name, "executor": {"kind": "worker"}} for name in names]
            pathlib.Path(self._directory, "holdfast.yaml").write_text(json.dumps({"agents": agents}))
        listen, admin = (u.removeprefix("http://") or "127.0.0.1:0" for u in (self.url, self.admin_url))
        command = [
            self._binary,
            "serve",
            "--config",
            "holdfast.yaml",
            "--listen",
            listen,
            "--admin-listen",
            admin,
            "--grpc-listen",
            "off",
        ]
        if self._database_url:
            command += ["--database-url", self._database_url]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") or k.startswith("HOLDFAST_PG_")}
        self._process = subprocess.Popen(
            command, cwd=self._directory, env=kept, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        ready = _Ready(self._process)
        if not ready.wait(START):
            self.close()
            raise RuntimeError(f"the server did not start: {ready.last}")
        self.url, self.admin_url = ready.document["url"], ready.document["admin"]
        served = [a for a in self._agents if isinstance(a, Agent)]
        if served and self._thread is None:
            self._thread = _Thread(worker(*served, url=self.url, name="test"))

    def kill(self) -> None:
        """Kill the server as kill -9 does, and return when it is dead."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server as SIGTERM does."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop server and agents, and delete the data."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
        self.stop()
        # The database outlives a killed server.
        for found in pathlib.Path(self._directory).rglob("postmaster.pid") if self._directory else ():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(found.read_text().splitlines()[0]), signal.SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = ""

    def send(self, message: MessageLike, *, agent: str | None = None, task: str | None = None, timeout: float = 30.0) -> Answered:
        """Send a message, to a task that asks or for a new one, and wait until the agent has answered or asks."""
        said: dict[str, Any] = {"messageId": str(uuid.uuid4()), **to_message(message).to_json(), "role": "ROLE_USER"}
        if task is not None:
            said["taskId"] = task
        found = self._call(agent, "SendMessage", {"message": said, "configuration": {"returnImmediately": True}})["task"]
        return self.wait(found["id"], agent=agent, timeout=timeout)

    def wait(self, task: str, *, agent: str | None = None, timeout: float = 30.0) -> Answered:
        """Wait until a task has ended or asks, also while the server is away."""
        end = time.monotonic() + timeout
        while True:
            try:
                found = self.get(task, agent=agent)
            except httpx.TransportError:
                found = Answered(task, "unknown", Message())
            if found.state not in ("submitted", "working", "unknown"):
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"task {task} is {found.state} after {timeout:g} seconds")
            time.sleep(0.02)

    def get(self, task: str, *, agent: str | None = None) -> Answered:
        """Read a task."""
        document = self._call(agent, "GetTask", {"id": task})
        status = document["status"]
        return Answered(
            document["id"],
            status["state"].removeprefix("TASK_STATE_").lower().replace("_", "-"),
            Message.from_json(status.get("message") or {}),
            [Artifact.from_json(a) for a in document.get("artifacts", [])],
            document,
        )

    def _call(self, agent: str | None, method: str, params: dict[str, Any]) -> Any:
        url = f"{self.url}/agents/{agent}" if agent else self.url
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._http.post(url, json=body, headers={"A2A-Version": "1.0"}).json()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]


def _find() -> str:
    beside = os.path.join(sysconfig.get_path("scripts"), "holdfast")
    for found in (os.environ.get("HOLDFAST_BINARY"), beside if os.path.exists(beside) else None, shutil.which("holdfast")):
        if found:
            return os.path.abspath(found)
    raise RuntimeError("the server is not installed: pip install holdfast, or set HOLDFAST_BINARY to the binary")


class _Ready:
    """Reads the log of a server, and waits for its start."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._heard = threading.Event()
        self.document: dict[str, Any] = {}
        self.last = "it wrote nothing"
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:  # or unittest warns of it
            for line in lines:
                self.last = line.strip()
                log.info("%s", self.last)
                with contextlib.suppress(ValueError):
                    document = json.loads(line)
                    if document.get("msg") == "server ready":
                        self.document = document
                        self._heard.set()
        self._heard.set()

    def wait(self, seconds: float) -> bool:
        self._heard.wait(seconds)
        return bool(self.document)


class _Thread:
    """Serves agents in a thread, through restarts of the server."""

    def __init__(self, made: Worker) -> None:
        self._made = made
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._made.run())
        self._loop.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._made.stop)
            self._thread.join(10)
