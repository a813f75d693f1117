# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs of many kinds (inputs/kinds.toml) print what they print without, at every level."""

import shutil
import tomllib
from typing import Any

import pytest
from dropin import INPUTS, ROOT, SLAB, SLOB, DropIn, Plain, Setting, check_silent, check_status
from needs import require_packages

KINDS = tomllib.loads((INPUTS / "kinds.toml").read_text())["kind"]
ALL_PACKAGES = sorted({package for kind in KINDS for package in kind["packages"]})
HARDENED = Setting("hardened", options="protect=hardened")
LEVELS = [
    Setting("default"),
    Setting("checked", options="check=sheaf"),
    HARDENED,
    Setting("debug", options="debug=FZPU"),
    Setting("guards", options="guard_sampling=50"),
    SLAB,
    SLOB,
]
ENVIRONMENT = {"ROOT": str(ROOT), "PYTHONMALLOC": "malloc"}


def cases() -> list[Any]:
    """Each kind at each level; quick are the programs that other tests install, hardened."""
    return [
        pytest.param(
            level,
            kind,
            id=f"{kind['name']}-{level.name}",
            marks=() if kind.get("quick") and level is HARDENED else (pytest.mark.full,),
        )
        for kind in KINDS
        for level in LEVELS
    ]


@pytest.mark.parametrize(("dropin", "kind"), cases(), indirect=["dropin"])
def test_prints_what_it_prints_without(dropin: DropIn, plain: Plain, kind: dict[str, Any]) -> None:
    # In the whole run the packages of all kinds come at once.
    require_packages(*(kind["packages"] if kind.get("quick") else ALL_PACKAGES))
    argv = ["/bin/sh", "-eu", "-c", kind["script"]]
    expected = Plain(plain.folder / "plain")
    ours = DropIn(dropin.setting, plain.folder / "ours")
    for folder in (expected.folder, ours.folder):
        folder.mkdir()
    wanted = expected.run(argv, environment=ENVIRONMENT)
    assert wanted.stdout, "a script that prints nothing shows nothing"
    finished = ours.attempt(argv, environment=ENVIRONMENT)
    check_status(finished)
    check_silent(finished)
    assert finished.stdout == wanted.stdout
    shutil.rmtree(expected.folder)
    shutil.rmtree(ours.folder)
