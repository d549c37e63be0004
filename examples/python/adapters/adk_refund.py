"""An agent of Google ADK with a tool that a person confirms: python adk_refund.py. The model is a fake."""

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool
from google.genai import types

from holdfast_agent.adapters.adk import wrap


class Fake(BaseLlm):
    """Calls the tool, then says what came of it."""

    model: str = "fake"

    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=f"The tool says: {last.function_response.response}")
        else:
            part = types.Part(function_call=types.FunctionCall(name="refund", args={"euros": 20}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def refund(euros: int) -> dict:
    """Pay money back."""
    return {"paid": euros}


root = LlmAgent(name="refund_agent", model=Fake(), tools=[FunctionTool(refund, require_confirmation=True)])
# In production a service that all workers share, such as DatabaseSessionService.
agent = wrap(Runner(app_name="refund", agent=root, session_service=InMemorySessionService()), "refund")

if __name__ == "__main__":
    agent.serve()
