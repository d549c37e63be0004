"""Interop program of Google ADK 2: RemoteA2aAgent, on a2a-sdk 1."""

import sys
from pathlib import Path

from a2a.client import ClientConfig, ClientFactory

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
import adk
from interop import Job


def factory(job: Job, _streaming: bool) -> ClientFactory | None:
    """ADK's own streams, over JSON-RPC."""
    return ClientFactory(ClientConfig(supported_protocol_bindings=["HTTP+JSON"])) if job.binding == "rest" else None


if __name__ == "__main__":
    adk.run(factory, folded=False)
