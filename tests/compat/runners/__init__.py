"""Every function of which vectors tell, and what asks the product the same."""

from tests.compat.runners import (
    ascend_functions,
    cards,
    config,
    exclusive,
    gpushare,
    lock,
    mig,
    mindcluster,
    plugin,
    requests,
    scenario,
    vgpu,
)
from tests.compat.runners.base import Runner

RUNNERS: dict[str, Runner] = {
    "scenario": scenario.scenario,
    # requests and annotations
    "container_requests": requests.container_requests,
    "decode_container_devices": requests.decode_container_devices,
    "encode_node_devices": requests.encode_node_devices,
    "pod_group_key": requests.pod_group_key,
    "vgpu_release": requests.vgpu_release,
    "gpushare_release": requests.gpushare_release,
    "binding_object": requests.binding,
    "task_annotations": requests.binding,
    # vGPU cards
    "vgpu_filter": vgpu.vgpu_filter,
    "vgpu_allocate_sequence": vgpu.vgpu_allocate_sequence,
    "vgpu_device_score": vgpu.vgpu_device_score,
    "hamicore_add_pod": cards.hamicore,
    "hamicore_add_pod_sequence": cards.hamicore,
    "hamicore_add_sub_add": cards.hamicore,
    "add_pod_usage": cards.add_pod_usage,
    "gpu_type_allowed": cards.type_allowed,
    "gpu_uuid_allowed": cards.id_allowed,
    "device_has_same_group_pod": cards.same_group,
    # MIG
    "parse_mig_id": mig.parse_id,
    "mig_find_match": mig.find_match,
    "mig_try_add": mig.try_add,
    "mig_add_pod": mig.add_pod,
    "mig_add_then_sub_pod": mig.add_pod,
    "mig_mark_then_unmark": mig.mark_then_unmark,
    # GPU sharing
    "gpushare_pod_memory": gpushare.amount,
    "gpushare_pod_number": gpushare.amount,
    "gpushare_idle_memory": gpushare.idle_memory,
    "gpushare_candidates": gpushare.candidates,
    # configuration
    "parse_device_config": config.parse_device_config,
    "ignored_resources_set": config.ignored_resources,
    "ignored_resources_append": config.ignored_resources,
    "plugin_arguments": config.plugin_arguments,
    # GPU exclusivity
    "exclusive_rules_from_arguments": exclusive.rules_from_arguments,
    "parse_exclusive_rules": exclusive.parse_rules,
    "exclusive_rule_matches": exclusive.rule_matches,
    "exclusive_matching_rules": exclusive.matching_rules,
    "exclusive_rebuild": exclusive.rebuild,
    "exclusive_reserved_devices": exclusive.reserved_devices,
    "exclusive_available_devices": exclusive.available_devices,
    "exclusive_cap_devices": exclusive.cap_devices,
    # Ascend through HAMi
    "ascend_trim_memory": ascend_functions.trim_memory,
    "ascend_verify_request": ascend_functions.verify_request,
    "ascend_filter": ascend_functions.filter_pod,
    "ascend_device_fits": ascend_functions.device_fits,
    "ascend_device_score": ascend_functions.device_score,
    "ascend_node_devices": ascend_functions.node_devices,
    "ascend_add_pod_usage": ascend_functions.add_pod_usage,
    "ascend_release": ascend_functions.release,
    # Ascend through MindCluster
    "mindcluster_scenario": mindcluster.scenario,
    # node locks
    "lock_node": lock.lock_node,
    "ascend_allocate": lock.ascend_allocate,
    # the device plugin
    "select_pending_pod": plugin.select_pending_pod,
    "erase_next_device_request": plugin.erase_next_device_request,
    "mark_success": plugin.mark,
    "mark_failed": plugin.mark,
    "allocation_complete": plugin.allocation_complete,
    "cdi_annotations": plugin.cdi_annotations,
    "visible_devices_env": plugin.visible_devices_env,
    "container_env": plugin.container_env,
    "memory_entry_limit": plugin.memory_entry_limit,
}
