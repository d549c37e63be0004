"""Heartbeats, from a thread of their own: code that blocks the agent's event loop does not lose its leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable

from ._link import Backoff, Link
from ._settings import Settings
from .content import JSON
from .errors import Problem, Unreachable

logger = logging.getLogger("holdfast_agent")

BLOCKED = 5.0
"""Seconds for which the agent's loop may be blocked before a warning."""


class Pulse:
    """Renews the leases of the worker's runs, and hears what to stop.

    `heard(answer)` is called in the agent's loop.
    """

    def __init__(self, settings: Settings, heard: Callable[[JSON], None]) -> None:
        self._settings = settings
        self._heard = heard
        self._agents = asyncio.get_running_loop()
        self._agents_thread = threading.get_ident()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._body, name="holdfast heartbeats", daemon=True)
        self.answers = 0  # of the server to heartbeats; written in the thread only
        # Below: touched in the thread only.
        self._runs: dict[str, bool] = {}  # whether a heartbeat has named it
        self._stopping: set[str] = set()
        self._lease = 30.0
        self._renewed = 0.0  # when the last heartbeat that was answered was sent
        self._wake = asyncio.Event()
        self._fresh = asyncio.Event()
        self._closed = False
        self._renew = False

    def start(self) -> None:
        self._thread.start()

    def update(self, runs: Iterable[str], lease: float | None = None) -> None:
        """Say which runs the worker has, and the lease of a new one."""
        self._send(self._update, list(runs), lease)

    def renew(self) -> None:
        """Use new connections for the next heartbeat."""
        self._send(self._set_renew)

    async def close(self) -> None:
        """Stop, and wait for the thread."""
        self._send(self._close)
        deadline = time.monotonic() + 5
        while self._thread.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _send(self, what: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what, *args)

    def _body(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    def _update(self, runs: list[str], lease: float | None) -> None:
        if not self._runs:
            self._lease = lease or self._lease
            self._renewed = time.monotonic()
        elif lease is not None:
            self._lease = min(self._lease, lease)
        if any(id not in self._runs for id in runs):
            self._fresh.set()
        self._runs = {id: self._runs.get(id, False) for id in runs}
        self._stopping &= set(runs)
        self._wake.set()

    def _set_renew(self) -> None:
        self._renew = True

    def _close(self) -> None:
        self._closed = True
        self._fresh.set()
        self._wake.set()

    async def _main(self) -> None:
        link = Link(self._settings)
        watch = asyncio.create_task(self._watch())
        try:
            await self._beat(link)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            await link.close()

    async def _beat(self, link: Link) -> None:
        backoff = Backoff()
        warned = False
        while not self._closed:
            if not self._runs:
                self._wake.clear()
                await self._wake.wait()
                continue
            if self._renew:
                self._renew = False
                await link.renew()
            sent = time.monotonic()
            late = sent - self._renewed > self._lease * 0.3
            # A heartbeat that waits may be given up for new runs. One that is due, or the first of a run, may not.
            wait = 0.0 if late or not all(self._runs.values()) else min(30.0, self._lease / 4)
            self._fresh.clear()
            named = list(self._runs)
            doc: JSON = {"worker": self._settings.worker(), "runs": named, "stopping": sorted(self._stopping), "wait": wait}
            # When it stays without an answer, the next one still comes in time for the lease.
            patience = min(max(self._lease / 4, 2.0), 15.0)
            request = asyncio.ensure_future(link.worker("/heartbeat", doc, wait=wait, patience=patience))
            if wait:
                fresh = asyncio.ensure_future(self._fresh.wait())
                await asyncio.wait({request, fresh}, return_when=asyncio.FIRST_COMPLETED)
                fresh.cancel()
                if not request.done():
                    request.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Problem, Unreachable):
                        await request
                    continue
            try:
                answer = await request
            except (Problem, Unreachable) as e:
                if not warned or time.monotonic() - self._renewed > self._lease:
                    logger.warning(
                        "heartbeat failed, will retry",
                        extra={"error": str(e), "renewed_ago": f"{time.monotonic() - self._renewed:.1f}s"},
                    )
                warned = True
                await self._pause(
                    min(backoff.pause(e), max(0.2, self._lease / 6)) if not isinstance(e, Problem) else backoff.pause(e)
                )
                continue
            backoff.reset()
            if warned:
                logger.info("heartbeats are answered again")
                warned = False
            self._renewed = sent
            self.answers += 1
            for id in named:
                if id in self._runs:
                    self._runs[id] = True
            if answer.get("lease"):
                self._lease = answer["lease"]
            news = bool(answer.get("drain"))
            for stop in answer.get("runs") or []:
                if stop["stop"] == "canceled":
                    news = news or stop["id"] not in self._stopping
                    self._stopping.add(stop["id"])
                else:
                    # The server wants over in `stopping`; lost and over are not renewed in any case.
                    news = news or stop["id"] in self._runs
                    self._runs.pop(stop["id"], None)
                    self._stopping.discard(stop["id"])
            if answer.get("runs") or answer.get("drain"):
                with contextlib.suppress(RuntimeError):
                    self._agents.call_soon_threadsafe(self._heard, answer)
                if answer.get("drain") == "replica":
                    self._renew = True
                # An answer that has something to say comes at once: do not spin if it repeats itself.
                await asyncio.sleep(0.05)
            early = wait - (time.monotonic() - sent)
            if not news and early > 0:
                # The server had no room for another request that waits, and answered at once.
                await self._pause(min(early, 1.0), until_fresh=True)

    async def _pause(self, seconds: float, *, until_fresh: bool = False) -> None:
        """Wait; with until_fresh, at most until a heartbeat must name a new run."""
        end = time.monotonic() + seconds
        while not self._closed and time.monotonic() < end and not (until_fresh and self._fresh.is_set()):
            await asyncio.sleep(min(0.1, max(0.0, end - time.monotonic())))

    async def _watch(self) -> None:
        """Warn while the agent's loop is blocked: events and cancels wait then."""
        while True:
            await asyncio.sleep(1)
            if not self._runs:
                continue
            answered = asyncio.Event()
            asked = time.monotonic()
            with contextlib.suppress(RuntimeError):
                self._agents.call_soon_threadsafe(self._send, answered.set)
            try:
                await asyncio.wait_for(answered.wait(), BLOCKED)
                continue
            except asyncio.TimeoutError:
                frame = sys._current_frames().get(self._agents_thread)
                where = "".join(traceback.format_stack(frame)[-3:]) if frame else ""
                logger.warning(
                    "the event loop is blocked: leases are renewed, but events and cancels wait. "
                    "Make the agent a plain function, or use asyncio.to_thread. It is at:\n%s",
                    where,
                )
            await answered.wait()
            logger.warning("the event loop was blocked", extra={"seconds": f"{time.monotonic() - asked:.1f}"})
