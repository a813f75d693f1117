# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's newest emulator, run from the folder that its packages were unpacked into."""

from pathlib import Path

from emulated.debian import Release

NEWEST = "sid"


def emulator(cache: Path, command: str) -> list[str]:
    """The emulator by its own loader and libraries: a machine's own may be too old."""
    newest = Release(cache, NEWEST, "amd64")
    root = newest.unpack("emulator", ["qemu-system-x86", "qemu-system-arm"])
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    loader = root / "usr" / "lib64" / "ld-linux-x86-64.so.2"
    data = [
        argument for name in ("qemu", "seabios") for argument in ("-L", root / f"usr/share/{name}")
    ]
    found = [
        loader,
        "--library-path",
        f"{libraries}:{libraries}/pulseaudio",
        root / "usr/bin" / command,
        *data,
    ]
    return [*map(str, found)]
