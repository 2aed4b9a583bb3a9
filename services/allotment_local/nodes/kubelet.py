"""What a kubelet checks when a pod is bound to its node: sysctls, then devices, then the rest.

A pod that is refused for its sysctls, for too few free devices or because a device plugin is away
never comes to the plugin; one that is refused afterwards has been served by it.

Source: Kubernetes `pkg/kubelet/sysctl`, `cm/devicemanager/manager.go` and `lifecycle/predicate.go`.
"""

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from allotment_local.apiserver.store import Store
from allotment_local.nodes.amounts import (
    Amounts,
    JsonObject,
    amounts,
    containers,
    ends_before_others,
    is_extended,
    limits,
    pod_amounts,
)
from allotment_local.nodes.annotations import ALLOCATE_FAILS, FAULT
from allotment_local.nodes.books import (
    MISDELIVERED,
    NOT_OFFERED,
    REFUSED,
    SWAPPED,
    Books,
    CardKey,
    Holder,
)
from allotment_local.nodes.inventory import Hardware
from allotment_local.nodes.pending import Pending
from allotment_local.nodes.plugins import Plugins
from allotment_local.nodes.serving import Record
from allotment_proto.device_config import DeviceConfig
from allotment_proto.volcano import device_config

UNEXPECTED = "UnexpectedAdmissionError"
SYSCTL_FORBIDDEN = "SysctlForbidden"
SYSCTLS_SAFE = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)


class Rejection(NamedTuple):
    """Why a pod is not admitted: `reason` and `message` of its status."""

    reason: str
    message: str


class Kubelet:
    """One node: what it has left, and its device plugins."""

    def __init__(
        self,
        node: str,
        host_ip: str,
        hardware: Hardware,
        store: Store,
        pending: Pending,
        books: Books,
        config: Callable[[], DeviceConfig] = device_config.default,
    ) -> None:
        self.node = node
        self.host_ip = host_ip
        self.hardware = hardware
        self.plugins = Plugins(node, hardware, store, pending, books, config)
        self.allocatable: Amounts = {}
        self.allocate_s = 0.0
        """How long its device plugins take for an Allocate that hands something out."""
        self.plugins_away = False
        self.exits: frozenset[str] = frozenset()
        """Cards on which containers end with an error at once."""
        self.is_deaf = False
        """It has lost its watch: it hears of no pod until it lists them all again."""
        self._config = config
        self._books = books
        self._envs: dict[str, dict[str, Mapping[str, str]]] = {}
        self._used: Amounts = {}
        self._charged: dict[str, Amounts] = {}

    def charge(self, pod: JsonObject) -> None:
        """Count a pod as being on the node; again is harmless."""
        self._charge(pod, pod_amounts(pod))

    def _charge(self, pod: JsonObject, taken: Amounts) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._charged:
            self._charged[uid] = taken
            for name, amount in taken.items():
                self._used[name] = self._used.get(name, 0) + amount

    def has(self, uid: str) -> bool:
        """Whether a pod was admitted and is still counted."""
        return uid in self._charged

    def env_of(self, uid: str) -> dict[str, Mapping[str, str]]:
        """What the device plugins put into the environment of an admitted pod's containers."""
        return self._envs.get(uid, {})

    def release(self, uid: str) -> None:
        """The pod has ended: what it was counted for is free again."""
        self._envs.pop(uid, None)
        for name, amount in self._charged.pop(uid, {}).items():
            self._used[name] -= amount

    def admission(self, pod: JsonObject) -> Generator[None, None, Rejection | None]:
        """Give the pod its devices and count it, or return why not; a rejected pod holds nothing.

        Stops before each Allocate that takes its time: resumed when the plugin answers.
        """
        taken = pod_amounts(pod)
        rejection = _forbidden_sysctl(pod) or self._devices_left(pod, taken)
        if rejection is None:
            rejection = (yield from self._allocate(pod)) or self._room_left(pod, taken)
        if rejection is None:
            self._charge(pod, taken)
        else:
            uid = pod["metadata"]["uid"]
            self._books.take_back(uid)
            self._envs.pop(uid, None)
        return rejection

    def _devices_left(self, pod: JsonObject, taken: Amounts) -> Rejection | None:
        for name, amount in sorted(taken.items()):
            if not is_extended(name) or not amount:
                continue
            if name not in self.allocatable:
                # A kubelet lets such pods run; they have no devices.
                if name not in self._unlisted():
                    self._incident(NOT_OFFERED, pod, f"{name} is not offered by this node")
                continue
            left = max(0, self.allocatable[name] - self._used.get(name, 0))
            if amount > left:
                why = (
                    f"requested number of devices unavailable for {name}. "
                    f"Requested: {amount}, Available: {left}"
                )
                self._incident(REFUSED, pod, why)
                return _unexpected(why)
            if self.plugins_away:
                return _unexpected(
                    f"no healthy devices present; cannot allocate unhealthy devices {name}"
                )
        return None

    def _unlisted(self) -> frozenset[str]:
        """Resources that pods name only to the scheduler: no plugin offers them."""
        config = self._config()
        names = [config.nvidia.memory_percentage_name]
        for chip in config.ascend:
            names += (chip.resource_memory_name, chip.resource_core_name)
        return frozenset(names)

    def _allocate(self, pod: JsonObject) -> Generator[None, None, Rejection | None]:
        metadata = pod["metadata"]
        uid, label = metadata["uid"], _label(pod)
        annotations = metadata.get("annotations") or {}
        fails = annotations.get(FAULT) == ALLOCATE_FAILS
        reusable: list[CardKey] = []
        """What init containers had that are over by then: it is handed on. Sidecars keep theirs."""
        for container in containers(pod):
            got: list[CardKey] = []
            for name, amount in sorted(amounts(limits(container)).items()):
                if name not in self.allocatable or not is_extended(name) or not amount:
                    continue
                if self.plugins.hands_out(name):
                    yield
                    if self.plugins_away:
                        return _unexpected(
                            "rpc error: code = Unavailable desc = error reading from server: EOF"
                        )
                served = self.plugins.allocate(name, amount, fails=fails, reusable=reusable)
                if isinstance(served, str):
                    return _unexpected(f"rpc error: code = Unknown desc = {served}")
                if served.record is not None:
                    self._check_record(pod, container["name"], served.record)
                for grant in served.grants:
                    if grant.card.family == name:  # the kubelet chose it, not the plugin
                        got.append(grant.card)
                    if grant.card in reusable:
                        reusable.remove(grant.card)
                        self._books.hand_on(uid, grant.card)
                    self._books.hand_out(Holder(uid, label, container["name"]), grant)
                if served.env:
                    self._envs.setdefault(uid, {})[container["name"]] = served.env
            if ends_before_others(pod, container):
                reusable += got
        return None

    def _check_record(self, pod: JsonObject, container: str, record: Record) -> None:
        """Another pod's record is harmless for the cards as long as it says the same, but the other
        pod can no longer be served with it.
        """
        own = (pod["metadata"].get("annotations") or {}).get(record.key)
        what = f"container {container} was served with the record of {record.pod}"
        if own == record.text:
            if record.pod != _label(pod):
                self._incident(SWAPPED, pod, f"{what}, which says the same")
        else:
            self._incident(
                MISDELIVERED, pod, f"{what}: {record.key} is {record.text!r}, not {own!r}"
            )

    def _room_left(self, pod: JsonObject, taken: Amounts) -> Rejection | None:
        for name, amount in sorted(taken.items()):
            if is_extended(name) or name not in self.allocatable:
                continue
            used, capacity = self._used.get(name, 0), self.allocatable[name]
            if amount and used + amount > capacity:
                why = f"requested: {amount}, used: {used}, capacity: {capacity}"
                self._incident(REFUSED, pod, f"{name}: {why}")
                shown = f"Node didn't have enough resource: {name}, {why}"
                return Rejection(f"OutOf{name}", f"Pod was rejected: {shown}")
        return None

    def _incident(self, code: str, pod: JsonObject, message: str) -> None:
        self._books.incident(code, self.node, "", _label(pod), message)


def _forbidden_sysctl(pod: JsonObject) -> Rejection | None:
    security = pod["spec"].get("securityContext") or {}
    for sysctl in security.get("sysctls") or ():
        name = sysctl.get("name", "")
        if name not in SYSCTLS_SAFE:
            return Rejection(
                SYSCTL_FORBIDDEN, f'Pod was rejected: forbidden sysctl: "{name}" not allowlisted'
            )
    return None


def _unexpected(why: str) -> Rejection:
    return Rejection(
        UNEXPECTED, f"Pod was rejected: Allocate failed due to {why}, which is unexpected"
    )


def _label(pod: JsonObject) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
