# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The Debian packages: built, looked at by lintian, and installed in small trees of releases."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import ROOT, need_packages, run

sys.path.insert(0, str(ROOT / "scripts"))
from releases import mirror, run_in

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

# perl is in the smallest tree. Its table shows that malloc is the library's.
SCRIPT = """set -e
cd /root/packages
dpkg -i libkmem0_*.deb
library=$(dpkg -L libkmem0 | grep /libkmem-malloc.so.0$)
export KMEM_OPTIONS=slabinfo=/root/table
LD_PRELOAD=$library perl -e 'print join(",", map { $_ x 9 } 1 .. 999)' >/dev/null
grep -q kmalloc-64 /root/table
dpkg --purge libkmem0
test ! -e "$library"
"""


@pytest.fixture(scope="module")
def packages() -> list[Path]:
    run([ROOT / "scripts" / "deb"], ROOT)
    return sorted((ROOT / "build-deb").glob("*.deb"))


def names(packages: list[Path], name: str) -> set[str]:
    (package,) = (path for path in packages if path.name.startswith(name + "_"))
    listed = run(["dpkg-deb", "--contents", package], ROOT).splitlines()
    return {line.split()[5] for line in listed if line[0] != "d"}


def test_content(packages: list[Path]) -> None:
    files = {Path(name).name for name in names(packages, "libkmem0")}
    assert {"libkmem.so.0", "libkmem-malloc.so.0"} <= files
    files = {Path(name).name for name in names(packages, "libkmem-dev")}
    assert {"kmem.h", "kmem.pc", "libkmem.a", "libkmem.so", "slab.h"} <= files


@pytest.fixture
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A release's smallest tree; what debootstrap fetched stays in the cache."""
    if os.geteuid() != 0:
        pytest.skip("making a tree of a release and entering it needs root")
    need_packages("debootstrap")
    cache = Path.home() / ".cache" / "kmem" / "debootstrap" / request.param
    cache.mkdir(parents=True, exist_ok=True)
    tree = tmp_path / request.param
    run(
        ["debootstrap", "--variant=minbase", f"--cache-dir={cache}", request.param, tree, mirror()],
        tmp_path,
    )
    yield tree
    shutil.rmtree(tree)


@pytest.mark.parametrize("tree", ["bookworm", "trixie", "sid"], indirect=True)
def test_install(packages: list[Path], tree: Path, tmp_path: Path) -> None:
    place = tree / "root" / "packages"
    place.mkdir()
    for package in packages:
        shutil.copy(package, place)
    log = tmp_path / "log"
    assert run_in(tree, SCRIPT, log) == 0, log.read_text()[-4000:]
