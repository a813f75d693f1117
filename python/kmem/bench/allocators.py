# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The allocators that measurements compare: libraries to preload, and back ends of ours."""

import platform
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.common.tree import LIBRARY


class Engine(StrEnum):
    """The back ends that the mails' tables compare."""

    SLUB = "slub"
    SLAB = "slab"


@dataclass(frozen=True)
class Allocator:
    """An allocator, which is a column of a table."""

    name: str
    library: Path | None  # None: the C library's own malloc
    package: str | None = None  # Debian package of a peer
    hardened: bool = False  # pays for defences that the others lack, so it is never a row's best

    @property
    def missing(self) -> bool:
        return self.library is not None and not self.library.exists()


def preloadable(library: Path) -> str:
    """LIBRARY as a value of LD_PRELOAD.

    The dynamic linker splits the value at spaces and colons, so a path with one of them would be
    ignored.
    """
    if set(": ") & set(str(library)):
        raise KmemError(f"{library}: LD_PRELOAD cannot carry a path with a colon or a space")
    return str(library)


def library_folder() -> Path:
    """Where Debian keeps shared libraries of this architecture."""
    return Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "")


def scudo_library() -> Path:
    """Scudo, which comes with clang, from the newest LLVM that Debian 12 has."""
    folder = Path("/usr/lib/llvm-19/lib/clang/19/lib/linux")
    return folder / f"libclang_rt.scudo_standalone-{platform.machine()}.so"


LIBKMEM = Allocator("libkmem", LIBRARY)
GLIBC = Allocator("glibc", None)
PEERS = (
    Allocator("mimalloc", library_folder() / "libmimalloc.so.2", "libmimalloc2.0"),
    Allocator("jemalloc", library_folder() / "libjemalloc.so.2", "libjemalloc2"),
    Allocator("tcmalloc", library_folder() / "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    Allocator("scudo", scudo_library(), "libclang-rt-19-dev", hardened=True),
)
