"""The tests of the adapters need no server."""
