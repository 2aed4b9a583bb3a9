"""The admission policy against the code: it reserves what is written for a pod, and nothing asked;
what local mode's API server enforces is what it says.

What its expressions do was tried on a real API server; here is what would drift.
"""

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.contract.manifests import KUSTOMIZATIONS, ROOT, needs_kubectl, of_kind

from allotment.core.ledger.model import RESERVED, Allocation
from allotment_binder.bindings import annotations
from allotment_local.apiserver.admission import read_policy
from allotment_proto.facts import Holding
from allotment_proto.volcano import device_config, keys, reserved

BASE = ROOT / "deploy/base"
FILES = ("annotation-policy.yaml", "annotation-writers.yaml")
POLICY, BINDING = yaml.safe_load_all((BASE / FILES[0]).read_text())
EXPRESSIONS: dict[str, str] = {
    variable["name"]: variable["expression"] for variable in POLICY["spec"]["variables"]
}
WRITTEN = (
    keys.VGPU_NODE,
    keys.VGPU_TIME,
    keys.VGPU_IDS,
    keys.DEVICES_TO_ALLOCATE,
    keys.BIND_PHASE,
    keys.BIND_TIME,
    keys.GPU_ASSIGNED,
    keys.PREDICATE_TIME,
    keys.HAMI_NODE,
    keys.HAMI_TIME,
    keys.HAMI_BIND_TIME,
    keys.HAMI_BIND_PHASE,
    keys.HAMI_PREDICATE_TIME,
    keys.hami_to_allocate("Ascend910B"),
    keys.hami_allocated("Ascend310P"),
    keys.ascend_detail("Ascend910B3"),
    keys.NPU_CORE,
    keys.ASCEND_REAL,
    keys.LOG_SEQ,
    keys.TRACEPARENT,
)
ASKED = (
    keys.USE_GPUTYPE,
    keys.NOUSE_GPUUUID,
    keys.VGPU_MODE,
    keys.VNPU_MODE,
    keys.GROUP_NAME,
    keys.PODGROUP_POLICY,
    "hami.io/use-Ascend910B-uuid",
    "volcano.sh/card.name",
    "allotment.dev/run-duration",
)
ACCOUNTS = {
    ("allotment-system", "allotment-binder"),
    ("", "system:nodes"),
    ("kube-system", "volcano-device-plugin"),
    ("kube-system", "hami-device-plugin"),
    ("kube-system", "hami-ascend"),
    ("kube-system", "ascend-device-plugin-sa-310p"),
}


def test_the_policy_says_what_the_code_and_local_mode_go_by() -> None:
    """Word by word: the list, the patterns, and what counts only once a pod is bound."""
    listed = ", ".join(f"'{key}'" for key in reserved.LISTED)
    matching = [f"k.matches('{pattern}')" for pattern in reserved.PATTERNS]
    bound = ", ".join(f"'{key}'" for key in reserved.ONCE_BOUND)
    said = [f"k in [{listed}]", *(m.replace("\\", "\\\\") for m in matching)]
    said.append(f"(k in [{bound}] && variables.isBound)")
    written = re.sub(r"\s+", " ", EXPRESSIONS["reserved"]).replace("[ ", "[")
    assert written == f"variables.differing.filter(k, {' || '.join(said)})"


@pytest.mark.parametrize("key", WRITTEN)
def test_what_is_written_for_a_pod_is_reserved(key: str) -> None:
    assert reserved.is_reserved(key, is_bound=False)


@pytest.mark.parametrize("key", ASKED)
def test_what_a_pod_asks_for_is_not(key: str) -> None:
    assert not reserved.is_reserved(key, is_bound=True)


@pytest.mark.parametrize("family", ["vgpu", "gpushare"])
def test_the_index_of_a_card_is_reserved_once_the_pod_is_bound(family: str) -> None:
    held = (Holding(family, 0, "0", 1_000, 10),)
    written = annotations(Allocation("u", "n", held, 0, 0, (), phase=RESERVED, seq=7), 1)
    before = {key for key in written if not reserved.is_reserved(key, is_bound=False)}
    assert before <= {keys.GPU_INDEX}
    assert all(reserved.is_reserved(key, is_bound=True) for key in written)


@pytest.mark.parametrize("name", FILES)
def test_every_object_fits_the_schema(name: str) -> None:
    for found in yaml.safe_load_all((BASE / name).read_text()):
        kubernetes_validate.validate(found, "1.32", strict=True)


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
def test_it_is_part_of_what_is_installed(where: str) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert [found["metadata"]["name"] for found in of_kind(where, *kinds)] == [reserved.POLICY] * 2
    (granted,) = (
        found["subjects"]
        for found in of_kind(where, "ClusterRoleBinding")
        if found["metadata"]["name"] == "allotment-assignment-writers"
    )
    subjects: list[dict[str, Any]] = granted
    accounts = {(found.get("namespace", ""), found["name"]) for found in subjects}
    assert accounts >= ACCOUNTS


def test_local_mode_installs_the_same() -> None:
    assert read_policy() == (POLICY, BINDING)


def test_who_may_write_is_asked_by_the_name_that_is_granted() -> None:
    role, _ = yaml.safe_load_all((BASE / FILES[1]).read_text())
    (rule,) = role["rules"]
    validations = POLICY["spec"]["validations"]
    asked = f"authorizer.group('{rule['apiGroups'][0]}').resource('{rule['resources'][0]}')"
    for validation in validations:
        assert f"{asked}.check('{rule['verbs'][0]}').allowed()" in validation["expression"]
    assert BINDING["spec"]["policyName"] == POLICY["metadata"]["name"] == reserved.POLICY


def test_which_pods_have_to_pass_a_scheduler_is_said_once() -> None:
    names = ", ".join(f"'{name}'" for name in reserved.SCHEDULERS)
    assert f"object.spec.schedulerName in [{names}]" in EXPRESSIONS["passesSchedulers"]
    prefixes = ", ".join(f"'{prefix}'" for prefix in reserved.SHARES)
    assert EXPRESSIONS["shares"] == f"[{prefixes}]"
    asked = EXPRESSIONS["asksForShares"]
    assert asked.count("exists(k, variables.shares.exists(s, k.startsWith(s)))") == 2


def test_all_resources_that_are_handed_out_by_records_are_named() -> None:
    """Those of the built-in device configuration."""
    config = device_config.default()
    names = [keys.VGPU_NUMBER, keys.GPU_MEMORY, keys.GPU_NUMBER, keys.NPU_CORE]
    for chip in config.ascend:
        names += [chip.resource_name, chip.resource_memory_name]
    assert config.nvidia.count_name in names
    assert len(names) > 4
    for name in names:
        assert name.startswith(reserved.SHARES), name
