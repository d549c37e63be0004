"""The samples as processes beside the real server, with a client that speaks JSON-RPC 1.0 to them.

HOLDFAST names the server's program; the default is bin/holdfast of the repository.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

ROOT = Path(__file__).parents[4]
SAMPLES = ROOT / "examples/samples"
HOLDFAST = os.environ.get("HOLDFAST", str(ROOT / "bin/holdfast"))
LIMIT = 120.0
"""Seconds that anything may take: a busy machine is slow, and a run is rescued after its worker's lease."""

Doc = dict[str, Any]


def until(found: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {LIMIT:g} seconds")


class Processes:
    """Processes with their logs, which are printed if a test fails. All have a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *argv: str, **env: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST", "SAMPLES_", "GOOGLE_", "RATES_"))}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(argv, cwd=self.folder, env={**kept, **env}, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.running[name].kill()
        self.running.pop(name).wait(LIMIT)

    def check(self) -> None:
        for name, process in self.running.items():
            assert process.poll() is None, f"{name} has ended"

    def log(self, name: str) -> str:
        self.check()
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "\n".join(f"== {file.name}\n{file.read_text()}" for file in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.running.values()):
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a short name, because PostgreSQL has a socket in it."""
    made = Path(tempfile.mkdtemp(prefix="samples-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    yield made
    made.stop()
    print(made.logs())  # pytest shows it if a test has failed


@pytest.fixture(scope="module")
def url(processes: Processes, folder: Path) -> str:
    """A server with the configuration of the samples and shorter leases, at ports that the system chooses."""
    text = (SAMPLES / "holdfast.yaml").read_text()
    assert "{kind: worker}" in text
    config = str(folder / "holdfast.yaml")
    Path(config).write_text(text.replace("{kind: worker}", "{kind: worker, worker: {lease: 10s}}"))
    listen = ["--listen", "127.0.0.1:0", "--grpc-listen", "off", "--admin-listen", "127.0.0.1:0"]
    processes.start("server", HOLDFAST, "serve", "--config", config, *listen)

    def ready() -> str | None:
        lines = [line for line in processes.log("server").splitlines() if '"server ready"' in line]
        found = re.search(r'"[^"]*?(127\.0\.0\.1:\d+)"', lines[0]) if lines else None
        return found and f"http://{found[1]}"

    address: str = until(ready, "the server is ready")
    return address


class Rates:
    """The service of rates, which the sample does not own. It can hold a request back until the test lets it go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.go = threading.Event()
        rates = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                pair = query["base"][0] + query["symbols"][0]
                rates.asked.append(pair)
                if rates.hold.is_set():
                    rates.go.wait(LIMIT)
                body = json.dumps({"base": query["base"][0], "rates": {query["symbols"][0]: 0.8}}).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the worker is dead

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def rates() -> Iterator[Rates]:
    made = Rates()
    yield made
    made.go.set()
    made.server.shutdown()
    made.server.server_close()


class Workers:
    """A process for each sample."""

    def __init__(self, processes: Processes, url: str, **env: str) -> None:
        self.processes, self.env = processes, {"HOLDFAST_URL": url, **env}

    def start(self, *names: str) -> None:
        for name in names:
            self.processes.start(name, sys.executable, str(SAMPLES / f"{name}.py"), **self.env)

    def kill(self, name: str) -> None:
        self.processes.kill(name)


@pytest.fixture(scope="module")
def workers(processes: Processes, url: str, rates: Rates) -> Workers:
    made = Workers(processes, url, RATES_URL=rates.url, SAMPLES_DATA="data")
    made.start("expense", "currency", "image", "host")
    return made


class Client:
    """A client of A2A 1.0 over JSON-RPC. It has one context."""

    def __init__(self, url: str, agent: str, workers: Workers) -> None:
        self.workers = workers
        self.endpoint = f"{url}/agents/{agent}"
        self.http: Doc = {"timeout": LIMIT, "headers": {"A2A-Version": "1.0"}}
        self.context = str(uuid.uuid4())

    def request(self, method: str, params: Doc) -> Doc:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def message(self, *parts: Doc, task: str = "") -> Doc:
        said: Doc = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "contextId": self.context, "parts": list(parts)}
        return {"message": {**said, **({"taskId": task} if task else {})}}

    def call(self, method: str, params: Doc) -> Doc:
        answer: Doc = httpx.post(self.endpoint, json=self.request(method, params), **self.http).raise_for_status().json()
        assert "error" not in answer, answer
        result: Doc = answer["result"]
        return result

    def send(self, *parts: Doc | str, task: str = "") -> Doc:
        """Send a message, and wait until the task rests."""
        content = [{"text": p} if isinstance(p, str) else p for p in parts]
        found = self.call("SendMessage", self.message(*content, task=task))["task"]

        def rests() -> Doc | None:
            self.workers.processes.check()
            now = self.call("GetTask", {"id": found["id"]})
            return now if now["status"]["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING") else None

        rested: Doc = until(rests, f"the task of {parts} rests")
        return rested

    def stream(self, text: str) -> Iterator[Doc]:
        """Send a message, and yield the events of its task as they come."""
        document = self.request("SendStreamingMessage", self.message({"text": text}))
        with httpx.stream("POST", self.endpoint, json=document, **self.http) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    event = json.loads(line[5:])
                    assert "error" not in event, event
                    yield event["result"]


def state(task: Doc) -> str:
    found: str = task["status"]["state"]
    return found.removeprefix("TASK_STATE_").lower()


def texts(task: Doc) -> list[str]:
    return [p["text"] for a in task.get("artifacts", []) for p in a["parts"] if "text" in p]


def form(task: Doc) -> Doc:
    """The form in the question: a flat JSON Schema, which any client can show."""
    found: Doc = next(p["data"] for p in task["status"]["message"]["parts"] if p.get("data", {}).get("type") == "form")
    schema = found["form"]
    assert schema["type"] == "object"
    assert set(schema["required"]) == set(schema["properties"]) == {"date", "amount", "purpose"}
    assert {p["type"] for p in schema["properties"].values()} == {"string", "number"}
    return found


def pixel(image: bytes, x: int, y: int) -> tuple[int, ...]:
    """The color of a pixel of a PNG without a filter."""
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    place, chunks = 8, {}
    while place < len(image):
        (length,), kind = struct.unpack(">I", image[place : place + 4]), image[place + 4 : place + 8]
        chunks[kind] = image[place + 8 : place + 8 + length]
        assert struct.unpack(">I", image[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + chunks[kind])
        place += 12 + length
    width, height, *about = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (width, height, about) == (64, 64, [8, 2, 0, 0, 0])
    start = y * (1 + 3 * width) + 1 + 3 * x
    return tuple(zlib.decompress(chunks[b"IDAT"])[start : start + 3])


def image_of(task: Doc) -> bytes:
    part = next(p for a in task["artifacts"] for p in a["parts"] if "raw" in p)
    assert (part["filename"], part["mediaType"]) == ("image.png", "image/png")
    return base64.b64decode(part["raw"])


def test_expense(workers: Workers, url: str) -> None:
    client = Client(url, "expense", workers)
    task = client.send("Reimburse my taxi of 20 euros")
    assert state(task) == "input_required"
    assert form(task)["form_data"] == {"amount": 20, "purpose": "Reimburse my taxi of 20 euros"}

    # Another process knows the conversation.
    workers.kill("expense")
    workers.start("expense")
    task = client.send({"data": {"date": "May", "amount": 20, "purpose": "Taxi"}}, task=task["id"])
    assert state(task) == "input_required"
    assert task["status"]["message"]["parts"][0]["text"].startswith("date: 'May' is not a date")
    assert form(task)["form_data"] == {"date": "May", "amount": 20, "purpose": "Taxi"}

    task = client.send({"data": {"date": "2026-05-03", "amount": 20, "purpose": "Taxi"}}, task=task["id"])
    assert state(task) == "completed"
    assert texts(task) == ["20.00 euros for 'Taxi' on 2026-05-03 are approved."]


def test_currency(workers: Workers, url: str) -> None:
    client = Client(url, "currency", workers)
    task = client.send("How much are 10 USD?")
    assert state(task) == "input_required"
    assert task["status"]["message"]["parts"] == [{"text": "To which currency?"}]
    task = client.send("EUR", task=task["id"])
    assert state(task) == "completed"
    assert texts(task) == ["10 USD are 8.00 EUR, at a rate of 0.8."]

    # Another task of the context knows the first one.
    task = client.send("And in GBP?")
    assert state(task) == "completed"
    assert texts(task) == ["10 USD are 8.00 GBP, at a rate of 0.8."]


def test_currency_streams_across_a_kill(workers: Workers, url: str, rates: Rates) -> None:
    client = Client(url, "currency", workers)
    rates.hold.set()
    killed = False
    said, progress, pieces, last = "", [], 0, ""
    for event in client.stream("How much are 5 CAD in INR?"):
        if update := event.get("statusUpdate"):
            last = state(update)
            if message := update["status"].get("message"):
                progress.append(message["parts"][0]["text"])
        if update := event.get("artifactUpdate"):
            pieces += 1
            text = "".join(p["text"] for p in update["artifact"]["parts"])
            said = said + text if update.get("append") else text
        if progress and not killed:
            # The worker waits for the rate.
            until(lambda: "CADINR" in rates.asked, "the worker asks for the rate")
            assert said == ""
            workers.kill("currency")
            rates.hold.clear()
            workers.start("currency")
            killed = True
    rates.go.set()
    assert killed
    assert last == "completed"
    assert said == "5 CAD are 4.00 INR, at a rate of 0.8."
    assert pieces > 5, "the answer comes in pieces"
    assert progress == ["Looking up the rate from CAD to INR."] * 2, "each try says so"
    assert rates.asked.count("CADINR") == 2


def test_image(workers: Workers, url: str) -> None:
    client = Client(url, "image", workers)
    task = client.send("Draw a blue circle")
    assert state(task) == "completed"
    image = image_of(task)
    assert [pixel(image, 32, 32), pixel(image, 0, 0)] == [(38, 139, 210), (255, 255, 255)]

    # Another process knows the wish.
    workers.kill("image")
    workers.start("image")
    image = image_of(client.send("Now in red"))
    assert [pixel(image, 32, 32), pixel(image, 0, 0)] == [(220, 50, 47), (255, 255, 255)]


def test_host(workers: Workers, url: str) -> None:
    client = Client(url, "host", workers)
    task = client.send("Draw a red square, reimburse 20 euros and convert 10 USD")
    # The image is there, and two agents have asked.
    assert state(task) == "input_required"
    assert pixel(image_of(task), 32, 32) == (220, 50, 47)
    answers: dict[str, Doc] = {
        "currency": {"text": "GBP"},
        "expense": {"data": {"date": "2026-05-03", "amount": 20, "purpose": "Taxi"}},
    }
    asked = []
    while state(task) == "input_required":
        name = task["status"]["message"]["parts"][0]["text"].removesuffix(" asks:")
        asked.append(name)
        if name == "expense":
            form(task)
        workers.kill("host")
        workers.start("host")
        task = client.send(answers[name], task=task["id"])
    assert sorted(asked) == ["currency", "expense"]
    assert state(task) == "completed"
    want = ["10 USD are 8.00 GBP, at a rate of 0.8.", "20.00 euros for 'Taxi' on 2026-05-03 are approved."]
    assert sorted(texts(task)) == want
    image_of(task)


def test_the_host_says_whom_it_knows(workers: Workers, url: str) -> None:
    task = Client(url, "host", workers).send("Hello!")
    assert state(task) == "completed"
    said = task["status"]["message"]["parts"][0]["text"]
    assert said.startswith("I can delegate to currency (Converts currencies.), expense (")
    assert "host" not in said


class Gemini:
    """Google's API of models, with a model that always does the same."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        gemini = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                model, _, method = urlsplit(self.path).path.rpartition("/")[2].partition(":")
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                gemini.asked.append(model)
                content = {"role": "model", "parts": [gemini.answer(model, asked)]}
                body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": model})
                streams = method == "streamGenerateContent"
                raw = (f"data: {body}\r\n\r\n" if streams else body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, model: str, asked: Doc) -> Doc:
        last = asked["contents"][-1]["parts"][-1]
        tools = {f["name"] for t in asked.get("tools", []) for f in t["functionDeclarations"]}
        if model == "gemini-fake-image":
            return {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"an image").decode()}}
        if response := last.get("functionResponse"):
            if response["name"] == "ask_by_form":
                return {"functionCall": {"name": "reimburse", "args": response["response"]}}
            return {"text": f"The model says: {response['name']}."}
        if "ask_by_form" in tools:
            return {"functionCall": {"name": "ask_by_form", "args": {"amount": 20}}}
        if "get_exchange_rate" in tools:
            return {"functionCall": {"name": "get_exchange_rate", "args": {"currency_from": "USD", "currency_to": "EUR"}}}
        return {"text": "currency, image"}


def test_models_of_google(processes: Processes, workers: Workers, url: str, rates: Rates) -> None:
    gemini = Gemini()
    names = ("expense", "currency", "image", "host")
    for name in names:
        workers.kill(name)
    env = {"SAMPLES_MODEL": "gemini-fake", "SAMPLES_IMAGE_MODEL": "gemini-fake-image", "GOOGLE_API_KEY": "none"}
    real = Workers(processes, url, RATES_URL=rates.url, SAMPLES_DATA="data", GOOGLE_GEMINI_BASE_URL=gemini.url, **env)
    real.start(*names)
    try:
        client = Client(url, "expense", real)
        task = client.send("Reimburse my taxi")
        assert form(task)["form_data"] == {"amount": 20}
        task = client.send({"data": {"date": "2026-05-03", "amount": 20, "purpose": "Taxi"}}, task=task["id"])
        assert (state(task), texts(task)) == ("completed", ["The model says: reimburse."])

        task = Client(url, "host", real).send("Do what you think best")
        assert (state(task), texts(task)) == ("completed", ["The model says: get_exchange_rate."])
        assert image_of(task) == b"an image"
        assert set(gemini.asked) == {"gemini-fake", "gemini-fake-image"}
    finally:
        gemini.server.shutdown()
        gemini.server.server_close()


@contextlib.contextmanager
def reserved() -> Iterator[str]:
    """Hold a port. Holdfast can still listen on it, because both sockets have SO_REUSEADDR. Nobody else gets it by chance."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{s.getsockname()[1]}"


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def comparable(said: str) -> list[Any]:
    """The lines of an answer without its ids, and with data as values, because the order of members differs."""
    lines = [line for line in said.splitlines() if not line.startswith(("task ", "context "))]
    return [json.loads(line[7:]) if line.startswith("  data ") else line for line in lines]


def test_the_page() -> None:
    """The commands of the page work as they stand, and print what it says. A line "…" stands for lines that differ."""
    blocks = BLOCK.findall((ROOT / "docs/agents/samples.md").read_text())
    commands = [text for language, text in blocks if language == "sh"]
    printed = [text for language, text in blocks if language == "text"]
    assert "make build dist-python" in commands[0]
    assert "-r examples/samples/requirements.txt" in commands[0]
    assert len(printed) == len(commands) - 2  # those that install and start print nothing
    folder = Path(tempfile.mkdtemp(prefix="samples-"))
    try:
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin/holdfast").symlink_to(HOLDFAST)
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / ".venv").symlink_to(sys.prefix)
        script = "set -uo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n" + "echo ==\n".join(commands[1:])
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST", "SAMPLES_", "GOOGLE_", "RATES_"))}
        with reserved() as public, reserved() as admin, open(folder / "stderr.log", "w+b") as log:
            listen = {"HOLDFAST_LISTEN": public, "HOLDFAST_ADMIN_LISTEN": admin, "HOLDFAST_GRPC_LISTEN": "off"}
            done = subprocess.run(
                ["bash", "-c", script.replace("127.0.0.1:8080", public)],
                cwd=folder,
                env={**kept, **listen, "HOLDFAST_URL": f"http://{public}"},
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=3 * LIMIT,
            )
            log.seek(0)
            context = done.stdout.decode() + log.read().decode()
        answers = done.stdout.decode().split("==\n")[1:]
        assert len(answers) == len(printed), context
        for answer, want in zip(answers, printed, strict=True):
            got, expected = comparable(answer), comparable(want)
            if expected[-1] == "…":
                expected.pop()
                got = got[: len(expected)]
            assert got == expected, context
    finally:
        shutil.rmtree(folder, ignore_errors=True)
