"""Where a worker connects to, and as what."""

from __future__ import annotations

import logging
import os
import platform
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ._version import VERSION
from .errors import ConnectError

logger = logging.getLogger("holdfast_agent")

CONCURRENCY = 10
DRAIN_TIMEOUT = 30.0


@dataclass
class Settings:
    urls: list[str]
    name: str
    version: str
    concurrency: int = CONCURRENCY
    drain_timeout: float = DRAIN_TIMEOUT
    api_key: str = ""
    api_key_file: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    logins: dict[str, str] = field(default_factory=dict, repr=False)
    """USER:PASSWORD of addresses that have them. The addresses in urls do not, because they reach logs."""

    @classmethod
    def of(
        cls,
        *,
        url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        api_key_file: str | os.PathLike[str] | None = None,
        concurrency: int | None = None,
        name: str | None = None,
        version: str | None = None,
        drain_timeout: float | None = None,
    ) -> Settings:
        """Take each setting from its argument, else from the environment."""
        env = os.environ.get
        given = url if url is not None else env("HOLDFAST_URL") or "http://127.0.0.1:8080"
        urls = []
        logins = {}
        for u in given.split(",") if isinstance(given, str) else given:
            if not u.strip():
                continue
            address, login = _address(u.strip())
            urls.append(address)
            if login:
                logins[address] = login
        if not urls:
            raise ConnectError("url: no address; set HOLDFAST_URL or url=")
        if api_key is None and api_key_file is None:
            api_key = env("HOLDFAST_API_KEY")
            if not api_key:
                api_key_file = env("HOLDFAST_API_KEY_FILE") or env("HOLDFAST_TOKEN_FILE")
        if concurrency is None:
            concurrency = CONCURRENCY
        if drain_timeout is None:
            drain_timeout = DRAIN_TIMEOUT
        if drain_timeout < 0:
            raise ConnectError(f"drain_timeout: {drain_timeout} is negative; write seconds")
        settings = cls(
            urls=urls,
            name=name if name is not None else env("HOLDFAST_WORKER_NAME") or platform.node(),
            version=version if version is not None else env("HOLDFAST_WORKER_VERSION") or "",
            concurrency=slots(concurrency, "concurrency"),
            drain_timeout=drain_timeout,
            api_key=api_key or "",
            api_key_file=os.fspath(api_key_file) if api_key_file else "",
            logins=logins,
        )
        if settings.api_key_file:
            try:
                settings.credential()
            except OSError as e:
                raise ConnectError(f"api_key_file: {e}") from e
        return settings

    def credential(self) -> str:
        """The API key or token. A file is read for each request, because its content may change."""
        if self.api_key_file:
            return Path(self.api_key_file).read_text(encoding="utf-8").strip()
        return self.api_key

    def worker(self) -> dict[str, str]:
        """The worker, as the server gets it."""
        doc = {"id": self.id, "sdk": f"holdfast-agent/{VERSION} python/{platform.python_version()}"}
        if self.name:
            doc["name"] = self.name[:255]
        if self.version:
            doc["version"] = self.version[:255]
        return doc


def _address(url: str) -> tuple[str, str]:
    """Return the URL without user and password, and USER:PASSWORD, which may be empty."""
    try:
        found = re.fullmatch(r"(https?://)(?:([^/?#]*)@)?(.*)", url)
        parts = urlsplit(found[1] + found[3]) if found else None
        if found is None or parts is None or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        # A slash in a password ends the host: show nothing before the last @.
        shown = re.sub(r"^(\w+://)?.*@", r"\1", url)
        raise ConnectError(f"url: {shown!r} is no address; write http://HOST:PORT or https://HOST") from None
    return (found[1] + found[3]).rstrip("/"), unquote(found[2] or "")


def slots(n: int, what: str) -> int:
    """Check a concurrency."""
    if not isinstance(n, int) or not 1 <= n <= 1000:
        raise ConnectError(f"{what}: {n!r} is not a whole number from 1 to 1000")
    return n
