"""An agent of PydanticAI with a tool that needs approval: python pydantic_ai_files.py. The model is PydanticAI's test model."""

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.test import TestModel

from holdfast_agent.adapters.pydantic_ai import wrap

files = Agent(TestModel(custom_output_text="Done."), output_type=[str, DeferredToolRequests])


@files.tool_plain(requires_approval=True)
def delete(name: str) -> str:
    """Delete a file."""
    return f"{name} is gone"


agent = wrap(files, "files")

if __name__ == "__main__":
    agent.serve()
