"""Calls the agent's code for one run, and ends the run as the code does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Union, cast

from ._logs import current
from ._outbox import Outbox
from ._run import OUTCOMES, Run, SyncRun
from .content import JSON, to_message
from .errors import Ended, EventRefused, Fail, Reject, Retry, Stopped

AsyncHandler = Callable[[Run], Awaitable[Any]]
SyncHandler = Callable[[SyncRun], Any]
Handler = Union[AsyncHandler, SyncHandler]

FAILED = "The agent failed."
GONE = ("lost", "over", "gap")
"""The stops after which nothing may be posted."""


def is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class Active:
    """A run that this process executes."""

    def __init__(self, handler: Handler, run: Run, outbox: Outbox) -> None:
        self.run = run
        self._handler = handler
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._sync: SyncRun | None = None if is_async(handler) else SyncRun(run, self._loop)
        self._task: asyncio.Task[None] | None = None
        self._upload: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """The worker has the run, as far as it knows."""
        return self.run.stop_reason not in ("lost", "over") and not self._outbox.ended

    @property
    def outcome(self) -> str:
        """The result of the run, as the server's log says it."""
        run = self.run
        if run._end is not None and (self._outbox.ended or run.stop_reason in (None, "canceled", "over", "released")):
            return OUTCOMES[run._end]
        if run.stop_reason is None:
            return "over" if self._outbox.ended else "returned"
        return {"released": "returned", "gap": "lost"}.get(run.stop_reason, run.stop_reason)

    def stop(self, reason: str, metadata: Mapping[str, JSON] | None = None) -> None:
        """Tell the agent's code to stop: canceled, lost, over, gap or released."""
        before = self.run.stop_reason
        if before == reason or before in GONE:
            return
        self.run._mark(reason, metadata)
        if reason in GONE:
            self._outbox.close(Stopped(f"the run is stopped: {reason}"))
        if self._sync is not None:
            self._sync._mark()
        elif self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Post nothing any more, also not what is queued."""
        self._outbox.close(Stopped("the run was released"))
        if self._upload is not None:
            self._upload.cancel()

    async def execute(self) -> None:
        """Return when the agent's code has ended, and the end of the run is committed or nobody wants it."""
        current.set(self.run.fields)
        self._upload = asyncio.create_task(self._outbox.upload())
        try:
            error = await self._call()
            await self._finish(error)
        finally:
            self._outbox.close(Stopped("the run has ended"))
            self._upload.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upload

    async def _call(self) -> BaseException | None:
        if self.run.stop_reason is not None:
            return Stopped("the run was stopped before it began")
        self._task = asyncio.create_task(self._guarded() if self._sync is None else self._threaded(self._sync))
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if self._task.cancelled():
            return asyncio.CancelledError()
        return self._task.exception()

    async def _guarded(self) -> None:
        try:
            given = await cast(AsyncHandler, self._handler)(self.run)
            if given is not None:
                await self._answer(given)
        except (SystemExit, KeyboardInterrupt) as e:
            raise RuntimeError(f"the agent's code raised {e!r}") from e

    async def _answer(self, given: Any) -> None:
        """What the function has returned is the answer: a text, or parts."""
        if self.run.ended:
            raise Ended("the function returned a value after the end of the run")
        if isinstance(given, str):
            await self.run.text(given)
        else:
            parts = to_message(given).parts
            await self.run.artifact(*parts, name="result", id=f"result-{self.run.turn}")

    async def _threaded(self, run: SyncRun) -> None:
        """Call a sync agent in a thread of its own. It is a daemon: code that never returns does not keep the process."""
        done: asyncio.Future[None] = self._loop.create_future()

        def settle(error: BaseException | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)

        def body() -> None:
            error: BaseException | None = None
            try:
                given = cast(SyncHandler, self._handler)(run)
                if given is not None:
                    run._wait(self._answer(given))
            except StopIteration as e:  # a future refuses it
                error = RuntimeError(f"the agent's code raised {e!r}")
            except (SystemExit, KeyboardInterrupt) as e:
                error = RuntimeError(f"the agent's code raised {e!r}")
            except BaseException as e:
                error = e
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(settle, error)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(body,), name=f"run {self.run.id}", daemon=True).start()
        await done

    async def _finish(self, error: BaseException | None) -> None:
        run = self.run
        try:
            if run.ended:
                if error is not None and not isinstance(error, (asyncio.CancelledError, Stopped)):
                    run.log.warning("the agent raised an error after the end of the run", exc_info=error)
                return
            if run.stop_reason in GONE or self._outbox.ended:
                return
            if run.stop_reason is not None:
                # The run is released. After a cancel the server then makes the task canceled.
                if error is not None and not isinstance(error, (asyncio.CancelledError, Stopped)):
                    run.log.warning("the agent raised an error after its run was stopped", exc_info=error)
                with contextlib.suppress(EventRefused):
                    await self._outbox.flush()
                return
            try:
                await self._end(error)
            except EventRefused as e:
                run.log.error("an event was refused", exc_info=e)
                await run.fail(FAILED, error=e)
        except Stopped:
            pass
        except EventRefused as e:
            run.log.error("the end of the run was refused", exc_info=e)

    async def _end(self, error: BaseException | None) -> None:
        run = self.run
        if error is None:
            await run.complete()
        elif isinstance(error, Fail):
            run.log.error("the agent failed", exc_info=error)
            await run.fail(str(error) or FAILED, error=error.__cause__)
        elif isinstance(error, Reject):
            await run.reject(str(error) or None)
        elif isinstance(error, Retry):
            run.log.info("the agent asks for a retry", extra={"reason": error.reason})
            await run.retry(error.reason or None, after=error.after)
        else:
            run.log.error("the agent failed", exc_info=error)
            await run.fail(FAILED, error=error)
