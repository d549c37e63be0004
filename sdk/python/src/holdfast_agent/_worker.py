"""A worker: claims runs, executes them, and gives back what it cannot finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence

from ._active import Active, Handler
from ._link import Backoff, Link, retrying
from ._logs import RunLogger
from ._outbox import Outbox
from ._pulse import Pulse
from ._run import Run
from ._runapi import RunApi
from ._settings import Settings, logger
from .content import JSON
from .errors import ConnectError, Problem, Unreachable

CLAIM_WAIT = 30.0
STOP_GRACE = 2.0
"""Seconds that the agent's code gets after a stop, before its run is released."""
RELEASE_TIMEOUT = 10.0
LEAVE_TIMEOUT = 2.0
STRANGE_PAUSE = 10.0
"""Seconds for which the worker keeps a run that it cannot execute, because the server may give it to this worker again."""


def _seconds_until(end: float | None) -> float | None:
    """Return the seconds until a time of the monotonic clock, or None if there is no such time."""
    return None if end is None else end - time.monotonic()


class Worker:
    """Serves agents until it is drained."""

    def __init__(self, handlers: Mapping[str, tuple[Handler, int]], settings: Settings) -> None:
        self._handlers = dict(handlers)
        self._settings = settings
        self._runs: dict[str, Active] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._releasing: set[str] = set()
        self._strange: dict[str, str] = {}  # the agents of runs that this worker cannot execute, until they are released
        self._background: set[asyncio.Task[None]] = set()
        self._given_back: set[str] = set()
        self._sleepers: set[asyncio.Future[None]] = set()
        self._draining = False
        self._stopping = False
        self._deadline: float | None = None  # of the runs, once the worker drains; a retirement sets none
        self._cut = False

    # What its owner may say, in the loop of run.

    def drain(self) -> None:
        """Claim no more, and let run return when the runs have ended or the drain timeout is over."""
        if self._deadline is None:
            logger.info("the worker drains", extra={"runs": len(self._runs), "timeout": f"{self._settings.drain_timeout:g}s"})
            self._deadline = time.monotonic() + self._settings.drain_timeout
        self._draining = True
        self._wake()

    def stop(self) -> None:
        """Release all runs at once, and let run return."""
        self._draining = self._stopping = True
        self._wake()

    async def run(self) -> None:
        """Serve. If this is canceled, all runs are released at once."""
        self._claims_link = Link(self._settings)
        self._events_link = Link(self._settings)
        self._pulse = Pulse(self._settings, self._heard)
        self._pulse.start()
        names = ", ".join(sorted(self._handlers))
        logger.info("the worker starts", extra={"agents": names, "url": ",".join(self._settings.urls), "worker": self._settings.id})
        try:
            await self._claim_runs()
            await self._last_claim()
            await self._wait_for_runs()
        except asyncio.CancelledError:
            self.stop()
            raise
        finally:
            self._draining = True
            await self._give_back()
            await self._pulse.close()
            await self._leave()
            await self._claims_link.close()
            await self._events_link.close()
        logger.info("the worker has stopped")

    async def _claim_runs(self) -> None:
        backoff = Backoff()
        connected = False
        empty = drains = 0
        while not self._draining:
            free = self._free()
            if not any(free.values()):
                await self._woken()
                continue
            began = time.monotonic()
            try:
                # The first one does not wait, to say soon whether the server is there.
                answer = await self._claim(free, CLAIM_WAIT if connected else 0)
            except (Problem, Unreachable) as e:
                if isinstance(e, Problem) and e.reason == "version":
                    raise ConnectError(
                        "the server does not speak version 1 of the worker protocol, but "
                        f"{', '.join(e.versions) or 'another one'}: update holdfast-agent or the server"
                    ) from e
                if isinstance(e, Problem) and not e.passing:
                    logger.error("the server refuses the worker, will retry", extra={"error": str(e), "field": e.field})
                elif backoff.tries == 0:
                    logger.warning("cannot claim runs, will retry", extra={"error": str(e)})
                connected = False
                await self._woken(backoff.pause(e), until_drain=True)
                continue
            if answer is None:
                continue
            backoff.reset()
            if not connected:
                logger.info("the worker is connected")
                connected = True
            self._begin(answer.get("runs") or [])
            drain = answer.get("drain")
            if drain:
                await self._drained(drain)
                drains += 1
                if drains > len(self._settings.urls) + 1:
                    await self._woken(0.5, until_drain=True)
                continue
            drains = 0
            empty = empty + 1 if not answer.get("runs") and time.monotonic() - began < 0.1 else 0
            if empty > 5:
                await self._woken(0.2, until_drain=True)

    def _free(self) -> dict[str, int]:
        free = {name: slots for name, (_, slots) in self._handlers.items()}
        for active in self._runs.values():
            if active.run.agent in free:
                free[active.run.agent] -= 1
        # As many strange runs as slots leave room for others. More of them would make the worker claim the whole queue.
        for name, (_, slots) in self._handlers.items():
            free[name] -= max(0, list(self._strange.values()).count(name) - slots)
        return {name: max(0, n) for name, n in free.items()}

    def _held(self) -> list[str]:
        return [id for id, a in self._runs.items() if a.held] + sorted((self._releasing | self._strange.keys()) - self._runs.keys())

    async def _claim(self, free: Mapping[str, int], wait: float = CLAIM_WAIT) -> JSON:
        """Claim once. Return None if the claim was given up, because an agent has its first free slot or the worker drains."""
        doc = {
            "worker": self._settings.worker(),
            "agents": [{"name": name, "slots": n} for name, n in free.items()],
            "running": self._held(),
            "wait": wait,
        }
        request = asyncio.ensure_future(self._claims_link.worker("/claims", doc, wait=wait))
        try:
            while not request.done():
                woken = self._sleeper()
                try:
                    await asyncio.wait({request, woken}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                now = self._free()
                if not request.done() and (self._draining or any(n == 0 and now[name] > 0 for name, n in free.items())):
                    # What this claim has been given already, the next one is told again.
                    self._cut = True
                    return None
            self._cut = False
            return request.result()
        finally:
            if not request.done():
                request.cancel()
                with contextlib.suppress(asyncio.CancelledError, Problem, Unreachable):
                    await request

    async def _last_claim(self) -> None:
        """Ask once more, without slots, for the runs that a claim was given whose answer nobody has read: they are released."""
        if not self._cut or self._stopping:
            return
        doc = {
            "worker": self._settings.worker(),
            "agents": [{"name": name, "slots": 0} for name in self._handlers],
            "running": self._held(),
            "wait": 0,
        }
        try:
            answer = await asyncio.wait_for(self._claims_link.worker("/claims", doc), 5)
        except (Problem, Unreachable, asyncio.TimeoutError):
            return  # they come back when their lease ends
        ids = [r["id"] for r in answer.get("runs") or [] if r["id"] not in self._runs]
        if ids:
            await self._release(ids)

    async def _drained(self, drain: str) -> None:
        if drain == "worker":
            logger.info("the worker is retired", extra={"runs": len(self._runs)})
            self._draining = True
            self._wake()
        elif drain == "replica":
            self._pulse.renew()
            await self._claims_link.renew()
            await self._events_link.renew()

    def _heard(self, answer: JSON) -> None:
        """The answer to a heartbeat."""
        for stop in answer.get("runs") or []:
            active = self._runs.get(stop["id"])
            if active is not None:
                # It also "stops" a run whose end it has just stored.
                level = logging.DEBUG if active.run.ended else logging.INFO
                active.run.log.log(level, "the server stops the run", extra={"reason": stop["stop"]})
                active.stop(stop["stop"], stop.get("metadata"))
            elif stop["stop"] != "canceled":
                self._strange.pop(stop["id"], None)
        self._pulse.update(self._held())
        if answer.get("drain"):
            self._spawn(self._drained(answer["drain"]))

    def _begin(self, runs: Sequence[JSON]) -> None:
        strange = []
        lease: float | None = None
        for claimed in runs:
            id = claimed["id"]
            if id in self._runs or id in self._releasing or id in self._strange:
                continue
            lease = min(lease or claimed["lease"], claimed["lease"])
            name = ""
            try:
                name = str(claimed["run"]["task"]["agent"])
                if name in self._handlers:
                    self._runs[id] = self._activate(id, claimed["run"], self._handlers[name][0])
                    self._tasks[id] = asyncio.create_task(self._execute(id))
                    continue
                logger.error("the server sent a run of an agent that this worker does not have", extra={"agent": name, "run": id})
            except Exception:
                logger.exception("cannot read the run document", extra={"run": id})
            self._strange[id] = name
            strange.append(id)
        if strange:
            self._spawn(self._release_later(strange))
        if lease is not None:
            self._pulse.update(self._held(), lease)

    async def _release_later(self, ids: Sequence[str]) -> None:
        """Release runs after STRANGE_PAUSE, or when the worker drains."""
        await self._woken(STRANGE_PAUSE, until_drain=True)
        left = [id for id in ids if self._strange.pop(id, None) is not None]
        if left:
            await self._release(left)

    def _activate(self, id: str, document: JSON, handler: Handler) -> Active:
        token = (document.get("runApi") or {}).get("token") or ""

        def over(reason: str) -> None:
            active = self._runs.get(id)
            if active is not None:
                active.stop(reason)
                self._pulse.update(self._held())

        api = RunApi(self._events_link, token, lambda: outbox.closed, over)
        fields = {"task_id": document["task"]["id"], "run": id}
        outbox = Outbox(api.post, over, RunLogger(logger, fields), lambda: self._pulse.answers)
        return Active(handler, Run(document, outbox, api, id=id), outbox)

    async def _execute(self, id: str) -> None:
        active = self._runs[id]
        run = active.run
        run.log.info("run began", extra={"turn": run.turn, "try": run.tries, "attempt": run.attempt})
        began = time.monotonic()
        try:
            await active.execute()
        except Exception:
            active.run.log.exception("the run ended in an error of this package")
        try:
            # What has not ended, and is still of this worker, goes back. Until then it takes its slot.
            if active.held and id not in self._given_back:
                await self._release([id])
        finally:
            run.log.info("run ended", extra={"outcome": active.outcome, "took": f"{time.monotonic() - began:.3f}s"})
            del self._runs[id]
            del self._tasks[id]
            self._pulse.update(self._held())
            self._wake()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _wake(self) -> None:
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    def _sleeper(self) -> asyncio.Future[None]:
        """Return a future that the next wake-up ends.

        Make it in the same step as the last check: an earlier wake-up is not remembered.
        """
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.add(sleeper)
        sleeper.add_done_callback(self._sleepers.discard)
        return sleeper

    async def _woken(self, timeout: float | None = None, *, until_drain: bool = False) -> None:
        """Wait for a wake-up; with until_drain, only a drain ends the wait early."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._draining and until_drain:
                return
            rest = _seconds_until(end)
            if rest is not None and rest <= 0:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._sleeper(), rest)
            if not until_drain:
                return

    async def _wait_for_runs(self) -> None:
        while self._tasks and not self._stopping:
            rest = _seconds_until(self._deadline)
            if rest is not None and rest <= 0:
                return
            await self._woken(rest)

    async def _give_back(self) -> None:
        """Stop and release what is left."""
        if self._runs:
            logger.info("the worker releases its runs", extra={"runs": len(self._runs)})
        tasks = list(self._tasks.values())
        for active in list(self._runs.values()):
            active.stop("released")
        if tasks and not self._stopping:
            # What the agent's code emits now is posted, and each run is released when its code has ended.
            await self._settled(tasks, STOP_GRACE)
        left = {id: active for id, active in self._runs.items() if active.held and id not in self._releasing}
        self._given_back.update(left)
        for active in left.values():
            active.abandon()
        if left:
            await self._release(list(left))
        await self._settled(list(self._tasks.values()), STOP_GRACE if self._stopping else 0)
        if self._background:
            await asyncio.wait(self._background, timeout=RELEASE_TIMEOUT)
        for task in [*self._tasks.values(), *self._background]:
            task.cancel()

    async def _leave(self) -> None:
        """Tell the server that this worker is gone."""
        doc: JSON = {"worker": self._settings.worker(), "runs": [], "leaves": True}
        with contextlib.suppress(Problem, Unreachable, asyncio.TimeoutError):
            await asyncio.wait_for(self._claims_link.worker("/release", doc), LEAVE_TIMEOUT)

    async def _settled(self, tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
        """Wait for tasks, at most so long, and not longer after a stop."""
        end = time.monotonic() + seconds
        began_stopping = self._stopping
        while any(not t.done() for t in tasks) and time.monotonic() < end and self._stopping == began_stopping:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._sleeper(), max(0.0, end - time.monotonic()))

    async def _release(self, ids: Sequence[str]) -> None:
        self._releasing.update(ids)
        doc = {"worker": self._settings.worker(), "runs": list(ids)}
        end = time.monotonic() + RELEASE_TIMEOUT
        try:
            await retrying(lambda: self._claims_link.worker("/release", doc), lambda: time.monotonic() > end)
        except (Problem, Unreachable) as e:
            logger.warning("cannot release runs: their leases end", extra={"error": str(e), "runs": ", ".join(ids)})
        finally:
            self._releasing.difference_update(ids)
            self._pulse.update(self._held())
            self._wake()
