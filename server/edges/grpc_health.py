"""gRPC's health checks and reflection, for the edge in the node's thread."""

from __future__ import annotations

from typing import Any, Final

from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from .grpc_code import GrpcCode
from .local_method import LocalCaller, LocalMethod

_Status = health_pb2.HealthCheckResponse
#: The service that stands for the whole server.
_OVERALL: Final = ""
#: The later name of reflection, with the same messages. Clients try it first.
_REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"


class HealthService:
    """The status of each service, and the calls that watch one."""

    def __init__(self, services: tuple[str, ...]) -> None:
        self._status = dict.fromkeys((_OVERALL, *services), _Status.SERVING)
        self._watchers: dict[LocalCaller, str] = {}
        #: Responses to checks, by the request message.
        self._known: dict[bytes, bytes] = {}
        self._set_known()

    def methods(self) -> list[LocalMethod]:
        path = f"/{health.SERVICE_NAME}/"
        return [
            LocalMethod(path + "Check", self._check, answer=self._known.get),
            LocalMethod(path + "Watch", self._watch),
        ]

    def drain(self) -> None:
        """Reports every service as NOT_SERVING from now on."""
        for service in self._status:
            self._status[service] = _Status.NOT_SERVING
        self._set_known()
        for call, service in self._watchers.items():
            call.send(self._response(service))

    def end_watches(self) -> None:
        for call in list(self._watchers):
            call.finish(GrpcCode.UNAVAILABLE, "this node has stopped")

    def _set_known(self) -> None:
        for service in self._status:
            message = health_pb2.HealthCheckRequest(service=service).SerializeToString()
            self._known[message] = self._response(service)

    def _check(self, call: LocalCaller, message: bytes) -> None:
        service = health_pb2.HealthCheckRequest.FromString(message).service
        if service not in self._status:
            call.finish(GrpcCode.NOT_FOUND, f"unknown service {service[:100]!r}")
            return
        call.send(self._response(service))
        call.finish()

    def _watch(self, call: LocalCaller, message: bytes) -> None:
        service = health_pb2.HealthCheckRequest.FromString(message).service
        self._watchers[call] = service
        call.on_end = lambda: self._forget(call)
        call.send(self._response(service))

    def _response(self, service: str) -> bytes:
        status = self._status.get(service, _Status.SERVICE_UNKNOWN)
        response: bytes = _Status(status=status).SerializeToString()
        return response

    def _forget(self, call: LocalCaller) -> None:
        self._watchers.pop(call, None)


class ReflectionService:
    """Answers from the descriptors of the generated code, with the servicer of grpcio."""

    def __init__(self, services: tuple[str, ...]) -> None:
        named = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        self._servicer: Any = reflection.ReflectionServicer(named)

    def methods(self) -> list[LocalMethod]:
        return [
            LocalMethod(f"/{service}/ServerReflectionInfo", self._info, client_streams=True)
            for service in (reflection.SERVICE_NAME, _REFLECTION_V1)
        ]

    def _info(self, call: LocalCaller, message: bytes) -> None:
        request = reflection_pb2.ServerReflectionRequest.FromString(message)
        for response in self._servicer.ServerReflectionInfo(iter([request]), None):
            call.send(response.SerializeToString())
