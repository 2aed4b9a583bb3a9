"""What the device plugin tells a container and a container runtime, as pure functions."""

import pytest

from allotment_local.nodes import plugin_env
from allotment_local.nodes.plugin_env import EntriesError, Share

SHARES = [Share("GPU-a", 3000, 30), Share("GPU-b", 1500, 10)]


def test_hami_core_limits_memory_per_device_and_cores_as_the_first_device_has_them() -> None:
    env = plugin_env.container_env("hami-core", SHARES, "7f", memory_factor=2)
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "6000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpu/7f.cache",
    }


@pytest.mark.parametrize("mode", ["mig", "mps"])
def test_other_modes_show_devices_and_limit_nothing(mode: str) -> None:
    env = plugin_env.container_env(mode, [Share("MIG-1", 1, 0)], "7f")
    assert env == {"NVIDIA_VISIBLE_DEVICES": "MIG-1"}


def test_scaled_cores_allow_more_memory_than_there_is() -> None:
    env = plugin_env.hami_core_env(SHARES, "7f", cores_scaling_milli=1500, cores_unlimited=True)
    assert env["CUDA_OVERSUBSCRIBE"] == "true"
    assert env["GPU_CORE_UTILIZATION_POLICY"] == "disable"
    assert "CUDA_OVERSUBSCRIBE" not in plugin_env.hami_core_env(SHARES, "7f")


def test_a_device_is_listed_once_whichever_way_it_is_listed() -> None:
    ids = ["b", "a", "b"]
    assert plugin_env.visible_devices_env(ids, ["envvar"]) == {"NVIDIA_VISIBLE_DEVICES": "b,a"}
    assert plugin_env.visible_devices_env(ids, ["volume-mounts"]) == {
        "NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"
    }
    assert plugin_env.visible_devices_env(ids, ["cdi-cri"]) == {}


def test_cdi_names_devices_in_one_annotation_and_none_for_no_devices() -> None:
    names = plugin_env.cdi_devices(["GPU-a", "GPU-b"])
    assert names == [
        "k8s.device-plugin.nvidia.com/gpu=GPU-a",
        "k8s.device-plugin.nvidia.com/gpu=GPU-b",
    ]
    assert plugin_env.cdi_annotations(names, "7f") == {
        "cdi.k8s.io/nvidia-device-plugin_7f": ",".join(names)
    }
    assert plugin_env.cdi_annotations([], "7f") == {}


@pytest.mark.parametrize(
    ("entries", "factor", "wanted"), [(60_001, 1, 2), (163_840, 1, 3), (81_920, 2, 3)]
)
def test_too_many_entries_name_a_factor_that_would_do(
    entries: int, factor: int, wanted: int
) -> None:
    with pytest.raises(EntriesError, match=f"at least {wanted}$"):
        plugin_env.check_entries(entries, factor)
    plugin_env.check_entries(entries * factor // wanted, wanted)


def test_as_many_entries_as_kubelet_can_be_told_of_are_fine() -> None:
    plugin_env.check_entries(plugin_env.ENTRIES_MAX, 1)
