# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench guards`: a run of it on redis, bad arguments."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

pytestmark = pytest.mark.alone

guards = partial(kmem, "bench", "guards")


@pytest.mark.skipif(
    not Path("/usr/bin/redis-server").exists() or shutil.which("redis-benchmark") is None,
    reason="redis is missing (Debian package redis-server)",
)
def test_command(tmp_path: Path) -> None:
    file = tmp_path / "guards.json"
    done = guards("--rounds", "11", "--window", "0.2", "--rate", "100", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["rounds"] == 11
    figures = document["100"]
    assert 0 < figures["low"] <= figures["median"] <= figures["high"]
    assert document["guards"]["made"] > 0 and document["guards"]["faults"] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--rounds", "10"), "--rounds '10': expected at least 11"),
        (("--window", "11"), "--window 11: expected 0.1 to 10 seconds"),
        (("--rate", "0"), "--rate [0]: expected 1 or more"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], named: str) -> None:
    done = guards(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
