# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The allocators that libkmem is compared with, and their versions.

They are the C library's malloc, Debian's packages, and newer releases built from crates
(crates.py).
"""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from kmem.bench.allocators import GLIBC, PEERS, Allocator
from kmem.bench.crates import CRATES, Crate, check_library, provide
from kmem.common.errors import KmemError
from kmem.common.tree import need_packages


@dataclass(frozen=True)
class Peer:
    """An allocator that can run."""

    allocator: Allocator
    version: str


def names(more: Sequence[Crate] = ()) -> list[str]:
    """All peers; `more`: crates that few measurements compare with."""
    return [GLIBC.name, *(peer.name for peer in PEERS), *(crate.name for crate in [*CRATES, *more])]


def debian_version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{package} {done.stdout.strip() or 'of unknown version'}"


def find_debian(chosen: Sequence[str], progress: Console) -> tuple[list[Peer], dict[str, str]]:
    found: list[Peer] = []
    missing: dict[str, str] = {}
    debian = [peer for peer in PEERS if peer.name in chosen]
    if packages := [peer.package for peer in debian if peer.missing and peer.package]:
        try:
            need_packages(*packages)
        except KmemError:
            progress.print("going on without them")
    for peer in debian:
        if peer.missing or peer.library is None:
            missing[peer.name] = f"no {peer.library}; Debian package {peer.package}"
            continue
        try:
            check_library(peer.library)
        except KmemError as error:
            missing[peer.name] = str(error)
            continue
        found.append(Peer(peer, debian_version(peer.package or "")))
    return found, missing


def find_crates(
    chosen: Sequence[str], crates: Sequence[Crate], progress: Console
) -> tuple[list[Peer], dict[str, str]]:
    found: list[Peer] = []
    missing: dict[str, str] = {}
    with progress.status("looking for peers") as status:
        # Rich shows no status without a terminal.
        tell = status.update if progress.is_terminal else progress.print
        for crate in crates:
            if crate.name not in chosen:
                continue
            try:
                found.append(Peer(*provide(crate, tell)))
            except KmemError as error:
                missing[crate.name] = str(error)
    return found, missing


def find(
    chosen: Sequence[str], progress: Console, more: Sequence[Crate] = ()
) -> tuple[list[Peer], dict[str, str]]:
    """The chosen peers, installed or built if necessary, and a reason for each missing peer."""
    glibc = [Peer(GLIBC, platform.libc_ver()[1])] if GLIBC.name in chosen else []
    debian, not_in_debian = find_debian(chosen, progress)
    crates, not_built = find_crates(chosen, [*CRATES, *more], progress)
    return glibc + debian + crates, not_in_debian | not_built
