# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Inlined sequences in programs and libraries, by each compiler and in each way to build.

The programs check themselves (inlined.c, typed.cpp); the instructions of a hit are counted in
the disassembly of hits.c.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INCLUDE = ROOT / "include"
LIBRARIES = ROOT / "build" / "src"
SYMBOL = "kmem_inline_layout_1"

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
WARNINGS += ("-Wno-unused-parameter",)
WAYS = {
    "O0": ("-O0", "-g"),
    "O2": ("-O2",),
    "O3-lto": ("-O3", "-flto"),
    "Os": ("-Os",),
    "no-pie": ("-O2", "-fno-pie", "-no-pie"),
    "pic": ("-O2", "-fPIC"),
    "sections": ("-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"),
    "cet": ("-O2", "-fcf-protection=full", "-fstack-protector-all", "-D_FORTIFY_SOURCE=2"),
    "undefined": ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
    "calls": ("-O2", "-DKMEM_INLINE_CALLS"),
}
QUICK_WAYS = ("O0", "O2", "O3-lto")
OPTIONS = ("", "slots=locked", "check=sheaf", "engine=slab", "engine=slob", "sheaf_capacity=0")
ON_X86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="nothing is inlined but on x86-64"
)


def compiler_for(family: str, source: str) -> str:
    cxx = source.endswith(".cpp")
    name = {"gcc": "g++" if cxx else "gcc", "clang": "clang++" if cxx else "clang"}[family]
    if shutil.which(name) is None:
        pytest.skip(f"{name} is missing (Debian package {'g++' if name == 'g++' else family})")
    return name


def compile_source(
    family: str, source: str, out: Path, flags: Sequence[str], *, static: bool = False
) -> Path:
    """Compiles and links with libkmem; fails with the compiler's words."""
    if not (LIBRARIES / "libkmem.so").exists():
        pytest.fail("libkmem.so is missing: run `make build` first", pytrace=False)
    name = compiler_for(family, source)
    standard = ["-std=gnu11"]
    if source.endswith(".cpp"):
        standard = ["-std=c++17", "-Wold-style-cast"]
    libraries: list[str | Path] = ["-L", LIBRARIES, "-lkmem", f"-Wl,-rpath,{LIBRARIES}"]
    if static:
        libraries = ["-static", LIBRARIES / "libkmem.a"]
    command: list[str | Path] = [
        name,
        *standard,
        *WARNINGS,
        "-I",
        INCLUDE,
        "-pthread",
        *flags,
        HERE / source,
    ]
    done = subprocess.run(
        [*command, "-o", out, *libraries], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, f"{name} {flags}:\n{done.stderr}"
    return out


def run(
    program: Path, *arguments: str | Path, options: str = ""
) -> subprocess.CompletedProcess[str]:
    # An option, and be it empty, starts the heap with the library and not with the first cache.
    environment = {name: value for name, value in os.environ.items() if name != "KMEM_OPTIONS"}
    return subprocess.run(
        [program, *arguments],
        env=environment | ({"KMEM_OPTIONS": options} if options else {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def check_program(program: Path, options: str, *, calls: bool = False) -> None:
    done = run(program, options=options)
    called = calls or platform.machine() != "x86_64"
    expected = "ok, called\n" if called else "ok, inlined\n"
    assert (done.returncode, done.stdout) == (0, expected), f"{options}: {done.stderr}"
    # C++ says by an exception that there is no memory.
    assert "out of memory" not in done.stderr


def matrix() -> list[object]:
    """gcc in the three main ways is quick; the rest is in the full suite."""
    return [
        pytest.param(
            family,
            way,
            id=f"{family}-{way}",
            marks=() if family == "gcc" and way in QUICK_WAYS else pytest.mark.full,
        )
        for family in ("gcc", "clang")
        for way in WAYS
    ]


@pytest.mark.parametrize(("family", "way"), matrix())
@pytest.mark.parametrize("source", ["inlined.c", "typed.cpp", "first_use.c", "first_use.cpp"])
def test_program(family: str, way: str, source: str, tmp_path: Path) -> None:
    program = compile_source(family, source, tmp_path / "program", WAYS[way])
    for options in OPTIONS if way == "O2" else ("",):
        check_program(program, options, calls=way == "calls")


@pytest.mark.parametrize("source", ["inlined.c", "typed.cpp"])
def test_static_program(source: str, tmp_path: Path) -> None:
    program = compile_source("gcc", source, tmp_path / "program", ("-O2",), static=True)
    check_program(program, "")


@pytest.mark.parametrize("drop_in", [False, True])
def test_under_drop_in(drop_in: bool, tmp_path: Path) -> None:
    """Linked with libkmem.so, run under the other library, which then owns the heap."""
    program = compile_source("gcc", "typed.cpp", tmp_path / "program", ("-O2",))
    if drop_in:
        program_under = tmp_path / "under"
        program_under.write_text(
            f'#!/bin/sh\nLD_PRELOAD={LIBRARIES}/libkmem-malloc.so exec {program} "$@"\n'
        )
        program_under.chmod(0o755)
        program = program_under
    check_program(program, "")


@pytest.mark.parametrize(
    ("misuse", "code", "message"),
    [
        ("double", -6, "free already (double free)"),
        ("stranger", -6, "not the start of a block of this heap"),
        ("left", 0, "Slab cache still has objects: 1 in 1 slabs, leaked"),
    ],
)
def test_misuse(misuse: str, code: int, message: str, tmp_path: Path) -> None:
    done = run(compile_source("gcc", "inlined.c", tmp_path / "program", ("-O2",)), misuse)
    assert done.returncode == code
    assert message in done.stderr


def test_typed_cache_reports_leftovers(tmp_path: Path) -> None:
    done = run(compile_source("gcc", "typed.cpp", tmp_path / "program", ("-O1",)), "left")
    assert done.returncode == 0
    assert "left behind: Slab cache still has objects: 1 in 1 slabs, leaked" in done.stderr


@pytest.mark.parametrize("qualifier", ["const", "volatile"])
def test_cache_of_qualified_objects(qualifier: str, tmp_path: Path) -> None:
    """Refused in words; the other messages would speak of a conversion to void *."""
    (tmp_path / "main.cpp").write_text(
        "#include <kmem.hpp>\n"
        f'int main() {{ kmem::object_cache<{qualifier} int> c("c"); c.destroy(c.create(1)); }}\n'
    )
    command: list[str | Path] = [compiler_for("gcc", "main.cpp"), "-std=c++17", "-I", INCLUDE]
    command += ["-fsyntax-only", tmp_path / "main.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "objects that are neither const nor volatile" in done.stderr


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_older_standard(family: str, tmp_path: Path) -> None:
    """The first error names the standard; those behind it are about parts that it lacks."""
    (tmp_path / "main.cpp").write_text("#include <kmem.hpp>\nint main() {}\n")
    command: list[str | Path] = [compiler_for(family, "main.cpp"), "-std=c++14", "-I", INCLUDE]
    command += ["-fsyntax-only", tmp_path / "main.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "compile with -std=c++17" in errors[0]


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_hidden_libraries_share_caches(family: str, tmp_path: Path) -> None:
    """A list that one library fills and the other clears."""
    hidden = ("-O2", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
    libraries: list[str] = []
    for part in ("FILLS", "CLEARS"):
        out = tmp_path / f"lib{part}.so"
        libraries.append(str(out))
        compile_source(family, "hidden.cpp", out, (*hidden, "-fPIC", "-shared", f"-D{part}"))
    # The program's own text comes first on the command line, and needs no library before it.
    flags = (*hidden, "-Wl,--no-as-needed", *libraries)
    done = run(compile_source(family, "hidden.cpp", tmp_path / "program", flags))
    assert (done.returncode, done.stdout, done.stderr) == (0, "shared\n", "")


@pytest.mark.parametrize("family", ["gcc", "clang"])
@pytest.mark.parametrize("library_calls", [False, True])
def test_program_and_library_of_two_kinds(family: str, library_calls: bool, tmp_path: Path) -> None:
    """Of a function that both have, and that is not inlined, the program's is used by both."""
    calls = ("-DKMEM_INLINE_CALLS",)
    library = tmp_path / "libmixed.so"
    flags = ("-O0", "-fPIC", "-shared", "-DLIBRARY", *(calls if library_calls else ()))
    compile_source(family, "mixed.cpp", library, flags)
    flags = ("-O0", *(() if library_calls else calls), "-Wl,--no-as-needed", str(library))
    done = run(compile_source(family, "mixed.cpp", tmp_path / "program", flags))
    assert (done.returncode, done.stdout, done.stderr) == (0, "mixed\n", "")


@ON_X86_64
@pytest.mark.parametrize("family", ["gcc", "clang"])
@pytest.mark.parametrize("way", [("-O0", "-fPIC"), ("-O2", "-fPIC"), ("-O2", "-fPIE")])
def test_library_stays_loaded(family: str, way: tuple[str, str], tmp_path: Path) -> None:
    """A library that was closed: its descriptors are still there when the kernel looks."""
    plugin = compile_source(family, "plugin.c", tmp_path / "plugin.so", (*way, "-shared"))
    host = compile_source(family, "plugin_host.c", tmp_path / "host", way)
    done = run(host, plugin)
    assert (done.returncode, done.stdout, done.stderr) == (0, "kept\n", "")


@ON_X86_64
@pytest.mark.parametrize("way", [("-fPIE", "-pie"), ("-fPIC", "-no-pie"), ("-fno-pie", "-no-pie")])
def test_program_is_known_without_search(way: tuple[str, str], tmp_path: Path) -> None:
    """What the program itself asks does not search its symbols; a dladdr1 of its own would say."""
    (tmp_path / "main.c").write_text(
        "#include <kmem-inline.h>\n"
        "#include <stdio.h>\n"
        "static char data, zeroed[100000];\n"
        'int dladdr1(void) { return puts("searched"), 0; }\n'
        "int main(void)\n"
        "{\n"
        "        kmem_inline_keep_loaded(&data);\n"
        "        kmem_inline_keep_loaded(zeroed + sizeof(zeroed) - 1);\n"
        "        kmem_inline_keep_loaded((void *)main);\n"
        '        puts("of the library:");\n'
        "        fflush(stdout);\n"
        "        kmem_inline_keep_loaded((void *)stdout);\n"
        "        return 0;\n"
        "}\n"
    )
    command: list[str | Path] = ["gcc", *way, "-I", INCLUDE, tmp_path / "main.c"]
    command += ["-o", tmp_path / "main", "-L", LIBRARIES, "-lkmem", f"-Wl,-rpath,{LIBRARIES}"]
    subprocess.run(command, check=True)
    done = run(tmp_path / "main")
    assert (done.stdout, done.stderr) == ("of the library:\nsearched\n", "")


def renamed_headers(folder: Path) -> Path:
    """The headers of a library of another layout."""
    for header in INCLUDE.glob("kmem*"):
        text = header.read_text().replace(SYMBOL, "kmem_inline_layout_999")
        (folder / header.name).write_text(text)
    return folder


@ON_X86_64
def test_other_layout_does_not_link(tmp_path: Path) -> None:
    command: list[str | Path] = ["gcc", "-I", renamed_headers(tmp_path), HERE / "inlined.c"]
    command += ["-o", tmp_path / "program", "-L", LIBRARIES, "-lkmem"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "undefined reference to `kmem_inline_layout_999'" in done.stderr


@ON_X86_64
def test_other_layout_does_not_start(tmp_path: Path) -> None:
    """Linked when the library had the other layout, which a stub with its name stands for."""
    (tmp_path / "stub.c").write_text(
        "char kmem_inline_layout_999[64];\n"
        "void kmem_cache_alloc(void) {}\n"
        "void kmem_inline_keep_loaded(void) {}\n"
    )
    (tmp_path / "main.c").write_text(
        "#include <kmem-inline.h>\n"
        "int main(void) { return kmem_cache_alloc_inline(NULL, 0) != NULL; }\n"
    )
    stub = tmp_path / "libkmem.so"
    subprocess.run(
        ["gcc", "-shared", "-Wl,-soname,libkmem.so.0", tmp_path / "stub.c", "-o", stub], check=True
    )
    command: list[str | Path] = ["gcc", "-I", renamed_headers(tmp_path), tmp_path / "main.c"]
    command += ["-o", tmp_path / "program", stub, f"-Wl,-rpath,{LIBRARIES}"]
    subprocess.run(command, check=True)
    started = run(tmp_path / "program")
    assert started.returncode == 127
    assert "undefined symbol: kmem_inline_layout_999" in started.stderr


@ON_X86_64
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_calls_only_on_request(family: str, tmp_path: Path) -> None:
    """Without inlining an object file knows nothing of the layout."""
    for flag, known in ((), True), (("-DKMEM_INLINE_CALLS",), False):
        name = compiler_for(family, "hits.c")
        out = tmp_path / "hits.o"
        subprocess.run(
            [name, "-O2", *flag, "-I", INCLUDE, "-c", HERE / "hits.c", "-o", out], check=True
        )
        assert (SYMBOL.encode() in out.read_bytes()) == known


# Instructions from a function's start to its return when there is an object and room, but for those
# that save registers: the sequence, the loads of what it needs, and nothing else.
HITS = {"hit_alloc": 20, "hit_free": 26, "hit_pair": 42}
SAVES = re.compile(r"push|pop|(add|sub)\s+\$\w+,%rsp|nop|cs nop|data16|xchg\s+%ax,%ax|endbr")


def path_of_hit(listing: str, function: str) -> list[str]:
    """The instructions of a function up to its first return, jumps followed, branches not."""
    code = dict(re.findall(r"^\s*([0-9a-f]+):\t(.+?)\s*(?:#.*)?$", listing, re.MULTILINE))
    addresses = list(code)
    start = re.search(rf"^0*([0-9a-f]+) <{function}>:$", listing, re.MULTILINE)
    assert start
    at = addresses.index(start.group(1))
    path: list[str] = []
    while len(path) < 200:
        text = code[addresses[at]]
        jump = re.match(r"jmp\s+([0-9a-f]+)", text)
        if not SAVES.match(text):
            path.append(text)
        if text.startswith(("ret", "repz ret")):
            return path
        at = addresses.index(jump.group(1)) if jump else at + 1
    raise AssertionError(f"no return within 200 instructions of {function}")


@ON_X86_64
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_instructions_of_a_hit(family: str, tmp_path: Path) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is missing (Debian package binutils)")
    flags = ("-O2", "-fPIC", "-shared", "-fomit-frame-pointer")
    library = compile_source(family, "hits.c", tmp_path / "hits.so", flags)
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-w", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for function, limit in HITS.items():
        path = path_of_hit(listing, function)
        shown = f"{function}, {len(path)} instructions:\n" + "\n".join(path)
        assert len(path) <= limit, shown
        for text in path:
            assert not re.match(r"(call|lock|syscall|mfence|xchg.*\()", text), shown
