"""What the kustomizations render to, and the settings that it may name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.waiting import PATIENCE_S

from allotment.adapters.service.settings import CommonSettings, load
from allotment.adapters.service.settings_fields import variable_of
from allotment_archiver.settings import ArchiverSettings
from allotment_binder.settings import BinderSettings
from allotment_controller.settings import ControllerSettings
from allotment_filter.settings import FilterSettings
from allotment_inspector.settings import InspectorSettings
from allotment_scorer.settings import ScorerSettings
from allotment_watcher.settings import WatcherSettings

ROOT = Path(__file__).parents[2]
KUSTOMIZATIONS = ("deploy/base", "deploy/overlays/default")
SETTINGS: dict[str, type[CommonSettings]] = {
    "allotment_watcher": WatcherSettings,
    "allotment_filter": FilterSettings,
    "allotment_scorer": ScorerSettings,
    "allotment_binder": BinderSettings,
    "allotment_controller": ControllerSettings,
    "allotment_archiver": ArchiverSettings,
    "allotment_inspector": InspectorSettings,
}
READ_ELSEWHERE = {"ALLOT_COMMIT", "ALLOT_TRACE_FILE"}
"""Variables of ours that are no service's setting."""
Object = dict[str, Any]
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is missing: make helm")
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")


@cache
def rendered(where: str) -> tuple[Object, ...]:
    done = subprocess.run(
        ["kubectl", "kustomize", ROOT / where],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(where: str, *kinds: str) -> list[Object]:
    return [found for found in rendered(where) if found["kind"] in kinds]


def services(where: str) -> dict[str, Object]:
    """The pod specs of the services, by the module that each runs."""
    specs = [found["spec"]["template"]["spec"] for found in of_kind(where, "Deployment")]
    return {spec["containers"][0]["args"][0]: spec for spec in specs}


def load_settings(
    module: str, environ: Mapping[str, str], files: Mapping[str, Path]
) -> CommonSettings:
    """The service's settings as it would read them; `files`: what is mounted where."""
    kind = SETTINGS[module]
    settings = {name for name in environ if name.startswith("ALLOT_")} - READ_ELSEWHERE
    known = {variable_of(field) for field in msgspec.structs.fields(kind)}
    assert settings <= known, f"{module} has no settings {sorted(settings - known)}"
    here = {name: str(files.get(value, value)) for name, value in environ.items()}
    return load(kind, [], here, module, "")
