"""Whether Volcano's own controllers run in the cluster: two of a kind would fight over every pod.

They count as running
* while the Lease `vc-controller-manager` in their namespace has a holder and is renewed: seen by
  this machine's clock, as their time stamps are another machine's; when first seen it is taken to
  be alive until it was not renewed for twice its own duration; or
* while the Deployment `volcano-controllers` has an available replica, for installations without
  leader election.
What cannot be read changes nothing; names can be set by the namespace only.
"""

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.result import Ok, Refused
from allotment.adapters.kube.wire import read_leniently

LEASE = "vc-controller-manager"
DEPLOYMENT = "volcano-controllers"
POLL_S = 5.0
DURATION_S = 15


class LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class LeaseObject(msgspec.Struct):
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class DeploymentStatus(msgspec.Struct, rename="camel"):
    available_replicas: int | None = None


class DeploymentObject(msgspec.Struct):
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class Presence:
    """Looks for Volcano's controllers. `why` says how they were found; empty while they are not."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.why = ""
        self._client = client
        self._namespace = namespace
        self._renewed: str | None = None
        self._renewed_s = 0.0
        self._turned = anyio.Event()

    async def look(self) -> None:
        """Look once."""
        found = [await self._by_lease(), await self._by_deployment()]
        seen = next((why for why in found if why), "")
        if not seen and None in found:
            return
        turns = bool(seen) != bool(self.why)
        self.why = seen
        if turns:
            self._turned.set()
            self._turned = anyio.Event()

    async def keep_looking(self) -> None:
        while True:
            await anyio.sleep(POLL_S)
            await self.look()

    async def absent(self) -> None:
        """Wait until they do not run."""
        while self.why:
            await self._turned.wait()

    async def present(self) -> None:
        """Wait until they run."""
        while not self.why:
            await self._turned.wait()

    async def _by_lease(self) -> str | None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{LEASE}"
        answer = await self._client.get(path)
        if not isinstance(answer, Ok):
            return "" if _is_missing(answer) else None
        found = read_leniently(answer.body, LeaseObject)
        if found is None:
            return None
        spec = found.spec
        if not spec.holder_identity:
            return ""
        now_s = anyio.current_time()
        if (spec.renew_time or "") != self._renewed:
            self._renewed, self._renewed_s = spec.renew_time or "", now_s
        patience_s = 2 * (spec.lease_duration_seconds or DURATION_S)
        if now_s - self._renewed_s > patience_s:
            return ""
        return f"the Lease {self._namespace}/{LEASE} is held by {spec.holder_identity}"

    async def _by_deployment(self) -> str | None:
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{DEPLOYMENT}"
        answer = await self._client.get(path)
        if not isinstance(answer, Ok):
            return "" if _is_missing(answer) else None
        found = read_leniently(answer.body, DeploymentObject)
        if found is None:
            return None
        available = found.status
        if not available.available_replicas:
            return ""
        return f"the Deployment {self._namespace}/{DEPLOYMENT} is available"


def _is_missing(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.status == 404
