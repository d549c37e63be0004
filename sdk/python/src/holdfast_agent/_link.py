"""HTTP to the replicas."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import httpx

from ._logs import asking, quiet
from ._settings import Settings
from .content import JSON, decode, encode
from .errors import Problem, Unreachable

T = TypeVar("T")

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
PATIENCE = 20.0


class Backoff:
    """The pauses between tries: the first at most a second, the later ones at most ten, and never before Retry-After."""

    def __init__(self) -> None:
        self.tries = 0

    def pause(self, error: Exception | None = None) -> float:
        longest = min(10.0, 0.25 * 2.0**self.tries)
        self.tries = min(self.tries + 1, 16)
        after = error.retry_after if isinstance(error, Problem) and error.retry_after else 0.0
        return float(after + longest * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        self.tries = 0


class _Pool:
    """Connections of one generation."""

    def __init__(self) -> None:
        self.client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            timeout=httpx.Timeout(TIMEOUT, connect=CONNECT_TIMEOUT, pool=None),
            follow_redirects=False,
        )
        self.users = 0
        self.retired = False


class Link:
    """Requests to the replicas, of one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        quiet()
        self._at = 0
        self._pool: _Pool | None = None

    async def renew(self) -> None:
        """Use new connections from now on, at the next address. Requests under way keep theirs."""
        self._at += 1
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retired = True
            if pool.users == 0:
                await pool.client.aclose()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.client.aclose()

    async def worker(self, path: str, doc: JSON, *, wait: float = 0, patience: float = PATIENCE) -> JSON:
        """A request of the worker API. Its answer may take as long as the server is asked to wait, and the patience, in seconds."""
        try:
            credential = self.settings.credential()
        except OSError as e:
            raise Unreachable(f"api_key_file: {e}") from e
        body = encode(doc, "the request")
        return (await self.send("POST", "/worker/v1" + path, bearer=credential, body=body, timeout=wait + patience))[0]

    async def send(
        self,
        method: str,
        path: str,
        *,
        bearer: str = "",
        body: bytes | None = None,
        content_type: str = JSON_TYPE,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> tuple[JSON, httpx.Headers]:
        """Send one request, and return the answer of a success. Raise Problem or Unreachable otherwise."""
        if self._pool is None:
            self._pool = _Pool()
        pool = self._pool
        base = self.settings.urls[self._at % len(self.settings.urls)]
        send = dict(headers or {})
        if bearer:
            send["Authorization"] = "Bearer " + bearer
        elif base in self.settings.logins:
            send["Authorization"] = "Basic " + base64.b64encode(self.settings.logins[base].encode()).decode()
        if body is not None:
            send["Content-Type"] = content_type
        pool.users += 1
        token = asking.set(True)
        try:
            answer = await pool.client.request(
                method,
                base + path,
                content=body,
                params=dict(query) if query else None,
                headers=send,
                timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT), pool=None),
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as e:
            self._at += 1
            raise Unreachable(f"{base}: {type(e).__name__}: {e}".rstrip(": ")) from e
        finally:
            asking.reset(token)
            pool.users -= 1
            if pool.retired and pool.users == 0:
                await pool.client.aclose()
        try:
            doc = decode(answer.content) if answer.content else None
        except (ValueError, RecursionError):
            doc = None
            if answer.is_success:
                raise Unreachable(f"{base}: the answer to {method} {path} is not JSON") from None
        if answer.is_success:
            return doc, answer.headers
        problem = Problem(answer.status_code, doc if isinstance(doc, dict) else {}, _retry_after(answer.headers))
        if problem.status >= 500:
            self._at += 1
        raise problem


def _retry_after(headers: httpx.Headers) -> float | None:
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


async def retrying(send: Callable[[], Awaitable[T]], until: Callable[[], bool]) -> T:
    """Send again after errors that pass, until until() says to stop."""
    backoff = Backoff()
    while True:
        try:
            return await send()
        except Unreachable as e:
            error: Exception = e
        except Problem as e:
            if not e.passing:
                raise
            error = e
        if until():
            raise error
        await asyncio.sleep(backoff.pause(error))
