# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/abi: the built libraries have the kept interface, and each kind of change is seen."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "abi"
GONE = (
    "<elf-symbol name='kfree_gone' version='KMEM_0' is-default-version='yes' type='func-type'"
    " binding='global-binding' visibility='default-visibility' is-defined='yes'/>\n    "
)


@pytest.fixture(scope="module", autouse=True)
def abigail() -> None:
    script = ROOT / "scripts" / "debian-packages"
    done = subprocess.run(
        [script, "abigail-tools", "binutils"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no libabigail: {' '.join(done.stderr.split())[-200:]}")


def abi(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "scripts" / "abi", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_interface_is_the_kept_one() -> None:
    """`scripts/abi write` keeps a change that docs/stability.md allows."""
    done = abi("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "status", "words"),
    [
        ("libkmem.abi", r"(?=<elf-symbol name='kfree' )", GONE, 3, "kfree_gone@@KMEM_0"),
        ("libkmem.abi", r" *<elf-symbol name='kfree_bulk'.*\n", "", 1, "void kfree_bulk(size_t"),
        (
            "libkmem.abi",
            r"(?<=layout-offset-in-bits=')320(?='>\s*<var-decl name='unowned')",
            "328",
            1,
            "'size_t unowned' offset changed",
        ),
        ("libkmem-malloc.txt", r"^malloc_trim\n", "", 1, "\tmalloc_trim"),
        ("libkmem-malloc.txt", r"^malloc\n", "malloc\nmalloc_gone\n", 3, "\nmalloc_gone"),
    ],
)
def test_a_change_is_seen(
    tmp_path: Path, file: str, pattern: str, replacement: str, status: int, words: str
) -> None:
    """The kept file is changed, as if the libraries had changed the other way round."""
    shutil.copytree(KEPT, tmp_path, dirs_exist_ok=True)
    text, times = re.subn(
        pattern, replacement, (tmp_path / file).read_text(), count=1, flags=re.MULTILINE
    )
    assert times == 1
    (tmp_path / file).write_text(text)
    done = abi("check", tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stdout


def test_what_is_written_is_what_is_kept(tmp_path: Path) -> None:
    assert abi("write", tmp_path).returncode == 0
    assert abi("check", tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "libkmem-malloc.txt",
        "libkmem.abi",
    ]


def test_a_wrong_command_line_is_refused() -> None:
    done = abi("compare")
    assert (done.returncode, done.stderr) == (2, "abi: compare: expected write or check\n")
