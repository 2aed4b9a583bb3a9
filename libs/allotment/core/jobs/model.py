"""Jobs, their pods and PodGroups, as far as decisions need them.

Structs of the first half are read from Kubernetes objects: unknown fields are skipped, lists may be
null. Pod templates stay plain objects, because they are passed on without being interpreted.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

JsonObject = dict[str, Any]
Labels = dict[str, str] | None

# Phases of a Job.
PENDING = "Pending"
RUNNING = "Running"
RESTARTING = "Restarting"
ABORTING = "Aborting"
ABORTED = "Aborted"
COMPLETING = "Completing"
COMPLETED = "Completed"
TERMINATING = "Terminating"
TERMINATED = "Terminated"
FAILED = "Failed"
FINAL = (COMPLETED, TERMINATED, FAILED)
WORKING = (PENDING, RUNNING)
"""The phases in which a Job wants its pods."""

# Phases of a PodGroup.
GROUP_PENDING = "Pending"
GROUP_INQUEUE = "Inqueue"
GROUP_RUNNING = "Running"
GROUP_UNKNOWN = "Unknown"
GROUP_COMPLETED = "Completed"


class Owner(msgspec.Struct, rename="camel", frozen=True):
    """An entry of metadata.ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct, rename="camel"):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels = None
    annotations: Labels = None
    owner_references: list[Owner] | None = None

    def annotation(self, key: str) -> str:
        return (self.annotations or {}).get(key, "")

    def controller(self) -> Owner | None:
        """The owner that made this object, if any."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Policy(msgspec.Struct, rename="camel"):
    """What to do when something happens to a pod or a role."""

    action: str = ""
    event: str = ""
    events: list[str] | None = None
    exit_code: int | None = None
    timeout: str | None = None


class DependsOn(msgspec.Struct):
    """Which roles must run before a role starts."""

    name: list[str] | None = None
    iteration: str = "all"


class PartitionPolicy(msgspec.Struct, rename="camel"):
    """A role's pods in groups of one size, by their index."""

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: JsonObject | None = None


class Task(msgspec.Struct, rename="camel"):
    """One role of a Job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: JsonObject = {}
    policies: list[Policy] | None = None
    max_retry: int | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None

    @property
    def minimum(self) -> int:
        """How many of its pods the role needs."""
        if self.min_available is not None:
            return self.min_available
        policy = self.partition_policy or PartitionPolicy()
        return max(policy.min_partitions, 0) * max(policy.partition_size, 0) or self.replicas

    def partition(self, index: int) -> int | None:
        """The number of the partition that the pod at `index` is in; None without partitions."""
        if self.partition_policy is None:
            return None
        return index // max(self.partition_policy.partition_size, 1)


class Volume(msgspec.Struct, rename="camel"):
    """A claim that is mounted into every pod."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: JsonObject | None = None


class JobSpec(msgspec.Struct, rename="camel"):
    """What the user wants. `admission.defaulted` fills in what was left out."""

    scheduler_name: str = ""
    min_available: int | None = None
    tasks: list[Task] | None = None
    queue: str = ""
    priority_class_name: str = ""
    policies: list[Policy] | None = None
    plugins: dict[str, list[str] | None] | None = None
    max_retry: int | None = None
    ttl_seconds_after_finished: int | None = None
    min_success: int | None = None
    volumes: list[Volume] | None = None
    network_topology: JsonObject | None = None

    @property
    def roles(self) -> list[Task]:
        return self.tasks or []

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.roles)

    @property
    def minimum(self) -> int:
        """The gang's minimum."""
        if self.min_available is None:
            return sum(task.minimum for task in self.roles)
        return self.min_available

    def role(self, name: str) -> Task | None:
        return next((task for task in self.roles if task.name == name), None)


class JobState(msgspec.Struct, rename="camel", omit_defaults=True):
    """Where a Job stands."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class JobStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """What the controller writes about a Job; it leaves fields of other writers alone."""

    state: JobState = msgspec.field(default_factory=JobState)
    min_available: int | None = None
    version: int | None = None
    retry_count: int | None = None
    pending: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    unknown: int | None = None
    task_status_count: dict[str, JsonObject] | None = None
    running_duration: str | None = None
    controlled_resources: dict[str, str] | None = None
    conditions: list[JsonObject] | None = None


class Job(msgspec.Struct):
    """A Job as the server has it."""

    metadata: Meta
    spec: JobSpec
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    @property
    def phase(self) -> str:
        return self.status.state.phase

    @property
    def version(self) -> int:
        """Grows with every life: the controller ignores pods of an older one."""
        return self.status.version or 0

    @property
    def retry_count(self) -> int:
        return self.status.retry_count or 0


class GroupSpec(msgspec.Struct, rename="camel"):
    """What a PodGroup asks for."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, str | int | float] | None = None
    network_topology: JsonObject | None = None
    sub_group_policy: list[JsonObject] | None = None


class GroupCondition(msgspec.Struct):
    """What a scheduler wrote about a PodGroup."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class GroupStatus(msgspec.Struct):
    """Where a PodGroup stands."""

    phase: str = ""
    conditions: list[GroupCondition] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(msgspec.Struct):
    """A gang."""

    metadata: Meta
    spec: GroupSpec = msgspec.field(default_factory=GroupSpec)
    status: GroupStatus = msgspec.field(default_factory=GroupStatus)


class QueueSpec(msgspec.Struct):
    """The part of a Queue that its own states are made from."""

    parent: str = ""


class QueueStatus(msgspec.Struct):
    """Whether a Queue takes new gangs."""

    state: str = ""


class Queue(msgspec.Struct):
    """A tenant."""

    metadata: Meta
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class Target(msgspec.Struct):
    """The object that a Command is for."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Command(msgspec.Struct):
    """A request to the controllers: they carry it out once, then delete it."""

    metadata: Meta
    action: str = ""
    target: Target = msgspec.field(default_factory=Target)
    reason: str = ""
    message: str = ""


# Fields read from pods


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A pod of a Job. Times are seconds since 1970."""

    name: str
    uid: str
    role: str
    index: int
    version: int = 0
    phase: str = PENDING
    is_ready: bool = False
    is_deleting: bool = False
    is_marked: bool = False
    """Deleted by us: no policy reacts to its end."""
    is_placed: bool = False
    exit_code: int = 0
    restarts: int = 0
    created_s: int = 0
    changed_s: int = 0
    """When its phase was last seen to change."""

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_alive(self) -> bool:
        return not self.is_finished


class Notice(msgspec.Struct, frozen=True):
    """An Event to send: `kind` is Normal or Warning."""

    kind: str
    reason: str
    message: str


Priorities = Mapping[str, int]
"""Values of PriorityClasses by name."""
