"""A graph of LangGraph that asks for approval: python langgraph_trip.py. The model is LangChain's fake one."""

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from holdfast_agent.adapters.langgraph import wrap

model = GenericFakeChatModel(messages=iter(lambda: AIMessage("A train to Oslo, 199 euros."), None))


async def plan(state: MessagesState):
    return {"messages": [await model.ainvoke(state["messages"])]}


def approve(state: MessagesState):
    return {"messages": [AIMessage("Booked." if interrupt("Book it?") == "yes" else "Dropped.")]}


builder = StateGraph(MessagesState)
builder.add_node("plan", plan)
builder.add_node("approve", approve)
builder.add_edge(START, "plan")
builder.add_edge("plan", "approve")
# In production a saver that all workers share, such as AsyncPostgresSaver.
agent = wrap(builder.compile(checkpointer=InMemorySaver()), "trip")

if __name__ == "__main__":
    agent.serve()
