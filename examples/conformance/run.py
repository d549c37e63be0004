#!/usr/bin/env python3
"""Runs the public conformance kit of A2A against Holdfast.

TCK is a clone of https://github.com/a2aproject/a2a-tck, which is only read. For each edition of the
kit this unpacks it into a temporary folder, gives it a Python environment (kept below the user's
cache), starts the agent beside this file with the configuration that the edition expects, and runs
the kit's tests. Results are compared with expected.toml: the exit status is 0 when every test that
fails is listed there and every listed one does fail.

Needs Python 3.11, Go and git. The server takes HOLDFAST_DATABASE_URL or an embedded PostgreSQL.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import venv
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

# Editions of the kit, each with the commit that expected.toml is about.
EDITIONS = {
    "v0.2.5": "047afc4",
    "0.3.0.beta4": "eb1f804",
    "1.0-dev": "357c4a8",  # a branch
}

BINDINGS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}  # as the card and as the kit call them


def runs_02(url, card):
    for category, folder in (
        ("mandatory", "mandatory"),
        ("capabilities", "optional/capabilities"),
        ("quality", "optional/quality"),
        ("features", "optional/features"),
    ):
        yield category, [f"tests/{folder}", f"--sut-url={url}", "--test-scope=all"]


def runs_03(url, card):
    """The same for each binding of the card. Some mandatory tests are about JSON-RPC and nothing else."""
    interfaces = {i["transport"] for i in card["additionalInterfaces"]}
    for binding, name in BINDINGS.items():
        if binding not in interfaces:
            continue
        for category, args in runs_02(url, card):
            if category == "mandatory" and name != "jsonrpc":
                args[0] = "tests/mandatory/protocol"
            yield f"{category}, {name}", [*args, f"--transports={name}"]
    yield "transport equivalence", ["tests/optional/multi_transport", f"--sut-url={url}", "--test-scope=all"]


def runs_10(url, card):
    """All bindings of the card in one run. Its tests are told apart by binding in the results."""
    for level in ("must", "should", "may"):
        yield level, ["tests/compatibility", f"--sut-host={url.rstrip('/')}", "-m", level]


RUNS = {"v0.2.5": runs_02, "0.3.0.beta4": runs_03, "1.0-dev": runs_10}
CARDS = {"v0.2.5": ".well-known/agent.json"}


def unpack(kit, commit, to):
    archive = subprocess.run(["git", "-C", kit, "archive", commit], stdout=subprocess.PIPE)
    if archive.returncode != 0:
        sys.exit(f"{kit} does not have {commit}: is it a clone of the kit, with all its branches?")
    to.mkdir()
    subprocess.run(["tar", "-x", "-C", to], input=archive.stdout, check=True)


def patch(edition, tree):
    """The edition for 0.3 reads host and port from a URL. Cards have an address to dial, as official clients do."""
    if edition == "0.3.0.beta4":
        client = tree / "tck/transport/grpc_client.py"
        found, put = "urlparse(base_url)", 'urlparse(base_url if "//" in base_url else f"http://{base_url}")'
        client.write_text(client.read_text().replace(found, put))


def environment(tree):
    """The Python of an environment with what the edition depends on."""
    wanted = sorted(tomllib.loads((tree / "pyproject.toml").read_text())["project"]["dependencies"])
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "holdfast-conformance" / key
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (folder / "complete").touch()
    return python


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """The agent on a Holdfast server of its own, while a with statement lasts."""

    def __init__(self, program, edition, work):
        self.program, self.edition, self.work = program, edition, work
        self.log = work / f"{edition}.log"

    def __enter__(self):
        grpc = f"127.0.0.1:{free_port()}"
        env = os.environ | {
            "HOLDFAST_CONFIG": str(HERE / f"{self.edition}.yaml"),
            "HOLDFAST_LISTEN": "127.0.0.1:0",
            "HOLDFAST_GRPC_LISTEN": grpc,
            "HOLDFAST_PUBLIC_GRPC_ADDRESS": grpc,  # cards announce gRPC only with it
            "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0",
            "HOLDFAST_DATA_DIR": str(self.work / f"{self.edition}.data"),
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen([self.program], env=env, stderr=log, cwd=REPOSITORY)
        deadline = time.monotonic() + 300  # an embedded PostgreSQL may have to be downloaded first
        while not (serving := re.search(r'"server ready" .*\burl=(\S+)', self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                sys.exit(f"the server did not start:\n{self.log.read_text()}")
            time.sleep(0.1)
        return serving[1].rstrip("/") + "/"

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def outcomes(report):
    """Yields (test, outcome, message) of a JUnit report."""
    for case in ET.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        outcome, message = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, message = "failed", child.get("message", "")
            elif child.tag == "skipped":
                outcome = "expected" if child.get("type") == "pytest.xfail" else "skipped"
                message = child.get("message", "")
        yield test, outcome, message


def label(edition, run, test):
    """The row of the table that a test counts in."""
    if edition != "1.0-dev":
        return run
    binding = re.search(r"jsonrpc|http_json|grpc|(?<=_)rest(?=\b)", test)
    return f"{run}, {binding[0].replace('http_json', 'rest') if binding else 'any binding'}"


def measure(edition, kit, program, work):
    """Yields (row, test, outcome, message) for every test of an edition."""
    tree = work / edition
    unpack(kit, EDITIONS[edition], tree)
    patch(edition, tree)
    python = environment(tree)
    with Server(program, edition, work) as url:
        with urllib.request.urlopen(url + CARDS.get(edition, ".well-known/agent-card.json")) as answer:
            card = json.load(answer)
        for run, args in RUNS[edition](url, card):
            print(f"{edition}: {run}", file=sys.stderr, flush=True)
            report = work / "report.xml"
            report.unlink(missing_ok=True)
            found = {test: rest for test, *rest in pytest(python, tree, report, args)}
            if raced := [test for test, (outcome, _) in found.items() if outcome == "failed" and test.split("::")[-1] in RACES]:
                found |= {test: rest for test, *rest in pytest(python, tree, report, [*args, "-k", " or ".join(RACES)]) if test in raced}
            yield from sorted((label(edition, run, test), test, *rest) for test, rest in found.items())


# Tests that race with the server, and are repeated once: this one compares the states of two gets of a running task.
RACES = ["test_consistent_behavior_tasks_get"]


def pytest(python, tree, report, args):
    """Runs tests of the kit, and returns their outcomes."""
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *args],
        cwd=tree, capture_output=True, text=True, timeout=1800,
    )
    if done.returncode not in (0, 1):  # 1: some tests failed
        sys.exit(f"{tree.name}, {args}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return list(outcomes(report))


def judge(edition, results, expected):
    """What contradicts expected.toml."""
    listed = {(row, test) for row, tests in expected.items() for test in tests}
    for row, test, outcome, message in results:
        known = (row, test) in listed
        listed.discard((row, test))
        if outcome == "failed" and not known:
            yield f"{edition} | {row} | {test} fails: {' '.join(message.split())[:300]}"
        if outcome != "failed" and known:
            yield f"{edition} | {row} | {test} is listed as wrong, but it {outcome}"
    for row, test in sorted(listed):
        yield f"{edition} | {row} | {test} is listed as wrong, but was not run"


def table(measured, expected):
    """The results as Markdown."""
    lines = ["| edition | category | passed | failed | expected to fail, by the kit | skipped |", "|---|---|---|---|---|---|"]
    for edition, results in measured.items():
        counts = collections.defaultdict(collections.Counter)
        for row, _, outcome, _ in results:
            counts[row][outcome] += 1
        for row, c in counts.items():
            lines.append(f"| {edition} | {row} | {c['passed']} | {c['failed']} | {c['expected']} | {c['skipped']} |")
    lines += ["", "| edition | category | test that fails | why that is right |", "|---|---|---|---|"]
    for edition in measured:
        for row, tests in expected.get(edition, {}).items():
            lines += [f"| {edition} | {row} | `{test.split('.')[-1]}` | {why} |" for test, why in tests.items()]
    return "\n".join(lines) + "\n"


def skips(measured):
    """Why tests were skipped, in the kit's words."""
    for edition, results in measured.items():
        reasons = collections.Counter(" ".join(m.split()) for _, _, outcome, m in results if outcome == "skipped")
        for reason, n in reasons.most_common():
            yield f"{edition}: {n} skipped: {reason}"


def record(file, text):
    """Puts the table between the two marks of a page."""
    page = file.read_text()
    begin, end = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
    file.write_text(page[: page.index(begin) + len(begin)] + text + page[page.index(end) :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kit", metavar="TCK", type=pathlib.Path)
    parser.add_argument("--only", choices=EDITIONS, help="this edition alone")
    parser.add_argument("--skips", action="store_true", help="tell why tests were skipped, too")
    parser.add_argument("--record", metavar="FILE", type=pathlib.Path, help="write the tables into this page")
    args = parser.parse_args()
    if args.only and args.record:
        parser.error("--record is for all editions")

    expected = tomllib.loads((HERE / "expected.toml").read_text())
    measured = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-conformance-") as work:
        work = pathlib.Path(work)
        work.chmod(0o755)  # started by root, PostgreSQL runs as another user
        program = work / "agent"
        subprocess.run(["go", "build", "-o", program, "./examples/conformance"], cwd=REPOSITORY, check=True)
        for edition in [args.only] if args.only else EDITIONS:
            measured[edition] = list(measure(edition, args.kit, program, work))

    tables = table(measured, expected)
    print(tables)
    if args.skips:
        print("\n".join(skips(measured)) + "\n")
    if args.record:
        record(args.record, tables)
    wrong = [w for edition, results in measured.items() for w in judge(edition, results, expected.get(edition, {}))]
    print("\n".join(wrong) if wrong else "As expected.")
    sys.exit(1 if wrong else 0)


main()
