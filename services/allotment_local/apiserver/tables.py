"""How entries are shown: as they are, or as a Table of printer columns."""

from datetime import datetime
from typing import Any

from allotment_local.apiserver.collection import Entry, encode
from allotment_local.apiserver.errors import JsonObject, bad_request
from allotment_local.apiserver.negotiation import Form
from allotment_local.apiserver.resources import Resource

INCLUDE_CHOICES = ("None", "Metadata", "Object")


def include_choice(query_value: str | None) -> str:
    """The `includeObject` parameter. ApiError 400 unless it is one of the three."""
    choice = query_value or "Metadata"
    if choice not in INCLUDE_CHOICES:
        raise bad_request(f"includeObject: {choice!r} is not one of {', '.join(INCLUDE_CHOICES)}")
    return choice


def wire(resource: Resource, entry: Entry) -> JsonObject:
    """The object in the version this face serves."""
    return resource.to_wire(entry.obj) if resource.to_wire else entry.obj


def wire_bytes(resource: Resource, entry: Entry) -> bytes:
    """Its JSON; for the stored version the bytes everyone shares."""
    return encode(resource.to_wire(entry.obj)) if resource.to_wire else entry.encoded


def partial(entry: Entry) -> JsonObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": entry.obj["metadata"],
    }


def column_definitions(resource: Resource) -> list[JsonObject]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": column.description,
            "priority": column.priority,
        }
        for column in resource.columns
    ]


def table(
    resource: Resource,
    entries: list[Entry],
    *,
    metadata: JsonObject,
    now: datetime,
    include: str,
    with_columns: bool = True,
) -> JsonObject:
    """A meta.k8s.io/v1 Table. In a watch only the first one needs the columns."""
    rows: list[JsonObject] = []
    for entry in entries:
        cells: list[Any] = [column.cell(entry.obj, now) for column in resource.columns]
        row: JsonObject = {"cells": cells}
        if include != "None":
            row["object"] = wire(resource, entry) if include == "Object" else partial(entry)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": column_definitions(resource) if with_columns else None,
        "rows": rows,
    }


def show_one(resource: Resource, entry: Entry, form: Form, now: datetime, include: str) -> bytes:
    """One object in the form the client asked for."""
    if form is Form.TABLE:
        metadata = {"resourceVersion": str(entry.version)}
        return encode(table(resource, [entry], metadata=metadata, now=now, include=include))
    return wire_bytes(resource, entry)


def show_list(
    resource: Resource,
    entries: list[Entry],
    form: Form,
    *,
    metadata: JsonObject,
    now: datetime,
    include: str,
) -> bytes:
    """A list in the form the client asked for; the plain one is joined from shared bytes."""
    if form is Form.TABLE:
        return encode(table(resource, entries, metadata=metadata, now=now, include=include))
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        encode(f"{resource.kind}List"),
        encode(resource.api_version),
        encode(metadata),
    )
    return b"".join((head, b",".join(wire_bytes(resource, e) for e in entries), b"]}"))
