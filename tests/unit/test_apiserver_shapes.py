"""What msgspec says of a shape and what is said field by field are the same thing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_local.apiserver.errors import ApiError
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    PODS,
    ResourceKey,
)
from allotment_local.apiserver.shapes import SHAPES, Shape, shaped, shaped_object

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


TAKING = {key: (SHAPES[key], Shape(SHAPES[key])) for key in (PODS, NODES)}
POD = {
    "metadata": {"name": "p"},
    "spec": {
        "nodeName": "n",
        "priority": 7,
        "nodeSelector": {"zone": "a"},
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "A", "value": "1"}],
                "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": 0.5}},
            }
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "Ready", "status": "True", "reason": "R"}],
        "containerStatuses": [{"ready": True, "restartCount": 0, "state": {"running": {}}}],
    },
}
NODE = {
    "spec": {"unschedulable": False, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": 8, "memory": "1Gi"}, "nodeInfo": {"osImage": "x"}},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside."""
    found = [path]
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(item, (*path, key))
    return found


def damaged(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """A copy with something else at one place."""
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = damaged(value[path[0]], path[1:], by)
    return copy


@pytest.mark.parametrize(("key", "whole"), [(PODS, POD), (NODES, NODE)])
@given(data=st.data())
def test_what_fits_is_left_as_it_is_and_what_does_not_is_refused_with_its_place(
    key: ResourceKey, whole: dict[str, Any], data: st.DataObject
) -> None:
    shape, taking = TAKING[key]
    assert taking.fits(whole)
    path = data.draw(st.sampled_from(places(whole)))
    value = damaged(whole, path, data.draw(ANYTHING))
    try:
        slowly: Any = shaped(shape, value, "x")
    except ApiError as error:
        slowly = error.message
    try:
        fast: Any = taking.take(value, "x")
    except ApiError as error:
        fast = error.message
    assert fast == slowly
    assert (fast is value) == (slowly is value)
    assert not taking.fits(value) or slowly is value


def test_a_schema_in_a_schema_is_looked_at_too() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"size": {"type": 7}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": inner}}}
    definition = {"spec": {"versions": [{"name": "v1", "schema": schema}]}}
    with pytest.raises(ApiError, match=r"properties\[size\]\.type: 7 is not a string"):
        shaped_object(CUSTOM_RESOURCE_DEFINITIONS, definition, None)


def test_only_what_differs_from_the_version_before_is_looked_at() -> None:
    spec = {"nodeName": 7}
    assert shaped_object(PODS, {"spec": spec}, {"spec": spec}) == {"spec": spec}
    with pytest.raises(ApiError, match=r"spec\.nodeName"):
        shaped_object(PODS, {"spec": dict(spec)}, {"spec": spec})
