"""What the programs of agent frameworks share. A framework has a class for a remote agent, which covers fewer scenarios
than an SDK."""

from interop import Absent, Job, Scenario

# The scenarios that need more than the call that sends a message and follows its task.
OTHER_CALLS = (
    *("return-immediately", "get", "list", "cancel", "resubscribe", "error-not-found", "error-terminal"),
    *("push-config", "push", "extended-card"),
)


def absent(why: str, *names: str) -> list[Scenario]:
    """Scenarios that a framework has no call for."""

    def one(name: str) -> Scenario:
        async def scenario(_: Job) -> None:
            raise Absent(why)

        scenario.__name__ = name.replace("-", "_")
        return scenario

    return [one(name) for name in names]
