"""Containers with devices that fail as they start, as kubelet tells it.

Most containers that fail do so for reasons of their own. Left out is what certainly says nothing
of a node: commands that there are not (`_OWN_CODES`), a container that was stopped or took too much
memory, and what a runtime says without a word of devices.
"""

from collections.abc import Iterator

from allotment.core.units import cut
from allotment_proto.observed import Death
from allotment_watcher import objects
from allotment_watcher.normalise.times import time_ms

SECONDS_MAX = 10
"""A container that ran for longer has started."""
IMAGE_CHARS_MAX = 256
_MESSAGE_CHARS_MAX = 200
_NOT_CREATED = frozenset(("CreateContainerError", "RunContainerError"))
_NOT_STARTED = frozenset(("StartError", "ContainerCannotRun"))
_OWN_CODES = frozenset((0, 126, 127, 137, 143))
"""Ended well, not executable, not found, killed, stopped."""
_DEVICE_WORDS = ("hook", "cdi device", "/dev/", "nvidia")
_OWN_COMMAND = 'exec: "'
"""Before the command that a container names, in a runtime's words."""


def image_of(spec: objects.PodSpec) -> str:
    """The image of the first container that asks for devices, cut; empty if none does."""
    image = next((container.image for container in _with_devices(spec)), None)
    return (image or "")[:IMAGE_CHARS_MAX]


def death_of(pod: objects.PodObject) -> Death | None:
    """How a container with devices failed as it started, now or before it was started again; None
    if none did.
    """
    status = pod.status
    if status is None or status.reason:  # kubelet ended the pod itself
        return None
    names = {container.name for container in _with_devices(pod.spec)}
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if container.name in names:
            for state in (container.state, container.last_state):
                died = None if state is None else _death(container.name, state)
                if died is not None:
                    return died
    return None


def _with_devices(spec: objects.PodSpec) -> Iterator[objects.Container]:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        limits = (container.resources or objects.Resources()).limits or {}
        if any("/" in name for name in limits):
            yield container


def _death(container: str, state: objects.ContainerState) -> Death | None:
    waiting, ended = state.waiting, state.terminated
    if waiting is not None and waiting.reason in _NOT_CREATED:
        return _of_runtime(Death(container, waiting.reason, 0, waiting.message or ""))
    if ended is None or ended.exit_code in _OWN_CODES or ended.reason == "OOMKilled":
        return None
    if ended.reason in _NOT_STARTED:
        return _of_runtime(Death(container, ended.reason, ended.exit_code, ended.message or ""))
    started_ms, ended_ms = time_ms(ended.started_at), time_ms(ended.finished_at)
    if not started_ms or ended_ms - started_ms > SECONDS_MAX * 1000:
        return None
    return _cut(Death(container, ended.reason or "Error", ended.exit_code))  # its words are its own


def _of_runtime(death: Death) -> Death | None:
    """What a runtime could not start because of devices."""
    said = death.message.lower()
    is_of_devices = any(word in said for word in _DEVICE_WORDS)
    return _cut(death) if is_of_devices and _OWN_COMMAND not in said else None


def _cut(death: Death) -> Death:
    return Death(
        death.container,
        cut(death.reason, _MESSAGE_CHARS_MAX),
        death.exit_code,
        cut(death.message, _MESSAGE_CHARS_MAX),
    )
