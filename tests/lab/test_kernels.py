# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab kernels`, and --kernel of the commands."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from kmem.lab.kernels import FIGURES, KERNELS, PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "python" / "kmem" / "traces" / "boot-6.1-4cpu.ktrace"


def kmem(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "kmem", *words], capture_output=True, text=True, check=False)


def test_all_kernels_of_the_option_are_run() -> None:
    text = (ROOT / "src" / "base" / "kernels.h").read_text()
    found = re.search(r'#define KERNEL_VERSIONS "none ([^"]*)"', text)
    assert found and tuple(found[1].split()) == KERNELS


def test_kernels_differ_where_their_policies_do(tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    versions = ("5.15", "5.17", "6.1", "6.12")
    done = kmem("lab", "kernels", "--quick", "--json", file, *(f"--kernel={v}" for v in versions))
    assert done.returncode == 0, done.stderr
    rows = {(r["program"], r["kernel"]): r for r in json.loads(file.read_text())["rows"]}
    assert len(rows) == len(PROGRAMS) * len(versions)
    for program in PROGRAMS:
        figures = {v: [rows[program.name, v][name] for name in FIGURES] for v in versions}
        assert figures["5.17"] == figures["6.1"]  # equal policies
    for name in ("hackbench -g 1", "rings, bulks of 16"):
        assert rows[name, "5.15"]["ns"] != rows[name, "6.1"]["ns"]
        assert rows[name, "6.1"]["list_hold_ns"] != rows[name, "6.12"]["list_hold_ns"]
    assert all(kernel in done.stdout for kernel in versions)


def test_an_unknown_kernel_is_named() -> None:
    done = kmem("lab", "kernels", "--kernel", "4.4")
    assert done.returncode == 2
    assert done.stderr.startswith("kmem: lab kernels: --kernel 4.4: expected one of 2.6.24, 5.14")


def test_replay_takes_a_kernel(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("option", "set")]
    assert kmem("replay", TRACE, "--kernel", "5.15", "--json", files[0]).returncode == 0
    assert kmem("replay", TRACE, "--set", "kernel=5.15", "--json", files[1]).returncode == 0
    assert files[0].read_text() == files[1].read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--kernel", "4.4"], "expected one of: none 2.6.24 5.14"),
        (["--kernel", "6.1", "--set", "kernel=6.8"], "--kernel 6.1 and --set kernel= exclude"),
    ],
)
def test_replay_names_a_wrong_kernel(words: list[str], line: str) -> None:
    done = kmem("replay", TRACE, *words)
    assert done.returncode != 0
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
