"""The watcher's settings."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from allotment.adapters.service.settings import NAME, KubeSettings


class WatcherSettings(KubeSettings, frozen=True, kw_only=True):
    """What the watcher needs besides what every service does."""

    log_mib_max: Annotated[
        int,
        Meta(
            description="the most that the log may take on a server's disk, in MiB, when it is"
            " made; leave room on the volume; 0: no limit but the disk. To change it later: allot"
            " log limit",
            ge=0,
        ),
    ] = 0
    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="names in spec.schedulerName that Allotment answers to; empty: none, it"
            " only records what other schedulers do",
            examples=["allotment", "allotment,volcano"],
        ),
    ] = ("allotment",)
    group_pods: Annotated[
        bool,
        Meta(
            description="the controller creates PodGroups for our pods that have none and no Job"
            " (its setting has the same name), and pods wait for theirs. False: such pods are"
            " placed one by one, by their own queue annotation"
        ),
    ] = True
    policy_file: Annotated[
        Path | None,
        Meta(
            description="scheduler configuration (volcano-scheduler.conf); changes are picked up",
            extra={"readable_file": True},
        ),
    ] = None
    policy_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap (namespace/name, key volcano-scheduler.conf) that "
            "replaces the policy file while it exists; none: no ConfigMap is used",
            pattern=rf"^(none|{NAME}/{NAME})$",
            examples=["volcano-system/volcano-scheduler-configmap", "none"],
        ),
    ] = "volcano-system/volcano-scheduler-configmap"
    policy_file_first: Annotated[
        bool,
        Meta(description="the policy file is used even while that ConfigMap exists"),
    ] = False
    device_config_file: Annotated[
        Path | None,
        Meta(
            description="device configuration (device-config.yaml), in place of the ConfigMaps; "
            "changes are picked up",
            extra={"readable_file": True},
        ),
    ] = None
    node_config_file: Annotated[
        Path | None,
        Meta(
            description="what differs on single nodes (config.json), in place of the ConfigMaps; "
            "changes are picked up",
            extra={"readable_file": True},
        ),
    ] = None
