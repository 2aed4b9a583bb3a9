"""The frozen schemas are what the types say, hold together, and name every subject there is."""

import json
from typing import Any

import jsonschema
import pytest

from allotment_proto import samples, schema, subjects
from allotment_proto.schema import asyncapi
from allotment_proto.schema.__main__ import check


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for inner in value.values() for ref in _refs(inner)]
    if isinstance(value, list):
        return [ref for inner in value for ref in _refs(inner)]
    return []


def _load(name: str) -> dict[str, Any]:
    found = json.loads((schema.FOLDER / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_frozen_files_are_current() -> None:
    assert check() == []


@pytest.mark.parametrize("name", sorted(schema.documents()))
def test_every_reference_resolves(name: str) -> None:
    document = _load(name)
    for ref in _refs(document):
        at: Any = document
        for part in ref.removeprefix("#/").split("/"):
            assert part in at, ref
            at = at[part]


@pytest.mark.parametrize(
    ("name", "types"),
    [("log.schema.json", samples.EVENTS), ("pipeline.schema.json", samples.MESSAGES)],
)
def test_samples_obey_the_schema(name: str, types: tuple[object, ...]) -> None:
    document = _load(name)
    jsonschema.Draft202012Validator.check_schema(document)
    validator = jsonschema.Draft202012Validator(document)
    for path in sorted(samples.FOLDER.glob("*.json")):
        if path.name.split(".")[0] in {type(value).__name__ for value in types}:
            validator.validate(json.loads(path.read_bytes()))


def test_schema_refuses_what_the_codec_refuses() -> None:
    validator = jsonschema.Draft202012Validator(_load("log.schema.json"))
    broken = {"v": 1, "at_ms": 0, "by": "x", "events": [{"type": "Unheard"}]}
    assert not validator.is_valid(broken)


def test_asyncapi_names_every_subject_and_message() -> None:
    document = _load("asyncapi.json")
    assert document["asyncapi"] == "3.1.0"
    addresses = {channel["address"] for channel in document["channels"].values()}
    constants = {
        value
        for name, value in vars(subjects).items()
        if name.isupper() and isinstance(value, str) and value.startswith("allot.")
    }
    patterns = {
        subjects.NODE: "{node}",
        subjects.POD: "{uid}",
        subjects.GROUP: "{namespace}.{group}",
        subjects.QUEUE: "{queue}",
        subjects.CLASS: "{class}",
    }
    wanted = {c + patterns.get(c, "") for c in constants - {subjects.LOG_ALL}}
    assert addresses == wanted
    kinds = {type(value).__name__ for value in (*samples.EVENTS, *samples.MESSAGES)}
    assert set(document["components"]["messages"]) == kinds


def test_asyncapi_log_channels_are_jetstream_and_have_an_id() -> None:
    document = _load("asyncapi.json")
    for channel in document["channels"].values():
        is_log = channel["address"].startswith("allot.log.")
        assert ("x-jetstream" in channel) == is_log
        for name in channel["messages"]:
            headers = document["components"]["messages"][name]["headers"]
            assert "traceparent" in headers["properties"]
            assert ("Nats-Msg-Id" in headers["properties"]) == is_log


def test_every_channel_is_sent_and_received_by_somebody() -> None:
    operations = _load("asyncapi.json")["operations"].values()
    for channel in asyncapi.CHANNELS:
        actions = {
            o["action"] for o in operations if o["channel"]["$ref"] == f"#/channels/{channel.key}"
        }
        assert actions == {"send", "receive"}, channel.key


def test_check_names_the_file_and_the_remedy(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "FOLDER", tmp_path)
    (tmp_path / "log.schema.json").write_text("{}")
    problems = check()
    assert any("log.schema.json is not what the types say" in p for p in problems)
    assert any("asyncapi.json is missing" in p for p in problems)
