"""GPUs: requests, annotations, shares of cards, MIG instances and the older GPU sharing."""

from typing import Any

from tests.unit.compat_cases.case import Case

NUMBER, MEMORY, CORES = (f"volcano.sh/vgpu-{name}" for name in ("number", "memory", "cores"))
DEVICE = {"index": 0, "uuid": "GPU-a", "count": 4, "memory": 10_000, "type": "NVIDIA"}
TWO = [DEVICE, {**DEVICE, "index": 1, "uuid": "GPU-b"}]
TABLE = [
    {
        "group": "mixed",
        "instances": [
            {"name": "2g", "memory": 8_000, "count": 1},
            {"name": "1g", "memory": 4_000, "count": 2},
        ],
    }
]


def asking(number: str = "1", memory: str = "1000", **annotations: str) -> dict[str, Any]:
    limits = {NUMBER: number, MEMORY: memory}
    return {"name": f"p{memory}", "annotations": annotations, "containers": [{"limits": limits}]}


def holding(text: str, **more: str) -> dict[str, str]:
    return {"volcano.sh/vgpu-ids-new": text, **more}


GPU: dict[str, Case] = {
    "container_requests": (
        asking("2", "500"),
        {"requests": [{"nums": 2, "mem": 500, "memPercentage": 101, "core": 0}]},
    ),
    "decode_container_devices": (
        {"text": "GPU-a[mixed-1],NVIDIA,7,8:x:"},
        {"devices": [{"uuid": "GPU-a[mixed-1]", "type": "NVIDIA", "mem": 7, "core": 8}]},
    ),
    "encode_node_devices": (
        {
            "devices": [
                {
                    "id": "G",
                    "count": 1,
                    "devmem": 2,
                    "type": "T",
                    "health": False,
                    "mode": "mig",
                }
            ]
        },
        {"text": "G,1,2,T,false,mig:"},
    ),
    "pod_group_key": (
        {"pod": {"namespace": "n", "annotations": {"scheduling.k8s.io/group-name": "g"}}},
        {"key": "n/g"},
    ),
    "vgpu_release": (
        {"pod_annotations": holding("GPU-a,NVIDIA,1,0:", **{"volcano.sh/bind-phase": "success"})},
        {"keys_to_remove": None, "annotations_kept": True},
    ),
    "gpushare_release": (
        {"pod_annotations": {"volcano.sh/gpu-index": "0"}, "pod_on_device": 0},
        {
            "pod_on_device": None,
            "keys_to_remove": ["volcano.sh/gpu-index", "volcano.sh/predicate-time"],
        },
    ),
    "binding_object": ({"node": "n7"}, {"target": "n7"}),
    "task_annotations": ({"merge": []}, {"target": "node-1"}),
    "vgpu_filter": (
        {"policy": "binpack", "devices": [TWO[0], {**TWO[1], "used_num": 1, "used_mem": 4_000}]}
        | {"pod": asking()},
        {"fit": True, "code": 0, "uuid": "GPU-b", "device_index": 1, "score": 50},
    ),
    "vgpu_allocate_sequence": (
        {"policy": "spread", "devices": TWO, "pods": [asking(), asking(memory="2000")]},
        {"fits": [True, True], "same_device": False, "distinct_devices": 2},
    ),
    "vgpu_device_score": (
        {"policy": "binpack", "device": {"used_num": 1, "used_mem": 2_500, "memory": 10_000}},
        {"score": 25},
    ),
    "hamicore_add_pod": (
        {"device": DEVICE, "pod": "p", "mem": 5, "core": 6},
        {"used_num": 1, "used_mem": 5, "used_core": 6, "pod_present": True},
    ),
    "hamicore_add_pod_sequence": (
        {"device": DEVICE, "pods": ["p", "q", "p"], "mem": 5, "core": 6},
        {"used_num": 2, "used_mem": 10},
    ),
    "hamicore_add_sub_add": (
        {"device": DEVICE, "pod": "p", "mem": 5, "core": 6},
        {"after_sub": {"used_mem": 0}, "after_readd": {"used_mem": 5}},
    ),
    "add_pod_usage": (
        {"devices": TWO, "pod_annotations": holding("GPU-b,NVIDIA,9,0:")},
        {"pod_on_some_device": True, "devices": ["GPU-b"], "used_mem": 9, "group_key": ""},
    ),
    "gpu_type_allowed": (
        {"pod_annotations": {"nvidia.com/use-gputype": "a10,V100"}, "card_type": "NVIDIA-v100"},
        {"allowed": True},
    ),
    "gpu_uuid_allowed": (
        {"pod_annotations": {"volcano.sh/vgpu-nouse-gpuuuid": "x"}, "device_uuid": "x"},
        {"allowed": False},
    ),
    "device_has_same_group_pod": (
        {
            "pods_on_device": {"u": {"group": "n/g", "used_mem": 5, "used_core": 0}},
            "current_group": "n/g",
        },
        {"blocked": True},
    ),
    "parse_mig_id": ({"text": "GPU-a[g1-2]"}, {"group": "g1", "position": 2}),
    "mig_find_match": (
        {
            "uuid": "G",
            "request_mem": 3_000,
            "geometries": TABLE,
            "usage": {"index": 0, "list": [{"name": "1g", "used_index": [0]}]},
        },
        {"fit": True, "device_id": "G[mixed-2]", "instance_mem": 4_000},
    ),
    "mig_try_add": (
        {"uuid": "G", "request_mem": 3_000, "core": 9, "gpu_memory_factor": 2, "geometries": TABLE},
        {
            "fit": True,
            "group": "mixed",
            "instance_mem_raw": 8_000,
            "device_used": {"num": 1, "mem": 4_000, "core": 9},
        },
    ),
    "mig_add_pod": (
        {"device_id": "G[mixed-1]", "request_mem": 1, "core": 9, "geometries": TABLE},
        {
            "device_used": {"num": 1, "mem": 4_000, "core": 9},
            "pod_used": {"mem": 4_000, "core": 9},
        },
    ),
    "mig_add_then_sub_pod": (
        {"device_id": "G[mixed-1]", "request_mem": 1, "core": 9, "geometries": TABLE},
        {"device_used": {"num": 0, "mem": 0, "core": 0}, "pod_present": False},
    ),
    "mig_mark_then_unmark": (
        {"group": "mixed", "position": 2, "geometries": TABLE},
        {"add_returns_mem": 4_000, "used_position": 1, "usage_list_len_after_sub": 0},
    ),
    "gpushare_pod_memory": (
        {"containers": [{"limits": {"volcano.sh/gpu-memory": "3"}}]},
        {"value": 3},
    ),
    "gpushare_pod_number": (
        {"containers": [{"limits": {"volcano.sh/gpu-number": "3"}}]},
        {"value": 3},
    ),
    "gpushare_idle_memory": (
        {
            "devices": [{"id": 0, "memory": 10}],
            "pods": [{"uid": "p", "device": 0, "gpu_memory": 4}],
        },
        {"idle": {"0": 6}},
    ),
    "gpushare_candidates": (
        {"devices": [{"id": 0, "memory": 10}, {"id": 1, "memory": 20}], "request": 15},
        {"device_ids": [1]},
    ),
}
