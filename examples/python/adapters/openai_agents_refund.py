"""An agent of the OpenAI Agents SDK with a tool that needs approval: python openai_agents_refund.py. The model is scripted."""

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from holdfast_agent.adapters.openai_agents import wrap

set_tracing_disabled(True)  # its traces go to OpenAI


def fake(call):
    """Calls the tool, then says what came of it."""
    last = call.input[-1]
    if last.get("type") == "function_call_output":
        return [assistant_message(f"The tool says: {last['output']}")]
    return [function_call("refund", {"euros": 20}, call_id=f"call-{len(call.input)}")]


@function_tool(needs_approval=True)
def refund(euros: int) -> str:
    """Pay money back."""
    return f"paid {euros} euros"


model = ScriptedModel([ModelStep.respond(fake)] * 1000)
agent = wrap(Agent(name="refunds", model=model, tools=[refund]), "refunds")

if __name__ == "__main__":
    agent.serve()
