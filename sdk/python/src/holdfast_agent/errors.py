"""The errors of the package."""

from __future__ import annotations

from typing import Any


class Fail(Exception):
    """Raise it to fail the task with a text that the client reads."""


class Reject(Exception):
    """Raise it to reject the task, with a text that the client reads."""


class Retry(Exception):
    """Raise it to end this try. The server retries after `after` seconds, or after its own backoff."""

    def __init__(self, reason: str = "", after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class Stopped(Exception):
    """The run no longer belongs to this worker, so the server takes nothing more from it. Let it pass."""


class Ended(Exception):
    """The run has ended, by ask, complete or another word that ends it. Nothing may follow."""


class EventRefused(Exception):
    """An event was refused. It is not stored, nor are the events behind it. The run may go on without them.

    An event that is too large is refused by the call that emits it; others by a later one.
    """

    def __init__(self, problem: Problem, kind: str) -> None:
        where = f" ({problem.field})" if problem.field else ""
        super().__init__(f"the event {kind!r} was refused{where}: {problem.detail or problem.title}")
        self.problem = problem
        self.kind = kind


def too_large(what: str, size: int, limit: str, most: int | None) -> None:
    """Raise a Problem if something has more bytes than a limit of the server."""
    if most and size > most:
        detail = f"{what} has {size} bytes; the limit is {most} (limits.{limit})"
        raise Problem(413, {"title": "Too large", "reason": "too_large", "detail": detail})


class StepFailed(Exception):
    """A step of a durable run has failed, in this try or an earlier one. `type` is the name of the class that it raised."""

    def __init__(self, step: str, type: str, message: str) -> None:
        super().__init__(f"{step}: {type}: {message}" if type else f"{step}: {message}")
        self.step = step
        self.type = type
        self.message = message


class CodeChanged(Exception):
    """The code of a durable agent does not fit what the task has recorded."""


class StateChanged(Exception):
    """Another run has changed the state. Read it, and try again."""

    repeated = False
    """The request was sent before, and its answer was lost: the change may be its own."""


class NotFound(Exception):
    """What was asked for is not there."""


class Unreachable(Exception):
    """No replica answered."""


class ConnectError(Exception):
    """The worker cannot go on: its settings are wrong, or the server does not speak its version of the protocol."""


class Problem(Exception):
    """A refusal of the server (RFC 9457)."""

    def __init__(self, status: int, doc: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.title = str(doc.get("title") or f"HTTP status {status}")
        self.reason = str(doc.get("reason") or "")
        self.detail = str(doc.get("detail") or "")
        self.field = str(doc.get("field") or "")
        following = doc.get("next")
        self.next = following if isinstance(following, int) else None
        versions = doc.get("versions")
        self.versions = [str(v) for v in versions] if isinstance(versions, list) else []
        self.retry_after = retry_after
        super().__init__(f"{status} {self.reason or self.title}" + (f": {self.detail}" if self.detail else ""))

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 429 or (self.status >= 500 and self.status != 501)
