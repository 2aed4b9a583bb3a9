"""JSON Schema and AsyncAPI for everything on the wire, generated from the types and frozen here.

`documents` says what the files must hold; `python -m allotment_proto.schema --check` compares,
`--write` writes. The diff of these files is the review of every change to the wire.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from allotment_proto.events import Envelope
from allotment_proto.messages import Feasible, Proposal, Settled
from allotment_proto.schema.asyncapi import document

FOLDER = Path(__file__).parent
DRAFT = "https://json-schema.org/draft/2020-12/schema"
MESSAGES = (Feasible, Proposal, Settled)


def documents() -> dict[str, str]:
    """File name → text: the log's schema, the pipeline's schema, the AsyncAPI document."""
    _, schemas = msgspec.json.schema_components(
        (Envelope, *MESSAGES), ref_template="#/components/schemas/{name}"
    )
    return {
        "log.schema.json": _text(_json_schema((Envelope,), "One record of the allotment log")),
        "pipeline.schema.json": _text(_json_schema(MESSAGES, "A message between services")),
        "asyncapi.json": _text(document(schemas)),
    }


def _json_schema(types: tuple[type, ...], title: str) -> dict[str, Any]:
    roots, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    root = roots[0] if len(roots) == 1 else {"anyOf": list(roots)}
    return {"$schema": DRAFT, "title": title, **root, "$defs": definitions}


def _text(value: dict[str, Any]) -> str:
    return json.dumps(_tidy(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _tidy(value: Any) -> Any:
    """Descriptions on one line: Python releases differ in how they indent docstrings."""
    if isinstance(value, dict):
        return {
            key: " ".join(inner.split())
            if key == "description" and isinstance(inner, str)
            else _tidy(inner)
            for key, inner in value.items()
        }
    return [_tidy(inner) for inner in value] if isinstance(value, (list, tuple)) else value
