"""The AsyncAPI 3.1.0 document: every subject, who sends on it and who listens.

The tables below are the only place where a service and a subject are put together in words; the
contract tests hold them against `subjects` and the codec.
"""

from typing import Any, NamedTuple

from allotment_proto import registry, subjects
from allotment_proto.events import Decided
from allotment_proto.messages import Feasible, Proposal, Settled

ASYNCAPI_VERSION = "3.1.0"
SERVICES = ("watcher", "filter", "scorer", "binder", "inspector")
READER = "reader"
"""A client that reads the log with the reader's key: people's commands."""
ADMIN = "admin"
"""The same with the administrator's key."""
FACTS = tuple(kind.struct for kind in registry.KINDS if kind.topic.sender == registry.WATCHER)


class Channel(NamedTuple):
    """One subject: its payload's types (none: it has no content), its writers and readers."""

    key: str
    address: str
    types: tuple[type, ...]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...] = ()


def _log_channel(topic: registry.Topic) -> Channel:
    types = tuple(kind.struct for kind in registry.KINDS if kind.topic is topic)
    return Channel(topic.key, topic.address, types, (topic.sender,), SERVICES, topic.parameters)


CHANNELS = (
    *map(_log_channel, registry.TOPICS),
    Channel("logFacts", subjects.FACTS, FACTS, (registry.WATCHER,), SERVICES),
    Channel("pipeFeasible", subjects.FEASIBLE, (Feasible,), ("filter",), ("scorer",)),
    Channel("pipeProposal", subjects.PROPOSAL, (Proposal,), ("scorer",), ("binder",)),
    Channel("pipeSettled", subjects.SETTLED, (Settled,), ("binder",), ("filter",)),
    Channel("askList", subjects.LIST_AGAIN, (), (READER,), (registry.WATCHER,)),
    Channel("askClose", subjects.CLOSE, (), (ADMIN,), (registry.BINDER,)),
    Channel("askRaise", subjects.RAISE, (), (ADMIN,), (registry.BINDER,)),
)
PIPELINE = (Feasible, Proposal, Settled)


def document(schemas: dict[str, Any]) -> dict[str, Any]:
    """The whole document around the given component schemas."""
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "Allotment",
            "version": "1.0.0",
            "description": "The allocation log and the messages between the services. "
            "Everything only grows: fields are added at the end with a default.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.key: _channel(channel) for channel in CHANNELS},
        "operations": {
            key: operation for channel in CHANNELS for key, operation in _operations(channel)
        },
        "components": {
            "schemas": schemas,
            "messages": {kind.__name__: _message(kind) for kind in (*registry.KIND, *PIPELINE)},
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "address": channel.address,
        "messages": {
            kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"}
            for kind in channel.types
        },
    }
    if channel.parameters:
        found["parameters"] = {name: {"description": text} for name, text in channel.parameters}
    if channel.address.startswith(subjects.LOG_ALL.removesuffix(">")):
        found["x-jetstream"] = {
            "stream": subjects.STREAM,
            "subjects": [subjects.LOG_ALL],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "denyDelete": True,
            "denyPurge": True,
            "compareAndAppend": channel.address in (subjects.DECISION, subjects.CHECKPOINT),
        }
    return found


def _operations(channel: Channel) -> list[tuple[str, dict[str, Any]]]:
    return [
        (
            f"{service}{action.capitalize()}{channel.key[0].upper()}{channel.key[1:]}",
            {
                "action": action,
                "channel": {"$ref": f"#/channels/{channel.key}"},
                "tags": [{"name": service}],
            },
        )
        for action, services in (("send", channel.senders), ("receive", channel.receivers))
        for service in services
    ]


def _message(kind: type) -> dict[str, Any]:
    name = kind.__name__
    trace = {"traceparent": {"type": "string", "description": "W3C trace context"}}
    doc = (kind.__doc__ or "").strip().split("\n")[0]
    if kind in PIPELINE:
        return {
            "name": name,
            "summary": doc,
            "headers": {"type": "object", "properties": trace},
            "payload": {"$ref": f"#/components/schemas/{name}"},
        }
    headers = {
        **trace,
        "Nats-Msg-Id": {"type": "string", "description": "names the record's content"},
    }
    if kind is Decided:
        headers["Nats-Expected-Last-Subject-Sequence"] = {
            "type": "string",
            "description": "the last decision that the binder had seen",
        }
    return {
        "name": name,
        "summary": doc,
        "headers": {"type": "object", "properties": headers, "required": ["Nats-Msg-Id"]},
        "payload": {
            "allOf": [
                {"$ref": "#/components/schemas/Envelope"},
                {"properties": {"events": {"contains": {"$ref": f"#/components/schemas/{name}"}}}},
            ]
        },
    }
