"""Configuration: device tables, ignored resources, arguments, and cards for some pods alone."""

from tests.unit.compat_cases.case import Case
from tests.unit.compat_cases.npu import CHIP

RULES = [{"app": "a"}, {"app": "b", "team": "t"}]
CONFIG: dict[str, Case] = {
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
}
