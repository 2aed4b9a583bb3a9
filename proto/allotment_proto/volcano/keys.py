"""Names on the wire, exactly as Volcano, its device plugins and existing manifests spell them."""

# vGPU (volcano-vgpu-device-plugin)
NODE_VGPU_REGISTER = "volcano.sh/node-vgpu-register"
"""Liveness of plugins up to v1.12; newer ones do without."""
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_MEMORY_PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"

VGPU_NODE = "volcano.sh/vgpu-node"
VGPU_TIME = "volcano.sh/vgpu-time"
VGPU_IDS = "volcano.sh/vgpu-ids-new"
DEVICES_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
BIND_PHASE = "volcano.sh/bind-phase"
BIND_TIME = "volcano.sh/bind-time"
PHASE_ALLOCATING = "allocating"
PHASE_SUCCESS = "success"
PHASE_FAILED = "failed"
SUCCESS_IS_EARLY = frozenset(("ascend",))
"""Families whose plugin takes a pod that it marked as served for one that waits until it starts."""
VGPU_TIME_DONE = "18446744073709551615"
"""What the plugin writes into `VGPU_TIME` when it has handled a pod."""

# GPU sharing and GPU number (volcano-sh/devices)
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
NVIDIA_COUNTED = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
"""With which NVIDIA's device plugin counts cards, whole and time-sliced."""
GPU_INDEX = "volcano.sh/gpu-index"
GPU_ASSIGNED = "volcano.sh/gpu-assigned"
PREDICATE_TIME = "volcano.sh/predicate-time"
GPU_UNHEALTHY_IDS = "volcano.sh/gpu-unhealthy-ids"

# How pods choose cards
USE_GPUTYPE = "nvidia.com/use-gputype"
NOUSE_GPUTYPE = "nvidia.com/nouse-gputype"
USE_GPUUUID = "volcano.sh/vgpu-use-gpuuuid"
NOUSE_GPUUUID = "volcano.sh/vgpu-nouse-gpuuuid"
VGPU_MODE = "volcano.sh/vgpu-mode"
GROUP_NAME = "scheduling.k8s.io/group-name"
GROUP_NAME_VOLCANO = "scheduling.volcano.sh/group-name"

PODGROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
PODGROUP_SPREAD = "spread"

MODE_HAMI_CORE = "hami-core"
MODE_MIG = "mig"
MODE_MPS = "mps"

# Scheduler configuration
SCHEDULER_CONFIG_KEY = "volcano-scheduler.conf"

# Device configuration
DEVICE_CONFIG_MAP = "volcano-vgpu-device-config"
DEVICE_CONFIG_KEY = "device-config.yaml"
NODE_CONFIG_MAP = "volcano-vgpu-node-config"
NODE_CONFIG_KEY = "config.json"
CONFIG_NAMESPACES = ("kube-system", "volcano-system")
"""Where the device plugin looks for them, the first in front."""

# Ascend through HAMi; a common word names a kind of chip, like Ascend310P
HAMI_SOFT_SLICING = "hami-vnpu-core"
"""On a node: whether its chips take soft slices, whatever the configuration says."""
VNPU_MODE = "huawei.com/vnpu-mode"
HAMI_NODE = "hami.io/vgpu-node"
HAMI_TIME = "hami.io/vgpu-time"
HAMI_BIND_TIME = "hami.io/bind-time"
HAMI_BIND_PHASE = "hami.io/bind-phase"
HAMI_PREDICATE_TIME = "predicate-time"

# Ascend 310P through MindCluster
NPU_CORE = "huawei.com/npu-core"
ASCEND_REAL = "huawei.com/AscendReal"
NPU_PREDICATE_TIME = "predicate-time"
NPU_BASE_DEVICES = "baseDeviceInfos"
NPU_NODE_HEALTH = "nodedNodeHealtyStatus"
NPU_NODE_SEPARATED = "PreSeparate"
LABEL_SERVER_TYPE = "servertype"
LABEL_ACCELERATOR = "accelerator"
LABEL_CHIP_NAME = "node.kubernetes.io/npu.chip.name"
LABEL_RING = "ring-controller.atlas"
RING_310P = "ascend-310P"
LABEL_VNPU_LEVEL = "vnpu-level"
LABEL_VNPU_DVPP = "vnpu-dvpp"
MINDX_NAMESPACE = "mindx-dl"
MINDX_NODE_NAMESPACE = "kube-system"
LABEL_CLUSTER_INFO = ("mx-consumer-volcano", "true")
LABEL_NODE_INFO = ("mx-consumer-cim", "true")
CLUSTER_INFO_DEVICE_PREFIX = "cluster-info-device-"
CLUSTER_INFO_NODE = "cluster-info-node-cm"
DEVICE_INFO_PREFIX = "mindx-dl-deviceinfo-"
DEVICE_INFO_KEY = "DeviceInfoCfg"
NODE_INFO_PREFIX = "mindx-dl-nodeinfo-"

# Node locks: an annotation on the node for each kind of device
LOCK_VGPU = "hamivgpu"
LOCK_GPUSHARE = "gpu"
LOCK_ASCEND = "hami.io/mutex.lock"


def hami_register(common_word: str) -> str:
    """On a node: its Ascend chips of this kind, as JSON."""
    return f"hami.io/node-register-{common_word}"


def hami_to_allocate(common_word: str) -> str:
    """On a pod: the work list of the plugin."""
    return f"hami.io/{common_word}-devices-to-allocate"


def hami_allocated(common_word: str) -> str:
    """On a pod: what it holds, for good."""
    return f"hami.io/{common_word}-devices-allocated"


def ascend_detail(common_word: str) -> str:
    """On a pod: the same with templates or amounts, as JSON."""
    return f"huawei.com/{common_word}"


def npu_healthy(kind: str) -> str:
    """In device information: names of the chips that are free and well."""
    return f"huawei.com/{kind}"


def npu_unhealthy(kind: str) -> str:
    return f"huawei.com/{kind}-Unhealthy"


def npu_recovering(kind: str) -> str:
    return f"huawei.com/{kind}-Recovering"


# Ours
LOG_SEQ = "allotment.dev/log-seq"
"""On a bound pod: the sequence of the decision that placed it."""
TRACEPARENT = "allotment.dev/traceparent"
"""On a bound pod: the W3C trace context with which its application continues the pod's trace."""
