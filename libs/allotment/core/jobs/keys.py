"""Names on the wire of Jobs, PodGroups and Queues, as Volcano and its users' manifests spell them.

Source: the API groups batch.volcano.sh/v1alpha1, scheduling.volcano.sh/v1beta1 and
bus.volcano.sh/v1alpha1.
"""

BATCH = "batch.volcano.sh/v1alpha1"
SCHEDULING = "scheduling.volcano.sh/v1beta1"
BUS = "bus.volcano.sh/v1alpha1"

GROUP_NAME = "scheduling.k8s.io/group-name"
"""On a pod: its PodGroup."""
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
"""On the owner of pods: how many of them must run together."""
MADE_GROUP = "podgroup-"
"""The prefix of the names of PodGroups that are created for pods; the uid of the owner, or of the
pod, follows.
"""
POD_QUEUE = "scheduling.volcano.sh/queue-name"
"""On a pod that has no Job, or on its owner: its queue. On a namespace: the queue of all objects in
it that name none, or `default`.
"""

TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
PARTITION_ID = "volcano.sh/partition-id"
"""On a pod of a task with partitions, as a label: the number of its partition."""
JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
QUEUE_NAME = "volcano.sh/queue-name"
"""On a pod of a Job: its queue. On other objects it is read like `POD_QUEUE`, which comes first."""
TEMPLATE_UID = "volcano.sh/template-uid"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""On a pod that we delete ourselves: no policy reacts to its end."""
PREEMPTABLE = "volcano.sh/preemptable"
_COOLDOWN_TIME = "volcano.sh/cooldown-time"
_REVOCABLE_ZONE = "volcano.sh/revocable-zone"
_JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
_JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
INHERITED = (
    PREEMPTABLE,
    _COOLDOWN_TIME,
    _REVOCABLE_ZONE,
    _JDB_MIN_AVAILABLE,
    _JDB_MAX_UNAVAILABLE,
)
"""Keys that a Job passes on to its pods, and a pod to the PodGroup created for it."""
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
VOLCANO_PREFIX = "volcano.sh/"

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

DEFAULT_QUEUE = "default"
"""The queue of pods without a group, and of groups that name none."""
ROOT_QUEUE = "root"
