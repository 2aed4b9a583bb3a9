"""A log whose names and messages want to be more than text: for every screen and every page."""

import json
from typing import Any

import msgspec

from allotment.core.logport import Record
from tests.recording import Recorder

MARKUP = "<img src=x onerror=window.hacked=1>\"'&{{7*7}}{at}" + "x" * 200
"""For pages: what would be run, or would break out of an attribute, if it were not escaped."""
UNPRINTABLE = "\u202e\x1b[31m\u2066"
"""What would reorder or recolour what stands next to it."""
NAMED = ("name", "namespace", "scheduler", "message", "source", "group", "queue", "reason")


def poisoned(recorder: Recorder, poison: str) -> tuple[list[Record], dict[str, str]]:
    """The records with poison behind every name and message; name → poisoned name."""
    documents = [json.loads(record.payload) for record in recorder.records]
    words = {
        part
        for document in documents
        for event in document["events"]
        for key in NAMED
        if isinstance(text := event.get(key), str)
        for part in text.split("/")
        if part
    }
    swaps = {word: word + poison for word in words}

    def swap(value: Any) -> Any:
        if isinstance(value, str):
            if value in swaps or "/" in value:
                return "/".join(swaps.get(part, part) for part in value.split("/"))
            return value + poison if " " in value else value
        if isinstance(value, list):
            return [swap(item) for item in value]
        if isinstance(value, dict):
            return {key: value[key] if key == "type" else swap(value[key]) for key in value}
        return value

    records = []
    for record, document in zip(recorder.records, documents, strict=True):
        document["events"] = swap(document["events"])
        payload = json.dumps(document).encode()
        records.append(msgspec.structs.replace(record, payload=payload))
    return records, swaps
