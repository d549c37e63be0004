"""An agent of the Microsoft Agent Framework with a tool that needs approval: python agent_framework_refund.py. The model is fake."""

from agent_framework import Agent, BaseChatClient, ChatResponseUpdate, Content, FunctionInvocationLayer, tool

from holdfast_agent.adapters.agent_framework import wrap


class Fake(FunctionInvocationLayer, BaseChatClient):
    """Calls the tool, then says what came of it."""

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        results = [c for c in messages[-1].contents if c.type == "function_result"]

        async def updates():
            if results:
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(f"The tool says: {results[0].result}")])
            else:
                call = Content.from_function_call(f"call-{len(messages)}", "refund", arguments={"euros": 20})
                yield ChatResponseUpdate(role="assistant", contents=[call])

        return self._build_response_stream(updates())


@tool(approval_mode="always_require")
def refund(euros: int) -> str:
    """Pay money back."""
    return f"paid {euros} euros"


agent = wrap(Agent(Fake(), name="refunds", tools=[refund]), "refunds")

if __name__ == "__main__":
    agent.serve()
