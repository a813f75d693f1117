# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Around an allocation: little stack, libraries in front of libc, a limit of locked memory."""

import os
import platform
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import LIBRARIES, Finished, Plain, start, wait

Build = Callable[..., Path]

THREADS = ("-pthread",)
# Of all options but those with which calls walk the stack, and of those.
STACK_BYTES = 2048
WALKING_BYTES = 4096
# Each option that may be set, by a value that changes something.
SMALL_STACK = (
    *("", "slots=locked", "classes=kernel", "classes=fine", "slab_merge=1", "order_cpus=possible"),
    *("order_rule=5.10", "slub_min_order=2", "slub_max_order=0", "slub_min_objects=4"),
    *("engine=slab,slab_max_order=3", "engine=slab,noaliencache=1,numa_fake=4", "numa=off"),
    *("numa_fake=8", "node_limit=256M", "slot_cache_max=0", "reserve=256M", "purge_delay=0"),
    *("reclaim_thread=on,purge_delay=0", "reclaim_thread=off", "huge_cache_max=0"),
    *("thp=always", "thp=never", "soft_limit=auto", "soft_limit=1M"),
    *("memory_limit=4G", "bad_free=ignore", "check=sheaf", "protect=hardened", "bulk_null=refuse"),
    "engine=slob,slob_breaks=64:512",
    *("failslab=1000:1", "kernel=5.15", "kernel=7.2", "kernel=7.2,stats=1"),
    *("cpu_slabs=0", "cpu_slabs=0,sheaf_capacity=0", "sheaf_rule=7.0", "free_pointer=object"),
    *("barn_full=0", "barn_empty=0", "kernel=7.2,remote_frees=sheaf,numa_fake=2"),
    *("record=@record", "engine=slob,slob_compat=2.6.24", "registry=on", "registry=off"),
    *("slabinfo=@slabinfo,slabinfo_pid=1", "attrs=@attrs,attrs_pid=1", "debug_abort=1"),
    *("engine=slab", "engine=slob", "sheaf_capacity=0", "min_partial=0", "cpu_partial=0"),
    *("cpu_partial_accounting=objects", "cpu_partial_defaults=seed", "freeze=eager", "stats=1"),
    *("engine=slab,limit=8", "engine=slab,limit=8,batchcount=4", "engine=slab,shared=0"),
    *("debug=F", "debug=FZP", "debug=FZPAO", "nonsense=1,engine=none"),
)
WALKING = (
    "debug=U",
    "debug=FZPU",
    "profile_interval=1024",
    "guard_sampling=3",
    "profile_interval=1024,profile_slices=20",
)
# Functions in front of which nobody may allocate, and why.
NOT_HOOKED = {
    r"mem\w+|st[rp]\w+": "work on memory that they are given; the allocator needs them everywhere",
    r"__errno_location": "says where errno is, which every slow path keeps",
    r"__tls_get_addr|__cxa_finalize": "the compiler's, for the dynamic linker and the start files",
    r"_?_?environ|__libc_single_threaded|__libc_stack_end|__rseq_\w+": "variables",
}


def with_files(options: str, folder: Path) -> str:
    return options.replace("=@", f"={folder}/")


def run_on_stack(
    plain: Plain, build: Build, library: Path, options: str, limit: int, *more: str
) -> Finished:
    program = build("small_stack", "small_stack.c", flags=(*THREADS, "-fno-builtin", "-Wl,-z,now"))
    environment = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": with_files(options, plain.folder)}
    return plain.run([program, str(limit), *more], environment=environment)


@pytest.mark.parametrize("options", SMALL_STACK)
def test_small_stack(plain: Plain, build: Build, library: Path, options: str) -> None:
    finished = run_on_stack(plain, build, library, options, STACK_BYTES)
    assert finished.stdout == "ok\n", finished.describe()


@pytest.mark.parametrize("options", WALKING)
def test_stack_that_is_walked(plain: Plain, build: Build, library: Path, options: str) -> None:
    finished = run_on_stack(plain, build, library, options, WALKING_BYTES)
    assert finished.stdout == "ok\n", finished.describe()


def test_stack_of_the_reaper(plain: Plain, build: Build, library: Path) -> None:
    finished = run_on_stack(plain, build, library, "engine=slab", STACK_BYTES, "3")
    assert finished.stdout == "ok\n", finished.describe()


def test_each_option_is_tried_on_a_small_stack(plain: Plain, library: Path) -> None:
    """The library names all that there are."""
    finished = plain.run(
        ["/bin/true"], environment={"LD_PRELOAD": str(library), "KMEM_OPTIONS": "nonsense=1"}
    )
    names = re.findall(r"\S+", finished.stderr.split("there are: ")[1].splitlines()[0])
    tried = {part.split("=")[0] for each in (*SMALL_STACK, *WALKING) for part in each.split(",")}
    assert {name.removeprefix("[CACHE.]") for name in names} <= tried


def imported_functions(library: Path) -> dict[str, str]:
    """With their versions, those in front of which somebody may allocate."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    found = dict(re.findall(r" (\w+)@(\S+)", listed))
    exempt = re.compile("|".join(NOT_HOOKED))
    return {name: version for name, version in found.items() if not exempt.fullmatch(name)}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory, library: Path, build: Build) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("the hooks are in x86-64's assembly language")
    folder = tmp_path_factory.mktemp("hooks")
    names = imported_functions(library)
    lines = [f'HOOK({name}, "{version}")\n' for name, version in names.items()]
    (folder / "names.h").write_text("".join(lines))
    return build("hooks.so", "hooks.c", flags=("-shared", "-fPIC", "-fno-builtin", f"-I{folder}"))


def run_hooked(
    plain: Plain, build: Build, hooks: Path, library: Path, name: str, set_: str
) -> None:
    program = build("hooked", "hooked.c", flags=(*THREADS, "-fno-builtin"))
    environment = {
        "LD_PRELOAD": f"{hooks} {library}",
        "HOOKED": name,
        "KMEM_OPTIONS": with_files(set_, plain.folder),
    }
    process = start([program], plain.folder, environment)
    try:
        finished = wait(process, None, 60.0)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        pytest.fail(f"{name} with {set_ or 'no option'}: hangs")
    assert finished.status == 0 and finished.stdout == "ok\n", (name, finished.describe())


@pytest.mark.parametrize(
    "options",
    [
        *("", "slots=locked,check=sheaf,nonsense=1", "record=@record", "engine=slab,registry=on"),
        *("debug=FU,slabinfo=@slabinfo", "profile_interval=4096,memory_limit=4G"),
    ],
)
def test_all_functions_hooked(
    plain: Plain, build: Build, hooks: Path, library: Path, options: str
) -> None:
    run_hooked(plain, build, hooks, library, "*", options)


@pytest.mark.full
def test_each_function_hooked(plain: Plain, build: Build, hooks: Path, library: Path) -> None:
    for name in imported_functions(library):
        run_hooked(plain, build, hooks, library, name, "slots=locked,nonsense=1,registry=on")


def test_limit_of_locked_memory(plain: Plain, build: Build) -> None:
    """Static, and with a small reservation: 8 MiB are all that some machines let root lock."""
    program = build(
        "lock_limit",
        "lock_limit.c",
        flags=("-static", *THREADS, "-fno-builtin"),
        libraries=(str(LIBRARIES / "libkmem.a"),),
    )
    process = start([program], plain.folder, {"KMEM_OPTIONS": "reserve=32M"})
    finished = wait(process, None, 300.0)
    if finished.status == 77:
        pytest.skip(finished.stdout.strip())
    assert finished.status == 0 and finished.stdout == "ok\n", finished.describe()
