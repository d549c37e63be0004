"""LiteLLM's proxy, with the arguments of its command."""

from litellm import run_server

if __name__ == "__main__":
    run_server()
