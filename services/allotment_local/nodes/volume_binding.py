"""The cluster's volume controller, as far as pods wait for it: a volume that names a claim and the
claim become bound to each other. Source: Kubernetes `pkg/controller/volume/persistentvolume`.
"""

from typing import Any

from allotment_local.apiserver.resources import VOLUME_CLAIMS, VOLUMES
from allotment_local.apiserver.store import Store
from allotment_local.nodes.timers import Timers

JsonObject = dict[str, Any]
BOUND = {"status": {"phase": "Bound"}}
_COMPLETED = {
    "pv.kubernetes.io/bind-completed": "yes",
    "pv.kubernetes.io/bound-by-controller": "yes",
}


class VolumeBinding:
    """Binds claims to the volumes that name them, once it is started."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def start(self) -> None:
        self._store.subscribe(VOLUMES, self._volume_changed)

    def _volume_changed(self, change: str, volume: JsonObject) -> None:
        if change != "DELETED" and (volume.get("spec") or {}).get("claimRef"):
            name = volume["metadata"]["name"]
            self._timers.after(0, lambda: self._bind(name))

    def _bind(self, name: str) -> None:
        volume = self._store.find(VOLUMES, "", name)
        reference = None if volume is None else (volume.get("spec") or {}).get("claimRef")
        if not reference:
            return
        namespace, claim_name = reference.get("namespace", ""), reference.get("name", "")
        claim = self._store.find(VOLUME_CLAIMS, namespace, claim_name)
        if claim is None or claim["metadata"]["uid"] != reference.get("uid"):
            return
        if (claim.get("spec") or {}).get("volumeName"):
            return
        spec = {"metadata": {"annotations": _COMPLETED}, "spec": {"volumeName": name}}
        self._store.merge_patch(VOLUME_CLAIMS, namespace, claim_name, {**spec, **BOUND})
        self._store.merge_patch(VOLUMES, "", name, BOUND)
