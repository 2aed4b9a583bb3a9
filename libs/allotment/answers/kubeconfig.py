"""What a kubeconfig says of its current context, read without a cluster's client: that is quick."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

USUAL_NAMESPACE = "default"


class Choice(NamedTuple):
    """Which cluster: None is what kubectl would take."""

    kubeconfig: Path | None = None
    context: str | None = None


def files_of(named: Path | None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that count: the one that is named, else those of KUBECONFIG, else kubectl's own."""
    if named is not None:
        return [named]
    if listed := environ.get("KUBECONFIG"):
        return [Path(part) for part in listed.split(os.pathsep) if part]
    return [Path(environ.get("HOME", "~"), ".kube", "config").expanduser()]


def namespace_of(files: Sequence[Path], context: str | None = None) -> str:
    """The namespace of the context (without one: of the current one), or the usual one.

    As with kubectl, of two files that say the same the first counts. What cannot be read says
    nothing: code that needs more of the file reports what is wrong with it.
    """
    read = [_read(path) for path in files]
    chosen = context or next((str(c) for each in read if (c := each.get("current-context"))), "")
    for each in read:
        for entry in each.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == chosen:
                inner = entry.get("context")
                namespace = inner.get("namespace") if isinstance(inner, dict) else None
                return str(namespace or USUAL_NAMESPACE)
    return USUAL_NAMESPACE


def contexts_of(files: Sequence[Path]) -> list[str]:
    """The names of the contexts in these files. A file that cannot be read has none."""
    return [
        str(entry["name"])
        for each in map(_read, files)
        for entry in each.get("contexts") or ()
        if isinstance(entry, dict) and entry.get("name")
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}
