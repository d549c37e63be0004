"""gRPC channels that show a credential, for SDKs whose interceptors do not reach gRPC."""

from typing import Any

import grpc


def showing(header: str, value: str) -> Any:
    """Makes channels whose calls have a header, as a ClientConfig's grpc_channel_factory does."""

    def channel(address: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, interceptors=[_Unary(header, value), _Stream(header, value)])

    return channel


def header(scheme: str, credential: str) -> tuple[str, str]:
    """The header for a credential of a scheme of the server that requires one, and its value."""
    return ("x-api-key", credential) if scheme == "keys" else ("authorization", f"Bearer {credential}")


class _Adds:
    def __init__(self, header: str, value: str):
        self.header, self.value = header.lower(), value

    def details(self, of: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(of.metadata or ()), (self.header, self.value))
        return grpc.aio.ClientCallDetails(of.method, of.timeout, metadata, of.credentials, of.wait_for_ready)


class _Unary(_Adds, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(self.details(client_call_details), request)


class _Stream(_Adds, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(self.details(client_call_details), request)
