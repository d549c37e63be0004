"""Holdfast in a container, for tests, by Testcontainers: install the extra ``testcontainers``.

    with HoldfastContainer("REGISTRY/holdfast:dev-vVERSION", "trips") as server:
        ...  # serve the agent trips at server.url

Without Docker, ``holdfast_agent.testing.DevServer`` does the same with a binary.
"""

from __future__ import annotations

import json

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

CONFIG = "/tmp/holdfast.yaml"


class HoldfastContainer(DockerContainer):
    """A server with a PostgreSQL, whose agents are workers that the test serves. Everybody who reaches its ports may use it.

    image: dev-vVERSION of a release.
    agents: their names.
    """

    def __init__(self, image: str, *agents: str) -> None:
        super().__init__(image)
        served = [{"name": name, "executor": {"kind": "worker"}} for name in agents]
        self.with_exposed_ports(8080, 9090).with_env("HOLDFAST_CONFIG", CONFIG).waiting_for(HttpWaitStrategy(9090, "/readyz"))
        self.with_copy_into_container(json.dumps({"agents": served}).encode(), CONFIG)

    @property
    def url(self) -> str:
        """Of the agents: HOLDFAST_URL of a worker."""
        return self._at(8080)

    @property
    def admin_url(self) -> str:
        """Of metrics, health and, below /console/, the console."""
        return self._at(9090)

    def _at(self, port: int) -> str:
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(port)}"
