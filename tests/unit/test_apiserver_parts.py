"""The API server's pure parts: paths, quantities, patches, schemas, ages."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from allotment_local.apiserver.errors import ApiError
from allotment_local.apiserver.patches import merge, strategic
from allotment_local.apiserver.printers import AGE, custom_columns, human_duration
from allotment_local.apiserver.quantities import canonical, parse_quantity
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import Resource, ResourceKey
from allotment_local.apiserver.schema import conform
from tests.contract.local_apiserver import START


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("2.", 2),
        ("1e3", 1000),
        ("2E-1", Fraction(1, 5)),
        ("1E", 10**18),
        ("3Gi", 3 * 2**30),
        ("-1k", -1000),
        ("7n", Fraction(7, 10**9)),
        (4, 4),
        (0.25, Fraction(1, 4)),
        ("", None),
        ("1 Gi", None),
        ("1gi", None),
        ("abc", None),
        ("1e9999", None),
        (True, None),
        (None, None),
    ],
)
def test_quantities(text: object, amount: Fraction | None) -> None:
    assert parse_quantity(text) == amount


def test_numbers_are_shown_as_quantities() -> None:
    assert [canonical(value) for value in (2, 0.5, 2.0, "1000m")] == ["2", "500m", "2", "1000m"]


def test_a_column_shows_the_field_that_its_path_names() -> None:
    spec = {"name": "Phase", "type": "string", "jsonPath": ".status.state.phase"}
    (_, column) = custom_columns([spec])
    assert column.cell({"status": {"state": {"phase": "Up"}}}, START) == "Up"
    assert column.cell({"status": {"state": None}}, START) is None
    with pytest.raises(ValueError, match="is not a path of field names"):
        custom_columns([{**spec, "jsonPath": ".spec.list[0].name"}])


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_as_its_standard_has_it(target: Any, patch: Any, merged: Any) -> None:
    assert merge(target, patch) == merged


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
            {"env": [{"name": "A", "value": "2"}, {"name": "C"}]},
            {"env": [{"name": "A", "value": "2"}, {"name": "B"}, {"name": "C"}]},
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"$patch": "delete", "name": "A"}]},
            {"env": [{"name": "B"}]},
        ),
        (
            {"env": [{"name": "A"}]},
            {"env": [{"$patch": "replace"}, {"name": "Z"}]},
            {"env": [{"name": "Z"}]},
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"$setElementOrder/env": [{"name": "B"}, {"name": "A"}]},
            {"env": [{"name": "B"}, {"name": "A"}]},
        ),
        ({"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b"]}, {"finalizers": ["a", "b"]}),
        (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
        ),
        ({"m": {"a": 1, "b": 2}}, {"m": {"$patch": "replace", "c": 3}}, {"m": {"c": 3}}),
        ({"m": {"a": 1, "b": 2}}, {"m": {"$retainKeys": ["b"], "b": 3}}, {"m": {"b": 3}}),
        (
            {"ports": [{"port": 1, "name": "a"}]},
            {"ports": [{"port": 1, "name": "b"}]},
            {"ports": [{"port": 1, "name": "b"}]},
        ),
    ],
)
def test_strategic_merge(target: Any, patch: Any, merged: Any) -> None:
    before = repr(target)
    assert strategic(target, patch) == merged
    assert repr(target) == before


def test_a_strategic_patch_of_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        strategic({"env": []}, {"env": [{"value": "1"}]})


def _custom(schema: dict[str, Any]) -> Resource:
    return Resource(
        key=ResourceKey("g", "things"),
        group="g",
        version="v1",
        kind="Thing",
        namespaced=True,
        custom=True,
        schema={"type": "object", "properties": {"spec": {"type": "object", **schema}}},
    )


def _thing(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def test_schemas_fill_in_and_drop() -> None:
    kind = _custom(
        {
            "properties": {
                "n": {"type": "integer", "default": 3},
                "o": {"type": "object", "default": {}, "properties": {"x": {"default": "y"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "nulled": {"type": "string"},
            }
        }
    )
    spec = {"free": {"a": 1}, "map": {"b": "c"}, "unknown": 1, "nulled": None}
    fitted = conform(kind, _thing(spec), strict=False)
    assert fitted["spec"] == {"free": {"a": 1}, "map": {"b": "c"}, "n": 3, "o": {"x": "y"}}
    with pytest.raises(ApiError, match=r'unknown field "spec\.unknown"'):
        conform(kind, _thing(spec), strict=True)


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"type": "integer"}, "1", 'spec.f: Invalid value: "1": must be of type integer'),
        ({"type": "integer"}, True, "must be of type integer"),
        ({"type": "integer", "minimum": 1}, 0, "greater than or equal to 1"),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, 1, "less than 1"),
        ({"type": "string", "enum": ["a"]}, "b", 'supported values: "a"'),
        ({"type": "string", "pattern": "^x"}, "b", "must match ^x"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 length"),
        ({"type": "array", "items": {"type": "string"}}, [1], "spec.f[0]"),
        ({"type": "array", "minItems": 1}, [], "at least 1 items"),
        ({"type": "object", "required": ["x"]}, {}, "spec.f.x: Required value"),
        ({"x-kubernetes-int-or-string": True}, [], "must be an integer or a string"),
    ],
)
def test_schemas_refuse(schema: dict[str, Any], value: Any, words: str) -> None:
    with pytest.raises(ApiError) as refusal:
        conform(_custom({"properties": {"f": schema}}), _thing({"f": value}), strict=False)
    assert refusal.value.code == 422
    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (900, "15m"),
        (3 * 3600 + 60, "3h1m"),
        (20 * 3600, "20h"),
        (50 * 3600, "2d2h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text
    created = (START - timedelta(seconds=seconds)).isoformat()
    assert AGE.cell({"metadata": {"creationTimestamp": created}}, START) == text


def test_every_built_in_resource_can_be_found_by_path_and_by_key() -> None:
    registry = Registry()
    for group, versions in registry.groups().items():
        for version, resources in versions.items():
            for resource in resources:
                assert registry.served(group, version, resource.plural) is resource
                assert registry.stored(resource.key).kind == resource.kind
