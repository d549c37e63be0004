"""Agents of other libraries, unchanged. Each module needs the extra of its name, such as holdfast-agent[langgraph]."""
