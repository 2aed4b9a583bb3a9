"""Fixtures that several unit tests share."""

from pathlib import Path

import pytest

from tests.simulating import NODES, PODS


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Arguments of `allot simulate` for a small trace in two files."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
