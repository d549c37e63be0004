"""Interop program of Google ADK 1: RemoteA2aAgent, on a2a-sdk 0.3."""

import sys
from pathlib import Path

from a2a.client import ClientConfig, ClientFactory
from a2a.types import TransportProtocol

sys.path.insert(0, str(Path(__file__).parents[1] / "py-common"))
import adk
from interop import Job


def factory(job: Job, streaming: bool) -> ClientFactory | None:
    """ADK's own does not stream, and calls JSON-RPC."""
    if job.binding == "rest":
        return ClientFactory(ClientConfig(supported_transports=[TransportProtocol.http_json]))
    return ClientFactory(ClientConfig(supported_transports=[TransportProtocol.jsonrpc])) if streaming else None


if __name__ == "__main__":
    # An event comes for the first chunk and for the last one, and has all chunks until then.
    adk.run(factory, folded=True)
