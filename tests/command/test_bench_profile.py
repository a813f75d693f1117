# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench profile`: a run of it on a program whose objects are on malloc, bad arguments."""

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

from kmem.bench.profile_cost import running
from kmem.live.registry.caches import read_caches

pytestmark = pytest.mark.alone

profile = partial(kmem, "bench", "profile")


def test_the_programs_objects_are_on_malloc() -> None:
    """Integers and strings come from the smallest classes, many a second."""
    with running(min(os.sched_getaffinity(0))) as program:
        count = program.count

        def taken() -> int:
            return sum(cache.taken for cache in read_caches(program.registry))

        before, pieces = taken(), int(count[0])
        time.sleep(1)
        assert int(count[0]) > pieces
        # Far more than its few large strings are.
        assert taken() - before > 1000


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    done = profile("--rounds", "11", "--window", "0.1", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["rounds"] == 11
    for interval in (2 << 20, 512 << 10, 128 << 10):
        figures = document[str(interval)]
        assert 0 < figures["low"] <= figures["median"] <= figures["high"]
    # Samples are as many as the interval allows, but for chance.
    fine, coarse = document[str(128 << 10)]["samples"], document[str(2 << 20)]["samples"]
    assert fine > 4 * coarse > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--rounds", "10"), "--rounds '10': expected at least 11"),
        (("--window", "11"), "--window 11: expected 0.1 to 10 seconds"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], named: str) -> None:
    done = profile(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
