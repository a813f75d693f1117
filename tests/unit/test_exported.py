# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names and versions that the libraries show to the dynamic linker."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "src"
VERSION = (ROOT / "VERSION").read_text().strip()
MAJOR = VERSION.partition(".")[0]
# The linker's own, which GNU ld shows where a library asks for it.
OF_THE_LINKER = {"etext"}


def exported(library: str) -> dict[str, str]:
    """The version of each symbol, empty for none."""
    command = ["nm", "-D", "--defined-only", BUILD / library]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = [line.split()[2] for line in listing.splitlines() if " A " not in line]
    pairs = (name.partition("@@") for name in names)
    return {name: version for name, _, version in pairs if name not in OF_THE_LINKER}


def test_the_interface_has_a_version_and_libc_s_names_have_none() -> None:
    interface = exported("libkmem.so")
    assert set(interface.values()) == {f"KMEM_{MAJOR}"}
    both = exported("libkmem-malloc.so")
    assert {name: both.get(name) for name in interface} == interface
    assert {both[name] for name in both.keys() - interface.keys()} == {""}
    assert {"malloc", "free", "_Znwm", "malloc_trim", "dlopen"} <= both.keys() - interface.keys()


@pytest.mark.parametrize("name", ["libkmem", "libkmem-malloc"])
def test_names_of_a_library(name: str) -> None:
    listing = subprocess.run(
        ["readelf", "-d", BUILD / f"{name}.so"], check=True, capture_output=True, text=True
    ).stdout
    assert re.findall(r"soname: \[(.*)\]", listing) == [f"{name}.so.{MAJOR}"]
    assert (BUILD / f"{name}.so").readlink() == Path(f"{name}.so.{MAJOR}")
    assert (BUILD / f"{name}.so").resolve() == BUILD / f"{name}.so.{VERSION}"


@pytest.mark.parametrize("name", ["libkmem", "libkmem-malloc"])
def test_a_build_runs_on_older_releases_of_glibc(name: str) -> None:
    """No version of glibc newer than 2.28 is asked for (machine/older_libc.c)."""
    command = ["readelf", "-W", "-V", str(BUILD / f"{name}.so")]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    asked = listing.partition("Version needs section")[2]
    versions = re.findall(r"Name: GLIBC_([\d.]+)", asked)
    if not versions:
        pytest.skip("this build's libc has no versions, as musl has none")
    assert max(tuple(map(int, version.split("."))) for version in versions) <= (2, 28)
    # What an older release does not have may be missing; the dynamic linker has its own function.
    command = ["nm", "-D", "--undefined-only", str(BUILD / f"{name}.so")]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    strong = {line.split()[1] for line in listing.splitlines() if line.split()[0] == "U"}
    assert {each for each in strong if "@" not in each} <= {"__tls_get_addr"}
