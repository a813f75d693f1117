# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the mail's own rows of hackbench allow a model to reach."""

import pytest

from kmem.lab.ceilings import ceilings
from kmem.lab.cpu_partial import bounds, correlations
from kmem.lab.cpu_partial_runs import MACHINES, is_held_back
from kmem.lab.mails import read_mail

CPUS = {slug: machine.cpus for slug, machine in MACHINES.items()}
ROWS = [
    {
        "machine": row["machine"],
        "kind": row["kind"],
        "groups": int(row["groups"]),
        "mail_percent": float(row["change_percent"]),
    }
    for row in read_mail("cpu_partial_hackbench")
]


def test_the_mails_rows_bound_a_model() -> None:
    found = ceilings(ROWS, CPUS)
    assert found["kinds"] == pytest.approx(0.670, abs=0.001)
    assert found["like_machines"] == pytest.approx(0.731, abs=0.001)
    assert found["cpus_alone"] == pytest.approx(0.526, abs=0.001)
    mean, low, high = found["resampled"]
    assert 0.7 < low < mean < high < 0.9
    # Processes win and threads lose, or the other way round.
    assert ["xeon5218r", 1] in found["other_signs"]
    assert len(found["other_signs"]) == 7
    assert found == ceilings(ROWS, CPUS)
    assert "0.67" in bounds(found)[0]


def test_rows_without_noise_have_no_ceiling() -> None:
    equal = [
        {**row, "kind": kind}
        for row in ROWS
        if row["kind"] == "process"
        for kind in ("process", "thread")
    ]
    found = ceilings(equal, CPUS)
    assert found["kinds"] == 1
    assert found["resampled"] == (1, 1, 1)
    assert found["other_signs"] == []


def test_rows_held_back_have_a_correlation_of_their_own() -> None:
    rows = [
        {
            **row,
            "held_back": is_held_back({"machine": row["machine"]}, index),
            "elapsed_percent": 0.0,
        }
        for index, row in enumerate(ROWS)
    ]
    # Right in the rows that were looked at, and the contrary in the others.
    for row in rows:
        row["allocator_percent"] = row["mail_percent"] * (-1 if row["held_back"] else 1)
    found = correlations(rows)["allocator_percent"]
    assert found["looked_at"] == pytest.approx(1)
    assert found["held_back"] == pytest.approx(-1)
    assert sum(row["held_back"] for row in rows) == 78
