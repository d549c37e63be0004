from holdfast_agent import testing
from refund import agent


@testing.sync
async def test_a_refund():
    task = testing.Task(agent)
    turn = await task.send("o-7")
    assert (turn.state, turn.message.text) == ("input-required", "Refund 5?")
    await task.send("yes")
    await task.timer()
    turn = await task.results({"feedback#1": "Thank you."})
    assert turn.text == "Refunded: receipt-o-7. Thank you."
    await testing.replay(agent, task.records)
