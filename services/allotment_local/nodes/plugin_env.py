"""What device plugins answer a container with: its environment, and its CDI devices.

Pure functions of what was handed out. Source: `volcano-vgpu-device-plugin` `plugin/vgpu/plugin.go`,
`server.go`, `cache.go` (deviceshare 6.5); for others see the functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT_"
SM_LIMIT = "CUDA_DEVICE_SM_LIMIT"
SHARED_CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
OVERSUBSCRIBE = "CUDA_OVERSUBSCRIBE"
CORES_POLICY = "GPU_CORE_UTILIZATION_POLICY"
VOLUME_MOUNTS_ROOT = "/var/run/nvidia-container-devices"

MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
MPS_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SHARE_ALLOCATED = "VOLCANO_GPU_ALLOCATED"
SHARE_TOTAL = "VOLCANO_GPU_MEMORY_TOTAL"
ASCEND_VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
ASCEND_VNPU_SPECS = "ASCEND_VNPU_SPECS"
NPU_MEMORY = "NPU_MEM_QUOTA"
NPU_PRIORITY = "NPU_PRIORITY"
NPU_GLOBAL_SHM = "NPU_GLOBAL_SHM_PATH"
NPU_LOCAL_SHM = "NPU_LOCAL_SHM_PATH"

ENVVAR = "envvar"
VOLUME_MOUNTS = "volume-mounts"
CDI_ANNOTATIONS = "cdi-annotations"

CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
"""The kind of the CDI specification that the plugin itself writes."""
CDI_PREFIX = "cdi.k8s.io/"
CDI_PLUGIN = "nvidia-device-plugin"

ENTRIES_MAX = 60_000
"""More pseudo-devices of one resource do not fit into kubelet's message of 4 MB."""


class Share(NamedTuple):
    """One device of a container: its id, its memory in units of the factor, its cores in %."""

    id: str
    memory: int
    cores_pct: int


class EntriesError(ValueError):
    """Raised for more pseudo-devices than kubelet accepts; names a factor that would do."""


def visible_devices(ids: Iterable[str]) -> str:
    """The list of devices that a container sees, each once, in the order of the request."""
    return ",".join(dict.fromkeys(ids))


def visible_devices_env(ids: Iterable[str], strategies: Iterable[str]) -> dict[str, str]:
    """How a container gets to know its devices, by the configured ways of listing them."""
    chosen = set(strategies)
    if ENVVAR in chosen:
        return {VISIBLE_DEVICES: visible_devices(ids)}
    return {VISIBLE_DEVICES: VOLUME_MOUNTS_ROOT} if VOLUME_MOUNTS in chosen else {}


def hami_core_env(
    shares: Sequence[Share],
    cache_id: str,
    *,
    memory_factor: int = 1,
    cores_scaling_milli: int = 1000,
    cores_unlimited: bool = False,
) -> dict[str, str]:
    """The limits that HAMi-core keeps a container to. `cache_id` names its shared memory file.

    All devices of a container have the cores of the first. The switch that lets a container use
    more memory than there is hangs on the scaling of cores, as in the plugin.
    """
    env = {
        f"{MEMORY_LIMIT}{number}": f"{share.memory * memory_factor}m"
        for number, share in enumerate(shares)
    }
    if shares:
        env[SM_LIMIT] = str(shares[0].cores_pct)
    env[SHARED_CACHE] = f"/tmp/vgpu/{cache_id}.cache"
    if cores_scaling_milli > 1000:
        env[OVERSUBSCRIBE] = "true"
    if cores_unlimited:
        env[CORES_POLICY] = "disable"
    return env


def container_env(
    mode: str,
    shares: Sequence[Share],
    cache_id: str,
    *,
    strategies: Iterable[str] = (ENVVAR,),
    memory_factor: int = 1,
    cores_scaling_milli: int = 1000,
    cores_unlimited: bool = False,
) -> dict[str, str]:
    """A container's whole environment. Instances and shared processes have no limits of HAMi's."""
    env = visible_devices_env((share.id for share in shares), strategies)
    if mode != "hami-core":
        return env
    limits = hami_core_env(
        shares,
        cache_id,
        memory_factor=memory_factor,
        cores_scaling_milli=cores_scaling_milli,
        cores_unlimited=cores_unlimited,
    )
    return {**env, **limits}


def cdi_devices(ids: Iterable[str], kind: str = CDI_KIND) -> list[str]:
    """Devices by their fully qualified CDI names."""
    return [f"{kind}={device}" for device in ids]


def cdi_annotations(
    devices: Sequence[str], response_id: str, prefix: str = CDI_PREFIX
) -> Mapping[str, str]:
    """The annotation that names CDI devices to the container runtime; none for no devices."""
    if not devices:
        return {}
    return {f"{prefix}{CDI_PLUGIN}_{response_id}": ",".join(devices)}


def check_entries(entries: int, factor: int) -> None:
    """Raise `EntriesError` if kubelet cannot accept so many pseudo-devices of one resource.

    `entries` is how many there are with the present factor.
    """
    if entries > ENTRIES_MAX:
        wanted = -(-factor * entries // ENTRIES_MAX)
        raise EntriesError(
            f"{entries} entries of memory are more than the {ENTRIES_MAX} that kubelet accepts; "
            f"set gpuMemoryFactor to at least {wanted}"
        )


def mps_env(shares: Sequence[Share], resource: str) -> dict[str, str]:
    """What NVIDIA's plugin tells a client of its MPS daemon. Cores of 0 leave all threads."""
    env = visible_devices_env((share.id for share in shares), (ENVVAR,))
    env[MPS_PIPES] = f"/mps/{resource}/pipe"
    if shares and shares[0].cores_pct:
        env[MPS_THREADS] = str(shares[0].cores_pct)
    return env


def gpushare_env(indexes: Sequence[int], allocated: int, card_memory_mib: int) -> dict[str, str]:
    """What the older plugin tells a container (`volcano-sh/devices`, deviceshare 6.7)."""
    return {
        VISIBLE_DEVICES: ",".join(str(index) for index in indexes),
        SHARE_ALLOCATED: str(allocated),
        SHARE_TOTAL: str(card_memory_mib),
    }


def ascend_env(chips: Sequence[int], template: str = "") -> dict[str, str]:
    """Whole Ascend chips, or the piece of one that a template cuts."""
    env = {ASCEND_VISIBLE_DEVICES: ",".join(str(chip) for chip in chips)}
    if template:
        env[ASCEND_VNPU_SPECS] = template
    return env


def ascend_soft_env(chips: Sequence[int], memory_mib: int, cores_pct: int) -> dict[str, str]:
    """A soft slice: memory and compute of the first chip, and where slices meet (deviceshare 6.8,
    HAMi `ascend-device-plugin`)."""
    env = ascend_env(chips)
    if memory_mib:
        env[NPU_MEMORY] = str(memory_mib)
    if cores_pct:
        env[NPU_PRIORITY] = str(cores_pct)
    env[NPU_GLOBAL_SHM] = f"/hami-shared-region/{chips[0]}_global_registry"
    env[NPU_LOCAL_SHM] = "/hami-vnpu-shmem/vnpu_local_shmem"
    return env
