"""Names on the wire, exactly as Volcano, its device plugins and existing manifests spell them."""

# vGPU (volcano-vgpu-device-plugin)
NODE_VGPU_REGISTER = "volcano.sh/node-vgpu-register"
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
VGPU_TIME_DONE = "18446744073709551615"
"""What the plugin writes into `VGPU_TIME` when it is through with a pod."""

# GPU sharing and GPU number (volcano-sh/devices)
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
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

MODE_HAMI_CORE = "hami-core"
MODE_MIG = "mig"

# Ours
LOG_SEQ = "allotment.dev/log-seq"
"""On a bound pod: the sequence of the decision that placed it."""
