from holdfast_agent import testing
from trip import agent


@testing.sync
async def test_a_trip():
    task = testing.Task(agent)
    turn = await task.send("Book me a trip")
    assert (turn.state, turn.message.text) == ("input-required", "Where to?")
    turn = await task.send("Oslo")
    assert turn.state == "completed"
    assert turn.text.startswith("Oslo, day 1: Arrive")
    assert turn.checkpoint == 4
