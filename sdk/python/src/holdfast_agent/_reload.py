"""Start the program again when its sources change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from ._settings import logger

CHILD = "HOLDFAST_RELOAD_CHILD"
PERIOD = 0.4
SETTLE = 0.1
"""A save is over after so many seconds without a change. Many editors empty a file before they write it."""
PATIENCE = 5.0
"""Seconds that the old process gets to finish its runs, before it must release them."""
Stamps = dict[Path, tuple[int, int]]
"""When each source was changed, in nanoseconds, and how many bytes it has."""
PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


def is_child() -> bool:
    return bool(os.environ.get(CHILD))


def follow() -> None:
    """In the child: end as after a signal if the supervising process dies."""
    parent = int(os.environ[CHILD])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PERIOD)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="holdfast reload", daemon=True).start()


def supervise() -> int:
    """Run this program in a child process until a signal ends it. Return the exit code."""
    folder = Path(sys.argv[0]).resolve().parent if sys.argv and sys.argv[0] else Path.cwd()
    command = [sys.executable, *sys.orig_argv[1:]]
    ending = threading.Event()
    signals: list[int] = []

    def signaled(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signaled)
    logger.info("reload: watching %s", folder)
    before = _stamps(folder)
    while True:
        # A session of its own: Ctrl-C reaches the child through this process, once.
        child = subprocess.Popen(command, env={**os.environ, CHILD: str(os.getpid())}, start_new_session=True)
        changed: set[Path] = set()
        exited = False
        while not ending.wait(PERIOD):
            if not exited and child.poll() is not None:
                exited = True
                logger.info("reload: the program has ended with %s, waiting for a change", child.returncode)
            after = _stamps(folder)
            changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
            if changed:
                break
        if ending.is_set():
            return _end(child, signals)
        logger.info("reload: %s changed", ", ".join(sorted(str(p.relative_to(folder)) for p in changed)))
        _stop(child)
        before = _settled(folder, ending)


def _settled(folder: Path, ending: threading.Event) -> Stamps:
    stamps = _stamps(folder)
    while not ending.wait(SETTLE):
        before, stamps = stamps, _stamps(folder)
        if stamps == before:
            break
    return stamps


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _end(child: subprocess.Popen[bytes], signals: list[int]) -> int:
    """Pass the signals on, and wait for the child."""
    sent = 0
    while child.poll() is None:
        while sent < len(signals):
            child.send_signal(signals[sent])
            sent += 1
        time.sleep(0.05)
    # A child that has only just begun has no handler yet: the signal ends it, and it has no run to lose.
    return 0 if -child.returncode in signals else child.returncode


def _stamps(folder: Path) -> Stamps:
    found = {}
    for path in _sources(folder):
        try:
            stat = path.stat()
        except OSError:
            continue
        found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def _sources(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in PASSED_OVER]
        for name in files:
            if name.endswith(".py"):
                yield Path(root, name)
