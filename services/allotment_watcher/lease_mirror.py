"""Shows in Kubernetes which replicas are active: a Lease for each service, as `kubectl get lease`
prints it.

The lease that counts lies in NATS. These objects are copies of it, for people: no service reads
them, and a copy that cannot be written, or that is edited, changes nothing.
"""

from collections.abc import Sequence

import anyio

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.events import micro_time
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.adapters.log.connection import Connection
from allotment.adapters.log.jetstream import ApiError, JetStream
from allotment.adapters.log.lease import newest_claims
from allotment.adapters.log.nats_users import SERVICES
from allotment.adapters.telemetry.log import Logger
from allotment.core.logport import LogUnavailable

LOOK_S = 2.0
RENEWED_EVERY_S = 10.0
DURATION_S = 40
"""A copy that was not renewed for so long may be outdated."""
BUDGET_S = 2.0


class LeaseMirror:
    """Copies the leases of NATS into a namespace."""

    def __init__(
        self, client: KubeClient, connection: Connection, namespace: str, log: Logger
    ) -> None:
        self._client = client
        self._jetstream = JetStream(connection, budget_s=BUDGET_S)
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._log = log
        self._said = ""
        self._copied: dict[str, tuple[str, int]] = {}
        """By service the holder and the time, in nanoseconds, of the claim that was copied last."""

    async def run(self, services: Sequence[str] = tuple(SERVICES)) -> None:
        """Copy for ever."""
        while True:
            try:
                claims = await newest_claims(self._jetstream, services)
            except (ApiError, LogUnavailable):
                claims = {}
            for service, (record, holder) in claims.items():
                if record is not None and self._is_news(service, holder, record.time_ns):
                    await self.copy(service, holder, record.time_ns)
            await anyio.sleep(LOOK_S)

    def _is_news(self, service: str, holder: str, time_ns: int) -> bool:
        last_holder, last_ns = self._copied.get(service, ("", 0))
        return holder != last_holder or time_ns - last_ns >= RENEWED_EVERY_S * 1_000_000_000

    async def copy(self, service: str, holder: str, time_ns: int) -> None:
        """Write one; the next look tries again what failed."""
        answer = await self._write(
            f"allotment-{service}",
            {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_S,
                "renewTime": micro_time(time_ns),
            },
        )
        if isinstance(answer, Ok):
            self._copied[service] = holder, time_ns
        elif answer.message != self._said:
            self._said = answer.message
            self._log.warning("the active replica's Lease cannot be written", reason=answer.message)

    async def _write(self, name: str, spec: dict[str, object]) -> KubeResult:
        answer = await self._client.patch(f"{self._folder}/{name}", {"spec": spec})
        if isinstance(answer, Refused) and answer.status == 404:
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
            answer = await self._client.create(self._folder, {**made, "metadata": {"name": name}})
        return answer
