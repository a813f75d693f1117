# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Libraries of the sources that have restartable sequences, by another compiler or optimization.

A library here has those sources alone, compiled as Meson compiled them but for the compiler and its
optimization. All other names of the project are empty words, because sequences call nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from elftools.elf.elffile import ELFFile


@dataclass(frozen=True)
class Kind:
    compiler: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.compiler, *self.options))


KINDS = [
    Kind("gcc", ("-O3",)),
    Kind("gcc", ("-O2", "-flto")),
    Kind("clang", ("-O2",)),
    Kind("clang", ("-O3",)),
    Kind("clang", ("-O2", "-flto")),
]
# Objects of Meson's build that the drop-in library consists of.
PARTS = (
    "src/libkmem-core.a.p/",
    "src/libkmem-bound.a.p/",
    "src/libkmem-operators-bound.a.p/",
    "src/libkmem-malloc.so.0.1.0.p/",
)
SEQUENCES = "__rseq_cs"


class BuildError(Exception):
    """A library that cannot be built; the text is the compiler's."""


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}: {done.stderr}")
    return done.stdout


def names(objects: Iterable[Path]) -> dict[str, bool]:
    """Names that the objects define for others; whether each is of thread-local data."""
    found = {}
    for path in objects:
        with path.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            for one in table.iter_symbols():
                if one["st_shndx"] != "SHN_UNDEF" and one["st_info"]["bind"] != "STB_LOCAL":
                    found[one.name] = one["st_info"]["type"] == "STT_TLS"
    return found


def commands(build: Path) -> dict[str, list[str]]:
    """How Meson compiles each source that has sequences, by the object."""
    entries = {
        entry["output"]: shlex.split(entry["command"])
        for entry in json.loads((build / "compile_commands.json").read_text())
        if entry["output"].startswith(PARTS)
    }
    return {
        output: command
        for output, command in entries.items()
        if (build / output).exists() and SEQUENCES.encode() in (build / output).read_bytes()
    }


def changed(command: list[str], kind: Kind, target: Path) -> list[str]:
    """
    The command with the compiler and the optimization of the kind, and the object there. addr2line
    does not find inlined functions in clang's newer debug information.
    """
    kept: list[str] = []
    # The compiler may stand behind another word: Meson puts ccache in front of it.
    words = dropwhile(lambda word: not word.startswith("-"), command)
    for word in words:
        if word in ("-o", "-MF", "-MQ"):
            next(words)
        elif not word.startswith("-O") and word not in ("-MD", "-fno-semantic-interposition"):
            kept.append(word)
    return [kind.compiler, *kept, *kind.options, "-w", "-gdwarf-4", "-o", str(target)]


def words_for(build: Path, objects: Iterable[str]) -> str:
    """Assembly: a word for each name of other objects, and uses of all names of these ones."""
    own = names(build / one for one in objects)
    everything = names(path for part in PARTS for path in (build / part).glob("*.o"))
    lines = []
    for name in sorted(everything.keys() - own.keys()):
        lines += ['.section .tbss,"awT",@nobits' if everything[name] else ".bss"]
        lines += [f".globl {name}", f".hidden {name}", ".balign 64", f"{name}:", ".zero 64"]
    lines += [".data", *(f".quad {name}" for name in sorted(own) if not own[name])]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def build_library(build: Path, kind: Kind, folder: Path) -> Path:
    """Raises BuildError."""
    known = commands(build)
    if not known:
        raise BuildError(f"{build} has no objects with sequences")
    targets = {output: folder / output.replace("/", "_") for output in known}
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 2)) as pool:
        for _ in pool.map(
            lambda output: output_of(changed(known[output], kind, targets[output]), build), known
        ):
            pass
    stub = folder / "others.S"
    stub.write_text(words_for(build, known))
    library = folder / "sequences.so"
    link = [kind.compiler, *kind.options, "-g", "-shared", "-fPIC", "-o", str(library)]
    link += ["-Wl,-z,noseparate-code", str(stub), *map(str, targets.values())]
    output_of(link, build)
    return library


def is_missing(kind: Kind) -> bool:
    return shutil.which(kind.compiler) is None
