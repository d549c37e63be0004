"""Log records carry the task, the run and the trace."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import MutableMapping
from typing import Any

current: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("holdfast_run", default=None)

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(run_fields)s"

_known = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "run_fields"}


asking: contextvars.ContextVar[bool] = contextvars.ContextVar("holdfast_asking", default=False)
"""A request of this package is under way."""


class _Others(logging.Filter):
    """Drops the lines of httpx about requests of this package: several each second. Those of the program stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not asking.get()


_others = _Others()


def quiet() -> None:
    for name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
        logging.getLogger(name).addFilter(_others)


class RunFilter(logging.Filter):
    """Adds `task_id`, `run` and `trace_id` of the present run to each record, and `run_fields` with all extra fields.

    Put it on a handler. `serve` does so if the program has not configured logging itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for key, value in (current.get() or {"task_id": "", "run": "", "trace_id": ""}).items():
            if not hasattr(record, key):
                setattr(record, key, value)
        shown = (f"{k}={v}" for k, v in vars(record).items() if k not in _known and v != "")
        record.run_fields = "".join(" " + s for s in shown)
        return True


class RunLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Adds the fields of a run to each record."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def configure() -> None:
    """Log to stderr, unless the program has configured logging."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.addFilter(RunFilter())
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
