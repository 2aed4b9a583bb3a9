"""Device plugins: the lock of a node, whose turn it is, and what containers are told."""

from tests.unit.compat_cases.case import Case

PLUGIN: dict[str, Case] = {
    "lock_node": ({"existing_lock_age_minutes": 4}, {"error": "held"}),
    "select_pending_pod": (
        {
            "node": "n",
            "gpu_amount": 1,
            "pods": [
                {
                    "name": name,
                    "vgpu-node": "n",
                    "vgpu-time": "5",
                    "devices-to-allocate": "GPU-a,NVIDIA,1,0:",
                }
                for name in ("z", "a")
            ],
        },
        {"pod": "a"},
    ),
    "erase_next_device_request": (
        {"text": ";GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,1,0:"},
        {"text": ";;GPU-b,NVIDIA,1,0:"},
    ),
    "mark_success": (
        {},
        {
            "annotations": {"volcano.sh/bind-phase": "success"},
            "node_annotation_removed": "hamivgpu",
        },
    ),
    "mark_failed": (
        {},
        {
            "annotations": {"volcano.sh/bind-phase": "failed"},
            "node_annotation_removed": "hamivgpu",
        },
    ),
    "allocation_complete": ({"devices-to-allocate": ""}, {"complete": True}),
    "cdi_annotations": (
        {"device_ids": ["a"], "extra": ["x=all"], "strategy": ["cdi-cri"], "response_id": "r"},
        {"annotations": None},
    ),
    "visible_devices_env": (
        {"device_ids": ["a", "b", "a"], "device_list_strategy": "envvar"},
        {"NVIDIA_VISIBLE_DEVICES": "a,b"},
    ),
    "container_env": (
        {"mode": "mig", "devices": [{"uuid": "MIG-1", "mem": 1, "core": 1}]},
        {"NVIDIA_VISIBLE_DEVICES": "MIG-1"},
    ),
    "memory_entry_limit": ({"entries": 60_001, "factor": 1}, {"error_contains": "at least 2"}),
}
