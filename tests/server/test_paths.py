"""Paths that come from a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_mcp import InvalidParams
from trio_mcp.server import safe_join


def test_what_is_below_the_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    base = tmp_path.resolve()
    assert safe_join(tmp_path, "a/b.txt") == base / "a" / "b.txt"
    assert safe_join(str(tmp_path), "a/../c") == base / "c"
    assert safe_join(tmp_path, ".") == base
    (tmp_path / "inside").symlink_to(tmp_path / "a")
    assert safe_join(tmp_path, "inside/b") == base / "a" / "b"


@pytest.mark.parametrize("value", ["", "..", "../x", "a/../../x", "/etc/passwd", "a\0b", "out/x", "out", "loop/x"])
def test_what_leads_out_is_refused(tmp_path: Path, value: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "out").symlink_to(tmp_path / "rooted")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(InvalidParams, match="Invalid params"):
        safe_join(root, value)


def test_an_absolute_path_is_refused_even_below_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match="leads out of the folder"):
        safe_join(tmp_path, str(tmp_path / "a"))
