# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The allocators beside ours, with their versions: the C library's and Debian's packages."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from kmem.allocators import GLIBC, PEERS, Allocator
from kmem.setup import KmemError, need_packages


@dataclass(frozen=True)
class Peer:
    """An allocator that can run."""

    allocator: Allocator
    version: str


def names() -> list[str]:
    return [GLIBC.name, *(peer.name for peer in PEERS)]


def debian_version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{package} {done.stdout.strip() or 'of unknown version'}"


def find(chosen: Sequence[str], progress: Console) -> tuple[list[Peer], dict[str, str]]:
    """The chosen peers, installed if need be, and those that are missing with the reason."""
    found: list[Peer] = []
    missing: dict[str, str] = {}
    if GLIBC.name in chosen:
        found.append(Peer(GLIBC, f"{GLIBC.name} {platform.libc_ver()[1]}"))
    debian = [peer for peer in PEERS if peer.name in chosen]
    if packages := [peer.package for peer in debian if peer.missing and peer.package]:
        try:
            need_packages(*packages)
        except KmemError:
            progress.print("going on without them")
    for peer in debian:
        if peer.missing:
            missing[peer.name] = f"no {peer.library}; Debian package {peer.package}"
        else:
            found.append(Peer(peer, debian_version(peer.package or "")))
    return found, missing
