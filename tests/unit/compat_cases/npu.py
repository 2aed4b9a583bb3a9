"""NPUs: Ascend devices and MindCluster's chips."""

from tests.unit.compat_cases.case import Case

CHIP = {
    "commonWord": "Ascend310P",
    "memoryAllocatable": 20_000,
    "memoryCapacity": 24_000,
    "templates": [{"name": "small", "memory": 3_000}, {"name": "large", "memory": 6_000}],
}
PER_CHIP = {"aicore": 8, "aicpu": 7, "free_dvpp": "yes"}
NPU: dict[str, Case] = {
    "ascend_trim_memory": ({"config": CHIP, "memory": 3_001}, {"memory": 6_000}),
    "ascend_verify_request": ({"config": CHIP, "nums": 2, "mem": 3_000}, {"ok": False}),
    "ascend_filter": (
        {
            "config": CHIP,
            "policy": "binpack",
            "devices": {"d": {"count": 2, "devcore": 8, "devmem": 20_000, "used": 2}},
            "limits": {"huawei.com/Ascend310P": "1"},
        },
        {"code": 2, "message": "none"},
    ),
    "ascend_device_fits": (
        {
            "type": "Ascend310P",
            "request": {"nums": 1, "mem": 900, "core": 0},
            "device": {"count": 7, "devcore": 8, "devmem": 1_000},
            "usage": {"used": 1, "mem": 100, "core": 0},
        },
        {"fits": True},
    ),
    "ascend_device_score": (
        {"policy": "binpack", "used": 1, "usedmem": 50, "devmem": 200},
        {"score": 25},
    ),
    "ascend_node_devices": (
        {
            "global_hamiVnpuCore": True,
            "register": '[{"id": "d", "count": 1, "devmem": 9, "devcore": 8}]',
            "annotation_hami-vnpu-core": "no",
        },
        {"devices": 1, "hami_core_supported": False},
    ),
    "ascend_add_pod_usage": (
        {
            "type": "Ascend9",
            "annotation_devices-allocated": "d,Ascend9,5,6:;",
            "devices": ["d"],
            "existing": {"d": {"used": 2, "mem": 1, "core": 1}},
        },
        {"usage": {"d": {"used": 3, "mem": 6, "core": 7}}},
    ),
    "ascend_release": (
        {
            "pod_annotations": {
                "hami.io/Ascend9-devices-allocated": "d,Ascend9,5,6:;",
                "hami.io/bind-phase": "success",
            }
        },
        {"keys_to_remove": None, "annotations_kept": True},
    ),
    "ascend_allocate": (
        {"node_lock_enabled": True, "node_annotations": {}},
        {"node_annotation_set": "hami.io/mutex.lock", "value_format": "RFC3339"},
    ),
    "mindcluster_scenario": (
        {
            "server_type": "Ascend310P-8",
            "chips": 1,
            "per_chip": PER_CHIP,
            "steps": [{"op": "allocate", "pod": "p", "cores": 4, "labels": {"vnpu-dvpp": "yes"}}],
        },
        {
            "steps": [
                {"op": "allocate", "npu-core": "0-vir04_4c_dvpp", "freeAfter": ["4/3/no"]},
            ]
        },
    ),
}
