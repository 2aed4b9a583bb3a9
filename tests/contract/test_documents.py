"""What documents say can be done: commands can be typed, links lead somewhere, files are there."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.contract.manifests import HELM, SETTINGS, needs_helm
from tests.documents import (
    DOCUMENTS,
    FENCED,
    INLINE,
    ROOT,
    blocks,
    check_allot,
    commands,
    read,
    section,
)
from tests.plain_english import ODD

from allotment_cli.main import main

EDITED = [each for each in DOCUMENTS if not each.startswith(("ARCHITECTURE", "tests/"))]
LINES_MOST = {"README.md": 150, "CHANGELOG.md": 120}
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("document", LINES_MOST)
def test_short_documents_stay_short(document: str) -> None:
    assert len(read(document).splitlines()) <= LINES_MOST[document]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_documents_can_be_typed(document: str) -> None:
    for words in commands(read(document), "allot"):
        check_allot(words)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(read(document), "make"):
        assert words[0] in targets or "=" in words[0], words


def test_commands_are_found() -> None:
    text = "`allot get\npods -A`\n\n    allot doctor | cat\n\n```sh\nallot log  # why\n```\n"
    assert list(commands(text, "allot")) == [["log"], ["doctor"], ["get", "pods", "-A"]]
    assert sum(len(list(commands(read(each), "allot"))) for each in DOCUMENTS) > 100


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for path, anchor in LINK.findall(FENCED.sub("", read(document))):
        to = (ROOT / document).parent / path if path else ROOT / document
        assert to.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", to.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}, (path, anchor)


@pytest.mark.parametrize("document", EDITED)
def test_documents_are_in_plain_words(document: str) -> None:
    """Screens and code may have them: what they print is looked at elsewhere."""
    prose = INLINE.sub("", FENCED.sub("", read(document)))
    assert ODD.findall(prose) == []


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_in_commands_are_there(document: str) -> None:
    for program in ("allot", "kubectl", "docker", "cp", "sed"):
        for words in commands(read(document), program):
            named = [word for word in words if word.startswith("deploy/") and "*" not in word]
            if not {"exec", "port-forward", "logs"} & set(words):  # there it is a Deployment
                assert all((ROOT / word).exists() for word in named), words


@needs_helm
def test_the_install_commands_of_the_readme_deploy_the_image_that_they_push(tmp_path: Path) -> None:
    """As they are written, but for a registry and a cluster."""
    (script,) = blocks(section("README.md", "Install"))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {
        "docker": 'echo "docker $*" >> calls',
        "helm": f'[ $1 = install ] && shift && exec {HELM} template "$@" > installed',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(stat.S_IRWXU)
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0
    built, pushed = (tmp_path / "calls").read_text().splitlines()
    image = pushed.removeprefix("docker push ")
    assert f" -t {image} " in built
    installed = list(yaml.safe_load_all((tmp_path / "installed").read_text()))
    specs = [
        one["spec"]["template"]["spec"] for one in installed if one["kind"] in ("Deployment", "Job")
    ]
    assert len(specs) == len(SETTINGS) + 1
    assert {spec["containers"][0]["image"] for spec in specs} == {image}
    assert {one["metadata"].get("namespace") for one in installed} == {None, "allotment-system"}


@pytest.mark.slow
def test_the_table_of_policies_has_what_the_command_prints() -> None:
    """One row, and of that one the policy that fills most."""
    rows = [line.strip("| ").split(" | ") for line in read("docs/policies.md").splitlines()]
    header = next(row for row in rows if row[0] == "workload")
    row = next(row for row in rows if row[:2] == ["`mixed-notebooks`", "come and go"])
    said = row[header.index("`fill-ahead`")].strip("*")
    file = str(ROOT / "deploy/examples/simulate/mixed-notebooks.yaml")
    arguments = ["--workload", file, "--churn", "--repeat", "3", "--policy", "fill-ahead", "--json"]
    result = CliRunner().invoke(main, ["simulate", *arguments])
    runs = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(runs) == 3
    assert f"{sum(run['allocation_percent'] for run in runs) / 3:.2f}" == said
