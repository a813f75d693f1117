# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Memory at the moments of a load with two runs, reckoned by hand."""

from __future__ import annotations

import pytest

from kmem.lab.moments import as_columns, fit_share, mean_at


def point(run: int, forked: int, messages: int, ended: int, slab_kib: int) -> dict[str, int]:
    counts = {"forked": forked, "messages": messages, "ended": ended, "reaped": ended}
    return {"run": run, "ns": 0, **counts, "slab_kib": slab_kib, "live_kib": 0}


CURVE = as_columns(
    [
        point(0, 0, 0, 0, 100),
        point(0, 5, 0, 0, 200),
        point(0, 10, 0, 0, 300),
        point(0, 10, 50, 0, 500),
        point(0, 10, 100, 10, 200),
        point(1, 0, 0, 0, 200),
        point(1, 5, 0, 0, 300),
        point(1, 10, 0, 0, 400),
        point(1, 10, 50, 0, 600),
        point(1, 10, 100, 10, 240),
    ]
)


@pytest.mark.parametrize(
    ("moment", "kib"),
    [
        (("forked", 0.0), 150),
        (("forked", 0.25), 200),
        (("forked", 1.0), 350),
        (("messages", 0.25), 450),
        (("messages", 0.5), 550),
        (("ended", 1.0), 220),
    ],
)
def test_mean_of_the_runs(moment: tuple[str, float], kib: float) -> None:
    assert mean_at(CURVE, moment) == pytest.approx(kib)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.6, 0.9])
def test_the_share_that_has_a_memory_is_found(share: float) -> None:
    assert fit_share(CURVE, "forked", mean_at(CURVE, ("forked", share))) == pytest.approx(share)


@pytest.mark.parametrize("kib", [149, 351])
def test_a_memory_beyond_the_phase_has_no_share(kib: float) -> None:
    assert fit_share(CURVE, "forked", kib) is None
