"""The custom resources that a new local cluster knows: Jobs, PodGroups, Queues, Commands."""

from pathlib import Path

import yaml

from allotment_local.apiserver.errors import JsonObject

PLACES = (
    Path(__file__).resolve().parents[2] / "deploy" / "base" / "crds",
    Path(__file__).resolve().parent / "crds",
)
"""Where the manifests are: in a checkout, and in an installed package."""


def read_definitions() -> list[JsonObject]:
    """The manifests, in the order of their names. Raises FileNotFoundError without them."""
    place = next((path for path in PLACES if path.is_dir()), None)
    if place is None:
        raise FileNotFoundError(f"no custom resource definitions in {PLACES[0]} or {PLACES[1]}")
    return [
        yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(place.glob("*.yaml"))
    ]
