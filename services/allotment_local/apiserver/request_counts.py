"""How often the API server was asked for what: `GET /metrics`, as a kube-apiserver says it.

One family, `apiserver_request_total`, with the labels of the real one as far as there is anything
to say: a client that counts its requests by kind reads both servers alike.
"""

from collections import Counter
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from allotment_local.apiserver.requests import Target

FAMILY = "apiserver_request_total"
LABELS = ("verb", "group", "version", "resource", "subresource", "code")
_YES = ("1", "true", "True", "t", "T", "TRUE")


class _Kind(NamedTuple):
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    code: str


class RequestCounts(Collector):
    """Requests for objects by kind and answer, since the server started."""

    def __init__(self) -> None:
        self._counts: Counter[_Kind] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, request: web.Request, target: Target, code: int) -> None:
        resource = target.resource
        kind = _Kind(
            _verb(request, target),
            resource.group,
            resource.version,
            resource.key.plural,
            target.subresource,
            str(code),
        )
        self._counts[kind] += 1

    def collect(self) -> list[CounterMetricFamily]:
        family = CounterMetricFamily(FAMILY, "Requests for objects.", labels=LABELS)
        for kind, count in sorted(self._counts.items()):
            family.add_metric(kind, count)
        return [family]

    def page(self) -> bytes:
        """What `/metrics` answers, in Prometheus's text format."""
        return generate_latest(self._registry)


def _verb(request: web.Request, target: Target) -> str:
    if request.method in ("GET", "HEAD"):
        if target.name is not None:
            return "GET"
        return "WATCH" if request.query.get("watch", "") in _YES else "LIST"
    if request.method == "DELETE":
        return "DELETE" if target.name is not None else "DELETECOLLECTION"
    return request.method
