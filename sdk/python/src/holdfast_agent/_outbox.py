"""The events of one run, on their way to the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ._link import Backoff
from .content import JSON
from .errors import EventRefused, Problem, Stopped, Unreachable

MAX_BYTES = 1 << 20
MAX_EVENTS = 1000
BATCH_BYTES = 256 << 10
BATCH_EVENTS = 250
LOGGED = 10
"""How many failures of an upload in a row make one line of the log."""
BROKEN = 5
"""How often the upload of a large event may break while the server answers heartbeats."""

Post = Callable[[int, bytes], Awaitable[JSON]]


@dataclass
class _Event:
    kind: str
    line: bytes


class Outbox:
    """A bounded queue of events. One upload is under way at a time; meanwhile the next batch gathers.

    `post(ordinal, lines)` uploads. `over(reason)` is called when the server says that the run is over, or lacks events that
    were acknowledged. `answers()` counts the answers of the server to heartbeats.
    """

    def __init__(
        self,
        post: Post,
        over: Callable[[str], None],
        log: logging.LoggerAdapter[logging.Logger],
        answers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._post = post
        self._over = over
        self._log = log
        self._answers = answers
        self._queue: deque[_Event] = deque()
        self._bytes = 0
        self._base = 0
        self._closed: Exception | None = None
        self._refused: EventRefused | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.ended = False

    async def put(self, kind: str, line: bytes) -> None:
        """Queue an event, as soon as there is room for it."""
        while True:
            self._check()
            if not self._queue or (self._bytes + len(line) <= MAX_BYTES and len(self._queue) < MAX_EVENTS):
                break
            await self._changed()
        self._queue.append(_Event(kind, line))
        self._bytes += len(line)
        self._notify()

    async def flush(self) -> None:
        """Wait until every queued event is committed."""
        while True:
            self._check()
            if not self._queue:
                return
            await self._changed()

    def close(self, error: Exception) -> None:
        """Drop what is queued. Emissions raise the error from now on."""
        if self._closed is None:
            self._closed = error
        self._queue.clear()
        self._bytes = 0
        self._notify()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def refusal(self) -> EventRefused | None:
        """Take the refusal of which no emission has told the agent yet."""
        refused, self._refused = self._refused, None
        return refused

    async def upload(self) -> None:
        """Upload until the outbox is closed or the run has ended."""
        backoff = Backoff()
        failures = broken = answers = 0
        while not self.closed and not self.ended:
            if not self._queue:
                await self._changed()
                continue
            count, size = 0, 0
            for event in self._queue:
                if count and (count == BATCH_EVENTS or size + len(event.line) > BATCH_BYTES):
                    break
                count, size = count + 1, size + len(event.line) + 1
            body = b"".join(e.line + b"\n" for e in itertools.islice(self._queue, count))
            try:
                answer = await self._post(self._base, body)
            except Unreachable as e:
                error: Exception = e
                if len(body) > BATCH_BYTES and self._answers() > answers:
                    answers, broken = self._answers(), broken + 1
                if broken >= BROKEN and not self.closed:  # something on the way does not take a body of this size
                    stored = await self._stored()
                    if stored:
                        broken = 0
                        continue
                    if stored is False and not self.closed:
                        broken = 0
                        detail = f"its upload of {len(body)} bytes broke {BROKEN} times, while the server answered heartbeats: {e}"
                        self._problem(Problem(413, {"reason": "too_large", "detail": detail}))
                        continue
            except Problem as e:
                if self.closed:
                    return
                if not e.passing:
                    self._problem(e)
                    continue
                if e.next is not None and e.next > self._base:
                    self._drop(e.next)
                error = e
            else:
                if self.closed:
                    return
                backoff.reset()
                failures = broken = 0
                self._drop(answer["next"])
                if answer.get("ended"):
                    self.ended = True
                    self.close(Stopped("the run has ended"))
                continue
            if self.closed:
                return
            if failures % LOGGED == 0:
                fields = {"error": str(error), "ordinal": self._base, "bytes": len(body), "failures": failures + 1}
                self._log.warning("upload failed, will retry", extra=fields)
            failures += 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until_closed(), backoff.pause(error))

    async def _stored(self) -> bool | None:
        """Ask the server whether it has the first event: only its answers may have been lost. None: it does not say."""
        base = self._base
        try:
            self._drop((await self._post(base, b""))["next"])
        except (Unreachable, Problem):
            return None
        return self._base > base

    async def _until_closed(self) -> None:
        while not self.closed:
            await self._changed()

    def _problem(self, problem: Problem) -> None:
        if problem.status in (401, 410):
            self.close(Stopped("the run is over"))
            self._over("over")
            return
        if problem.status == 409 and problem.reason == "ordinal" and problem.next is not None:
            if problem.next < self._base:
                self._log.error("the server lacks events that it has acknowledged", extra={"ordinal": problem.next})
                self.close(Stopped("the server lacks events that it has acknowledged"))
                self._over("gap")
                return
            self._drop(problem.next)
            return
        if problem.next is not None:
            self._drop(problem.next)
        kind = self._queue[0].kind if self._queue else "?"
        self._refused = EventRefused(problem, kind)
        self._queue.clear()
        self._bytes = 0
        self._notify()

    def _drop(self, following: int) -> None:
        """Forget the events before an ordinal: they are stored."""
        while self._queue and self._base < following:
            self._bytes -= len(self._queue.popleft().line)
            self._base += 1
        self._base = max(self._base, following)
        self._notify()

    def _check(self) -> None:
        if self._closed is not None:
            raise self._closed
        refused = self.refusal()
        if refused is not None:
            raise refused

    async def _changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
