"""What several readers read of an object; what they do not read may hold anything."""

import json
from typing import Any

import msgspec
import pytest

from allotment.adapters.kube.objects import (
    AnnotatedObject,
    ObjectMeta,
    PlacedPod,
    PodSpecGlimpse,
)
from allotment.adapters.kube.wire import read_meta

META = {
    "name": "a",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "7",
    "annotations": {"k": "v"},
    "labels": 5,
    "ownerReferences": [{"uid": []}],
    "managedFields": "strange",
}


def test_identity_version_and_annotations_are_read_beside_strange_fields() -> None:
    data = json.dumps({"metadata": META, "spec": [], "status": 1})
    meta = msgspec.json.decode(data, type=AnnotatedObject).metadata
    assert (meta.name, meta.namespace, meta.uid, meta.version) == ("a", "ns", "u", 7)
    assert meta.annotations == {"k": "v"}


def test_the_place_of_a_pod_is_read_beside_strange_fields() -> None:
    spec: dict[str, Any] = {"nodeName": "n", "schedulerName": 5, "containers": "none"}
    data = json.dumps({"metadata": META, "spec": spec, "status": []})
    assert msgspec.json.decode(data, type=PlacedPod).spec.node_name == "n"


def test_a_glimpse_of_a_spec_is_read_beside_strange_fields() -> None:
    data = json.dumps({"nodeName": None, "schedulerName": "allotment", "containers": {"a": 1}})
    assert msgspec.json.decode(data, type=PodSpecGlimpse) == PodSpecGlimpse("allotment")


def test_who_an_object_is_needs_no_readable_annotations() -> None:
    data = json.dumps({"metadata": META | {"annotations": ["no", "texts"]}})
    assert read_meta(data.encode()) == ObjectMeta("a", "ns", "u", "7")


def test_a_field_of_a_wrong_type_is_empty_and_the_others_are_read() -> None:
    data = json.dumps({"metadata": META | {"namespace": 5}})
    assert read_meta(data.encode()) == ObjectMeta("a", "", "u", "7")


@pytest.mark.parametrize("version", ["", "new", "-1"])
def test_a_version_that_is_no_number_is_0(version: str) -> None:
    assert ObjectMeta(resource_version=version).version == 0
