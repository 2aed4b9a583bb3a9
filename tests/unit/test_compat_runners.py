"""Every function of which vectors tell is run: one small question each, and the right answer."""

from typing import Any

import pytest

from allotment_cli.compat.file import Vector
from allotment_cli.compat.runners import RUNNERS
from allotment_cli.compat.verdicts import MATCHED, MISMATCHED, judge

Case = tuple[dict[str, Any], dict[str, Any]]
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
CHIP = {
    "commonWord": "Ascend310P",
    "memoryAllocatable": 20_000,
    "memoryCapacity": 24_000,
    "templates": [{"name": "small", "memory": 3_000}, {"name": "large", "memory": 6_000}],
}
RULES = [{"app": "a"}, {"app": "b", "team": "t"}]
PER_CHIP = {"aicore": 8, "aicpu": 7, "free_dvpp": "yes"}


def asking(number: str = "1", memory: str = "1000", **annotations: str) -> dict[str, Any]:
    limits = {NUMBER: number, MEMORY: memory}
    return {"name": f"p{memory}", "annotations": annotations, "containers": [{"limits": limits}]}


def holding(text: str, **more: str) -> dict[str, str]:
    return {"volcano.sh/vgpu-ids-new": text, **more}


CASES: dict[str, Case] = {
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
    "parse_device_config": (
        {"nvidia": {"gpuMemoryFactor": 4}, "vnpus": [CHIP]},
        {"parsed_equal": True, "configs": 1, "templates": ["small", "large"]},
    ),
    "ignored_resources_set": (
        {"lists": [["a.b/x"], ["a.b/y", "a.b/x"]]},
        {"result": ["a.b/x", "a.b/y"]},
    ),
    "ignored_resources_append": (
        {"initial": ["a.b/x"], "append": ["", "a.b/y"]},
        {"result": ["a.b/x", "a.b/y"]},
    ),
    "plugin_arguments": (
        {"deviceshare.SchedulePolicy": "spread", "deviceshare.ScheduleWeight": 3},
        {"schedule_policy": "spread", "schedule_weight": 3},
    ),
    "exclusive_rules_from_arguments": (
        {"deviceshare.GPUExclusiveRules": RULES},
        {"rules": RULES},
    ),
    "parse_exclusive_rules": ({"raw": [{"app": 1, "team": "t"}, {}]}, {"rules": [{"team": "t"}]}),
    "exclusive_rule_matches": (
        {"rules": RULES, "rule_index": 1, "pod_labels": {"app": "b", "team": "t", "x": "y"}},
        {"matches": True},
    ),
    "exclusive_matching_rules": (
        {"rules": RULES, "pod_labels": {"app": "b"}},
        {"rule_indices": []},
    ),
    "exclusive_rebuild": (
        {
            "rules": RULES,
            "device_count": 3,
            "pods": [{"name": "n/p", "labels": {"app": "a"}, "devices": [0, 2]}],
        },
        {"rule_gpus": {"0": [0, 2]}},
    ),
    "exclusive_reserved_devices": (
        {
            "rules": RULES,
            "device_count": 3,
            "rule_gpus": {"0": [0], "1": [2]},
            "pod_labels": RULES[1],
        },
        {"reserved": [2]},
    ),
    "exclusive_available_devices": (
        {
            "rules": RULES,
            "devices": {"0": {"count": 2, "used_num": 2}, "1": {"count": 2}, "2": {"count": 2}},
            "rule_gpus": {"0": [1]},
            "pod_labels": {"app": "a"},
        },
        {"available_devices": 1},
    ),
    "exclusive_cap_devices": (
        {"devices": {"0": {"count": 5, "used_num": 2}, "1": {"count": 5}}, "cap": [0]},
        {
            "count_while_capped": {"0": 2, "1": 5},
            "count_after_restore": {"0": 5, "1": 5},
        },
    ),
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


def vector(function: str, given: dict[str, Any], expected: dict[str, Any]) -> Vector:
    return Vector(id=function, kind="k", function=function, input=given, expected=expected)


@pytest.mark.parametrize("function", sorted(CASES))
def test_the_right_answer_matches(function: str) -> None:
    verdict = judge(vector(function, *CASES[function]))
    assert verdict.outcome == MATCHED, verdict


@pytest.mark.parametrize("function", sorted(CASES))
def test_every_expected_field_is_compared(function: str) -> None:
    """With any one field of the answer altered, nothing matches any more."""
    given, expected = CASES[function]
    for field in expected:
        altered = {**expected, field: _other(expected[field])}
        assert judge(vector(function, given, altered)).outcome != MATCHED, field


def test_every_function_has_a_case() -> None:
    assert set(RUNNERS) == {*CASES, "scenario"}


def test_a_lock_that_is_held_is_a_mismatch_where_it_should_be_free() -> None:
    given = {"existing_lock_age_minutes": 4}
    assert judge(vector("lock_node", given, {"error": None})).outcome == MISMATCHED


def _other(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return None if value in ("held", "none") else f"not {value}"
        case list():
            return [*value, "more"]
        case dict():
            return {key: _other(item) for key, item in value.items()}
        case _:
            return ["something"]
