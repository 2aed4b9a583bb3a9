"""The annotations that say which devices a pod holds. Device plugins go by them, so a
client that may write them can take devices it was never given, or give its own to other pods.

`deploy/base/annotation-policy.yaml` lets the API server refuse them to all but schedulers and
device plugins, with this very list; local mode's API server refuses them by `is_reserved`. The
policy also refuses new pods that ask for shares and pass the schedulers (`SCHEDULERS`).
"""

import re

from allotment_proto.volcano import keys

POLICY = "allotment-assignments"
"""The name of the ValidatingAdmissionPolicy and of its binding."""
LISTED = (
    keys.VGPU_IDS,
    keys.DEVICES_TO_ALLOCATE,
    keys.VGPU_NODE,
    keys.VGPU_TIME,
    keys.BIND_PHASE,
    keys.BIND_TIME,
    keys.GPU_ASSIGNED,
    keys.PREDICATE_TIME,
    keys.HAMI_NODE,
    keys.HAMI_TIME,
    keys.HAMI_BIND_PHASE,
    keys.HAMI_BIND_TIME,
    keys.NPU_CORE,
    keys.NPU_PREDICATE_TIME,
    keys.LOG_SEQ,
    keys.TRACEPARENT,
)
PATTERNS = (r"^hami\.io/.+-devices-(to-allocate|allocated)$", r"^huawei\.com/Ascend")
"""Of the chips that there are each has its own."""
ONCE_BOUND = (keys.GPU_INDEX,)
"""Before that they are what a pod asks for."""
SHARES = ("volcano.sh/", "huawei.com/Ascend", "huawei.com/npu-core")
"""How the names of resources begin that a device plugin hands out by a pod's record, unless a
device configuration renames them: then the policy's variable `shares` has to name those, too."""
SCHEDULERS = ("allotment", "volcano", "hami-scheduler")
"""The schedulers that write records. A pod that passes them is served with another pod's."""
_PATTERN = re.compile("|".join(PATTERNS))


def is_reserved(key: str, *, is_bound: bool) -> bool:
    """Whether only schedulers and device plugins may write an annotation. `is_bound`: on a pod that
    has a node, or in the Binding that gives it one."""
    return key in LISTED or (is_bound and key in ONCE_BOUND) or _PATTERN.search(key) is not None
