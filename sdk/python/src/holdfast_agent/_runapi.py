"""The run API, as far as an agent reads and stores by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ._link import NDJSON_TYPE, Link, retrying
from .content import JSON
from .errors import NotFound, Problem, StateChanged, Stopped

EVENTS_TIMEOUT = 120.0


class Api(Protocol):
    """What a run needs beside its document."""

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, match: int | None = None
    ) -> JSON: ...


class RunApi:
    """Requests with the token of one run."""

    def __init__(self, link: Link, token: str, closed: Callable[[], bool], over: Callable[[str], None]) -> None:
        self._link = link
        self._token = token
        self._closed = closed
        self._over = over

    async def post(self, ordinal: int, lines: bytes) -> JSON:
        """Post events once."""
        answer, _ = await self._link.send(
            "POST",
            "/run/v1/events",
            bearer=self._token,
            body=lines,
            content_type=NDJSON_TYPE,
            query={"from": str(ordinal)},
            timeout=EVENTS_TIMEOUT,
        )
        return answer

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, match: int | None = None
    ) -> JSON:
        """Send a request until it is answered. `match` is the version that a state must have; 0: nothing is stored."""
        headers = {}
        if match is not None:
            headers = {"If-Match": f'"{match}"'} if match > 0 else {"If-None-Match": "*"}
        tries = 0

        async def send() -> JSON:
            nonlocal tries
            tries += 1
            doc, _ = await self._link.send(method, "/run/v1" + path, bearer=self._token, body=body, query=query, headers=headers)
            return doc

        try:
            return await retrying(send, self._closed)
        except Problem as e:
            if e.status in (401, 410):
                self._over("over")
                raise Stopped("the run is over") from e
            if e.status == 404:
                raise NotFound(e.detail or path) from e
            if e.status == 412:
                changed = StateChanged(e.detail or "another run has changed the state")
                changed.repeated = tries > 1
                raise changed from e
            raise
