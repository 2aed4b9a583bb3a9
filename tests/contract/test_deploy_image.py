"""The Dockerfile and what the build sees, as far as that can be known without building it."""

import json
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from tests.contract.manifests import ROOT

DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
BUILD_LOCK = ROOT / "deploy/requirements-build.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTRUCTIONS = [
    (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
    for line in re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    if line and not line.startswith("#")
]
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in INSTRUCTIONS if instruction == name]


def pins(path: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / path).read_text()))


def test_nothing_is_pulled_to_read_the_file() -> None:
    assert not re.search(r"^#\s*syntax\s*=", DOCKERFILE, re.MULTILINE | re.IGNORECASE)


def test_it_runs_without_root_and_without_a_shell() -> None:
    assert arguments("USER")[-1] == "65532:65532"
    last_from = max(i for i, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM")
    assert "USER" in [name for name, _ in INSTRUCTIONS[last_from:]]
    assert arguments("ENTRYPOINT") == ['["python", "-m"]']
    for command in arguments("RUN") + arguments("CMD"):
        assert isinstance(json.loads(command), list), f"not in exec form: {command}"


def test_what_is_installed_is_pinned_by_hash() -> None:
    installs = [json.loads(run) for run in arguments("RUN") if '"pip"' in run]
    fetched = {run[-1] for run in installs if "--require-hashes" in run}
    assert fetched == {"requirements.lock", "requirements-build.lock"}
    for run in installs:
        assert "--require-hashes" in run or "--no-index" in run
    for lock in (ROOT / "requirements.lock", BUILD_LOCK):
        for requirement in re.split(r"\n(?=\S)", lock.read_text()):
            if PIN.match(requirement):
                assert "--hash=sha256:" in requirement


def test_the_build_tools_are_those_that_the_project_names() -> None:
    locked = pins("deploy/requirements-build.lock")
    assert set(PROJECT["build-system"]["requires"]) <= locked.keys()
    development = pins("requirements-dev.lock")
    common = locked.keys() & development.keys()
    assert {name: locked[name] for name in common} == {n: development[n] for n in common}


def test_what_is_copied_exists_and_the_build_may_see_it() -> None:
    allowed = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    sources = [
        source
        for copy in arguments("COPY")
        if not copy.startswith("--from")
        for source in copy.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        seen = [source, *map(str, PurePosixPath(source).parents)]
        assert any(fnmatch(name, pattern) for name in seen for pattern in allowed), source
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {package.partition("/")[0] for package in wheel["packages"]} <= set(sources)
    assert wheel["force-include"].keys() <= set(sources)


def test_every_package_is_in_the_wheel() -> None:
    """One that is forgotten works from a checkout and is missing where the product is installed."""
    build = PROJECT["tool"]["hatch"]["build"]
    found = {
        str(door.parent.relative_to(ROOT))
        for folder in build["dev-mode-dirs"]
        for door in (ROOT / folder).glob("*/__init__.py")
    }
    assert set(build["targets"]["wheel"]["packages"]) == found
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == {
        PurePosixPath(package).name for package in found
    }


def test_its_labels_say_what_it_is() -> None:
    (labels,) = arguments("LABEL")
    label = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    assert label["description"] == PROJECT["project"]["description"]
    assert label["licenses"] == PROJECT["project"]["license"]
    assert label["version"] == "${VERSION}"
    assert f"VERSION={PROJECT['project']['version']}" in arguments("ARG")
    kustomization = (ROOT / "deploy/base/kustomization.yaml").read_text()
    assert f"newTag: {PROJECT['project']['version']}" in kustomization


def test_the_suite_prefers_the_python_that_ships(tmp_path: Path) -> None:
    """`make` takes the image's minor version where the machine has it, else python3."""
    (image,) = [a for a in arguments("ARG") if a.startswith("PYTHON_IMAGE=")]
    shipped = re.fullmatch(r"PYTHON_IMAGE=python:(3\.\d+)-slim", image)
    assert shipped is not None, image
    classifiers = PROJECT["project"]["classifiers"]
    assert f"Programming Language :: Python :: {shipped[1]}" in classifiers

    def chosen() -> str:
        made = subprocess.run(
            ["make", "--dry-run", "--always-make", "install"],
            cwd=ROOT,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = [line for line in made.stdout.splitlines() if line.endswith("-m venv .venv")]
        return line.split()[0]

    own = tmp_path / f"python{shipped[1]}"
    own.write_text("#!/bin/sh\nexit 127\n")  # as pyenv's shims do for versions not chosen
    own.chmod(0o755)
    assert chosen() == "python3"
    own.write_text(f"#!/bin/sh\necho {own}\n")
    assert chosen() == str(own)
