"""The admission policy against the code: it reserves what is written for a pod, and nothing asked.

What its expressions do was tried on a real API server; here is what would drift.
"""

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.contract.manifests import ROOT

from allotment.core.ledger.model import RESERVED, Allocation
from allotment_binder.bindings import annotations
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys

COMPONENT = ROOT / "deploy/components/annotation-policy"
POLICY, BINDING = yaml.safe_load_all((COMPONENT / "policy.yaml").read_text())
RESERVED_KEYS: str = next(
    variable["expression"]
    for variable in POLICY["spec"]["variables"]
    if variable["name"] == "reserved"
)
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
)


def is_reserved(key: str) -> bool:
    """What the expression says of a key, but for the one that also is a request."""
    listed = re.findall(r"'([^']+)'", RESERVED_KEYS.partition(" in [")[2].partition("]")[0])
    prefixes = re.findall(r"startsWith\('([^']+)'\)", RESERVED_KEYS)
    patterns = re.findall(r"matches\('([^']+)'\)", RESERVED_KEYS)
    return (
        key in listed
        or key.startswith(tuple(prefixes))
        or any(re.search(pattern.replace(r"\\", "\\"), key) for pattern in patterns)
    )


@pytest.mark.parametrize("key", WRITTEN)
def test_what_is_written_for_a_pod_is_reserved(key: str) -> None:
    assert is_reserved(key)


@pytest.mark.parametrize("key", ASKED)
def test_what_a_pod_asks_for_is_not(key: str) -> None:
    assert not is_reserved(key)


@pytest.mark.parametrize("family", ["vgpu", "gpushare"])
def test_the_index_of_a_card_is_reserved_once_the_pod_is_bound(family: str) -> None:
    held = (Holding(family, 0, "0", 1_000, 10),)
    written = annotations(Allocation("u", "n", held, 0, 0, (), phase=RESERVED, seq=7), 1)
    assert {key for key in written if not is_reserved(key)} <= {keys.GPU_INDEX}
    assert f"(k == '{keys.GPU_INDEX}' && variables.isBound)" in RESERVED_KEYS


@pytest.mark.parametrize("name", ["policy.yaml", "writers.yaml"])
def test_every_object_fits_the_schema(name: str) -> None:
    for found in yaml.safe_load_all((COMPONENT / name).read_text()):
        kubernetes_validate.validate(found, "1.32", strict=True)


def test_who_may_write_is_asked_by_the_name_that_is_granted() -> None:
    role, binding = yaml.safe_load_all((COMPONENT / "writers.yaml").read_text())
    (rule,) = role["rules"]
    (validation,) = POLICY["spec"]["validations"]
    asked = f"authorizer.group('{rule['apiGroups'][0]}').resource('{rule['resources'][0]}')"
    assert f"{asked}.check('{rule['verbs'][0]}').allowed()" in validation["expression"]
    subjects: list[dict[str, Any]] = binding["subjects"]
    accounts = {(found.get("namespace", ""), found["name"]) for found in subjects}
    assert {("allotment-system", "allotment-binder"), ("", "system:nodes")} <= accounts
    assert BINDING["spec"]["policyName"] == POLICY["metadata"]["name"]
