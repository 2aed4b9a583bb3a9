"""The fields that the API server reads have the shapes that it expects, or the place is named."""

from typing import Any

import pytest

from allotment_local.apiserver.errors import ApiError
from allotment_local.apiserver.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from allotment_local.apiserver.shapes import shaped_object


def pod(container: Any) -> dict[str, Any]:
    return {"spec": {"nodeName": "n", "containers": [container]}}


def test_what_fits_is_left_as_it_is() -> None:
    limits = {"cpu": 1, "memory": "1Gi"}
    fitting = pod({"name": "c", "unknown": [7], "resources": {"limits": limits}})
    assert shaped_object(PODS, fitting, None) is fitting


def test_a_null_in_a_known_field_counts_as_left_out() -> None:
    given = pod({"name": "c", "env": None, "unknown": None})
    assert shaped_object(PODS, given, None) == pod({"name": "c", "unknown": None})


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (7, "spec.containers[0]: 7 is not an object"),
        ({"env": {}}, "spec.containers[0].env: {} is not a list"),
        ({"name": 1}, "spec.containers[0].name: 1 is not a string"),
        ({"resources": {"limits": []}}, "resources.limits: [] is not a map"),
        ({"resources": {"limits": {"cpu": True}}}, "limits[cpu]: True is not a number or text"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(container: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        shaped_object(PODS, pod(container), None)
    assert words in refused.value.message


def test_a_text_that_is_a_number_or_no_flag_is_refused() -> None:
    for node, words in (
        ({"status": {"nodeInfo": {"osImage": 1}}}, "nodeInfo[osImage]: 1 is not a string; quote"),
        ({"spec": {"unschedulable": "no"}}, "spec.unschedulable: 'no' is not true or false"),
    ):
        with pytest.raises(ApiError) as refused:
            shaped_object(NODES, node, None)
        assert words in refused.value.message


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
