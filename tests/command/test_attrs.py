# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem run --attrs DIR`, and the readers of attributes and slab tables: ours and the kernel's."""

import mmap
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from kmem_command import ROOT
from test_run import Result, assert_error, kmem_run, options_seen, shell

from kmem.common.attribute_table import ATTRIBUTES, TABLE
from kmem.live.attributes import PLAIN
from kmem.live.attributes import WRITABLE as WRITABLE_FROM_OUTSIDE
from kmem.live.registry.layout import FLAGS
from kmem.traces.attribute_tree import (
    AttributeFormatError,
    Counter,
    CpuPartial,
    NodeCounts,
    SlabTree,
    parse_attribute,
    read_tree,
)
from kmem.traces.slabinfo import SlabinfoError, parse_cache_line, parse_slabinfo

SYSFS = Path("/sys/kernel/slab")
PROC = Path("/proc/slabinfo")

# S9.1, then ours.
ROW_NAMES = (
    "slab_size object_size objs_per_slab order align min_partial cpu_partial slabs_cpu_partial"
    " partial objects_partial cpu_slabs slabs total_objects objects ctor aliases hwcache_align"
    " reclaim_account destroy_by_rcu cache_dma usersize sanity_checks red_zone poison store_user"
    " trace validate shrink failslab remote_node_defrag_ratio skip_kfence"
)
ROWS = set(ROW_NAMES.split())
OURS = {"engine", "sheaf_capacity", "objects_inuse", "guard_sampling"}
WRITABLE_NAMES = (
    "min_partial cpu_partial validate shrink failslab remote_node_defrag_ratio skip_kfence"
    " sheaf_capacity guard_sampling"
)
WRITABLE = set(WRITABLE_NAMES.split())
# Counters that depend on options cpu_slabs and sheaf_rule (S13-12).
OF_SHEAVES_NAMES = (
    "sheaf_flush sheaf_refill sheaf_alloc sheaf_free barn_get barn_get_fail barn_put barn_put_fail"
    " free_rcu_sheaf free_rcu_sheaf_fail"
)
OF_SHEAVES = set(OF_SHEAVES_NAMES.split())
OF_CPU_SLABS_NAMES = (
    "free_frozen alloc_from_partial alloc_refill cpuslab_flush deactivate_full deactivate_empty"
    " deactivate_to_head deactivate_to_tail deactivate_remote_frees deactivate_bypass"
    " cmpxchg_double_cpu_fail cpu_partial_alloc cpu_partial_free cpu_partial_node"
    " cpu_partial_drain"
)
OF_CPU_SLABS = set(OF_CPU_SLABS_NAMES.split())
# Rows that a kernel leaves out, by its configuration.
OPTIONAL = {"cache_dma", "failslab", "remote_node_defrag_ratio", "skip_kfence"}

# Makes caches by the library's calls in a program that does not link with it.
CACHES = """
import ctypes
kmem = ctypes.CDLL(None)
kmem.kmem_cache_create.restype = ctypes.c_void_p
kmem.kmem_cache_create.argtypes = [ctypes.c_char_p] + [ctypes.c_uint] * 3 + [ctypes.c_void_p]
kmem.kmem_cache_alloc.restype = ctypes.c_void_p
kmem.kmem_cache_alloc.argtypes = [ctypes.c_void_p, ctypes.c_uint]
def create(name, size, flags=0, ctor=None):
    return kmem.kmem_cache_create(name, size, 0, flags, ctor)
def take(cache, count):
    return [kmem.kmem_cache_alloc(cache, 0) for _ in range(count)]
"""
CACHE_DMA, RECLAIM_ACCOUNT, NO_MERGE = 0x4000, 0x20000, 0x1000000


def run_python(folder: Path, script: str, *options: str) -> SlabTree:
    arguments = [*options, "--attrs", str(folder), "--", sys.executable, "-c", CACHES + script]
    result = kmem_run(*arguments)
    assert (result.returncode, result.stderr) == (0, b"")
    tree = read_tree(folder)
    assert not tree.unknown
    return tree


def test_table_is_the_librarys() -> None:
    """If not: build/tools/attributes > python/kmem/common/attributes.csv"""
    shown = subprocess.run([ROOT / "build/tools/attributes"], capture_output=True, check=True)
    assert shown.stdout == TABLE.read_bytes()


def test_option_names_this_process_only(tmp_path: Path) -> None:
    value, pid = options_seen("--attrs", tmp_path / "tree")
    assert value == f"attrs={tmp_path}/tree,attrs_pid={pid}"
    value, pid = options_seen("--attrs=tree", cwd=tmp_path)
    assert value == f"attrs={tmp_path}/tree,attrs_pid={pid}"
    value, _ = options_seen("--attrs", tmp_path / "tree.%p")
    assert value == f"attrs={tmp_path}/tree.%p"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attrs"], ["--attrs", "value"]),
        (["--attrs", ""], ["--attrs", "directory"]),
        (["--attrs=", "true"], ["--attrs", "directory"]),
        (["--attrs", "a,b", "true"], ["a,b", "comma"]),
        (["--attrs", "a\nb", "true"], ["a\\nb", "line end"]),
    ],
)
def test_bad_command_line(arguments: list[str], words: list[str]) -> None:
    assert_error(kmem_run(*arguments), 2, *words)


def test_every_cache_has_every_row(tmp_path: Path) -> None:
    tree = run_python(tmp_path / "tree", "take(create(b'mine', 100), 5)")
    assert len(tree.caches) > 10
    for values in tree.caches.values():
        assert values.keys() == ROWS | OURS
    assert tree["mine"]["object_size"] == 100
    assert tree["mine"]["objects_inuse"] == 5
    assert tree["mine"]["engine"] == "slub"
    slabs, per_slab = tree["mine"]["slabs"], tree["mine"]["objs_per_slab"]
    assert isinstance(slabs, NodeCounts)
    assert isinstance(per_slab, int)
    assert tree["mine"]["total_objects"] == NodeCounts(*nodes(slabs.total * per_slab))
    assert tree.links == {}


def test_modes_are_the_kernels(tmp_path: Path) -> None:
    run_python(tmp_path / "tree", "create(b'mine', 100)")
    for name in ROWS | OURS:
        mode = stat.S_IMODE((tmp_path / "tree" / "mine" / name).stat().st_mode)
        assert mode == (0o600 if name in WRITABLE else 0o400), name


def test_aliases_are_links_to_unique_ids(tmp_path: Path) -> None:
    """S4-43, S4-45"""
    tree = run_python(
        tmp_path / "tree",
        f"create(b'first', 200); take(create(b'second', 193), 7); create(b'third', 208)\n"
        f"create(b'dma', 200, {CACHE_DMA | RECLAIM_ACCOUNT}); create(b'alone', 200, {NO_MERGE})",
        "--set",
        "slab_merge=1",
    )
    links = {"first": ":0000200", "second": ":0000200", "third": ":0000208"}
    assert tree.links == links | {"dma": ":da-0000200"}
    assert tree["second"] is tree["first"]
    assert tree["first"]["aliases"] == 1
    assert tree["first"]["objects_inuse"] == 7
    assert tree["third"]["aliases"] == 0
    assert tree["dma"]["cache_dma"] is True
    assert "alone" in tree.caches
    assert "kmalloc-64" in tree.caches


def test_names_cannot_lead_elsewhere(tmp_path: Path) -> None:
    script = "".join(f"create({name!r}, 64)\n" for name in (b"a/b", b"..", b".", b"/", b"../x"))
    tree = run_python(tmp_path / "tree", script)
    assert {"a!b", "!.", "!", "..!x"} <= tree.caches.keys()
    assert list(tmp_path.iterdir()) == [tmp_path / "tree"]


def test_newest_of_one_name(tmp_path: Path) -> None:
    tree = run_python(tmp_path / "tree", "create(b'same', 64); create(b'same', 128)")
    assert tree["same"]["object_size"] == 128


@pytest.mark.parametrize("engine", ["slab", "slob"])
def test_other_engines(tmp_path: Path, engine: str) -> None:
    tree = run_python(
        tmp_path / "tree", "take(create(b'mine', 100), 5)", "--set", f"engine={engine}"
    )
    for values in tree.caches.values():
        assert values.keys() == ROWS | OURS
        assert values["engine"] == engine
        assert values["cpu_slabs"] == NodeCounts(0)
        assert values["slabs_cpu_partial"] == CpuPartial(0, 0)
    assert tree["mine"]["objects_inuse"] == 5


def counters() -> set[str]:
    return {name for name in ATTRIBUTES if ATTRIBUTES[name].format == "counter"}


def test_counters_are_there_where_they_count(tmp_path: Path) -> None:
    tree = run_python(
        tmp_path / "tree",
        "take(create(b'counted', 100), 5)\ncreate(b'not', 100)",
        "--set",
        "counted.stats=1,counted.sheaf_capacity=0",
    )
    counted = tree["counted"].keys() - ROWS - OURS
    assert counted == counters() - OF_SHEAVES
    assert len(counted) == 26
    slabs = tree["counted"]["alloc_slab"]
    assert isinstance(slabs, Counter)
    assert slabs.total == sum(slabs.cpus.values()) == 1
    assert tree["not"].keys() == ROWS | OURS


def test_counters_of_a_kernel_without_cpu_slabs(tmp_path: Path) -> None:
    """A miss fills a sheaf of 60 objects."""
    tree = run_python(
        tmp_path / "tree",
        "take(create(b'counted', 100), 5)",
        "--set",
        "kernel=7.2,counted.stats=1",
    )
    assert tree["counted"].keys() - ROWS - OURS == counters() - OF_CPU_SLABS
    found = [tree["counted"][name] for name in ("alloc_fastpath", "sheaf_refill")]
    assert [counter.total for counter in found if isinstance(counter, Counter)] == [5, 60]


def test_children_have_trees_of_their_own_with_pid(tmp_path: Path) -> None:
    result = shell("/bin/echo one; /bin/echo two", "--attrs", str(tmp_path / "tree.%p"))
    assert (result.stdout, result.stderr) == (b"one\ntwo\n", b"")
    trees = list(tmp_path.iterdir())
    assert len(trees) == 3
    for folder in trees:
        assert read_tree(folder).caches


def test_only_the_program_writes_without_pid(tmp_path: Path) -> None:
    shell("/bin/true; exec /bin/echo last", "--attrs", str(tmp_path / "tree"))
    assert read_tree(tmp_path / "tree").caches


def test_with_slab_table(tmp_path: Path) -> None:
    """The same figures in both (S9-11)."""
    tree = run_python(
        tmp_path / "tree",
        "take(create(b'mine', 100), 5)",
        "--slabinfo",
        str(tmp_path / "table"),
    )
    lines = parse_slabinfo((tmp_path / "table").read_text())
    assert {line.name for line in lines} == tree.caches.keys()
    for line in lines:
        values = tree[line.name]
        assert values["slab_size"] == line.object_size
        assert values["objs_per_slab"] == line.objects_per_slab
        assert values["objects"] == NodeCounts(*nodes(line.active_objects))
        assert values["total_objects"] == NodeCounts(*nodes(line.objects))
        assert values["slabs"] == NodeCounts(*nodes(line.slabs))


def nodes(total: int) -> tuple[int, dict[int, int]]:
    return total, {0: total} if total else {}


def assert_ran_with_one_line(result: Result, *words: str) -> None:
    message = result.stderr.decode()
    assert (result.returncode, result.stdout) == (3, b"ran\n")
    assert message.startswith("kmem: attrs: ")
    assert message.count("\n") == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize("place", ["no/such/tree", "file", "full"])
def test_bad_directory_is_said_at_the_start(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "entry").touch()
    folder = tmp_path / place
    result = shell("echo ran; exit 3", "--attrs", str(folder))
    assert_ran_with_one_line(result, str(folder), "expected an empty directory")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["entry", "file", "full"]


def test_directory_that_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root writes everywhere but here.
        folder = Path("/proc/self")
    else:
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o500)
    assert_ran_with_one_line(shell("echo ran; exit 3", "--attrs", str(folder)), str(folder))


def test_full_disk_is_said_once(tmp_path: Path) -> None:
    """A limit on file sizes of 1 byte stands for it; nearly every value has 2."""
    script = "ulimit -f 0; trap '' XFSZ; echo ran >&2; exit 3"
    result = shell(script, "--attrs", str(tmp_path / "tree"))
    message = result.stderr.decode()
    assert result.returncode == 3
    assert message.startswith("ran\nkmem: attrs: ")
    assert message.count("\n") == 2


def test_live_kernels_attributes() -> None:
    if not os.access(SYSFS, os.R_OK | os.X_OK):
        pytest.skip(f"{SYSFS} cannot be read")
    try:
        tree = read_tree(SYSFS)
    except PermissionError as error:
        pytest.skip(f"{error.filename} cannot be read")
    print(f"{len(tree.caches)} caches, {len(tree.links)} links, unknown: {tree.unknown}")
    assert tree.caches
    for values in tree.caches.values():
        assert values.keys() >= ROWS - OPTIONAL
        size, objects, order = (values[n] for n in ("slab_size", "objs_per_slab", "order"))
        assert isinstance(size, int)
        assert isinstance(objects, int)
        assert isinstance(order, int)
        assert size * objects <= mmap.PAGESIZE << order
    for name, place in tree.links.items():
        assert place.startswith(":"), name


def test_live_kernels_slab_table() -> None:
    try:
        text = PROC.read_text()
    except OSError as error:
        pytest.skip(f"{PROC} cannot be read: {error.strerror}")
    lines = parse_slabinfo(text, mmap.PAGESIZE)
    print(f"{len(lines)} caches")
    assert lines


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("slab_size", "64\n", 64),
        ("poison", "0\n", False),
        ("trace", "1\n", True),
        ("shrink", "", None),
        ("ctor", "", None),
        ("ctor", "init_once+0x0/0x10\n", "init_once+0x0/0x10"),
        ("ctor", "init+0x0/0x10 [fuse]\n", "init+0x0/0x10 [fuse]"),
        ("ctor", "[prog]+0x12\n", "[prog]+0x12"),
        ("slabs", "0\n", NodeCounts(0)),
        ("slabs", "7\n", NodeCounts(7)),
        ("slabs", "7 N0=3 N12=4\n", NodeCounts(7, {0: 3, 12: 4})),
        ("slabs_cpu_partial", "0(0)\n", CpuPartial(0, 0)),
        (
            "slabs_cpu_partial",
            "64(4) C0=32(2) C5=32(2)\n",
            CpuPartial(64, 4, {0: (32, 2), 5: (32, 2)}),
        ),
        ("alloc_slab", "9 C0=4 C3=5\n", Counter(9, {0: 4, 3: 5})),
    ],
)
def test_reader(name: str, text: str, value: object) -> None:
    assert parse_attribute(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slab_size", "64"),
        ("slab_size", "-1\n"),
        ("slab_size", "0x40\n"),
        ("slab_size", ""),
        ("poison", "2\n"),
        ("shrink", "1\n"),
        ("ctor", "\n"),
        ("slabs", "7 N0=3\n"),
        ("slabs", "7 N0=7 N1=0\n"),
        ("slabs", "7 C0=7\n"),
        ("slabs", "7  N0=7\n"),
        ("slabs_cpu_partial", "64\n"),
        ("alloc_slab", "9 C0=10\n"),
        ("engine", "\n"),
    ],
)
def test_reader_refuses(name: str, text: str) -> None:
    with pytest.raises(AttributeFormatError, match=name):
        parse_attribute(name, text)


def test_reader_names_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "order").write_text("high\n")
    with pytest.raises(AttributeFormatError, match=r"cache: attribute order: .*high"):
        read_tree(tmp_path)
    (tmp_path / "cache" / "order").write_bytes(b"3\xff\n")
    with pytest.raises(AttributeFormatError, match="cache: attribute order: expected text in UTF"):
        read_tree(tmp_path)
    (tmp_path / "cache" / "order").write_text("3\n")
    (tmp_path / "cache" / "colour").write_text("blue\n")
    (tmp_path / "other").symlink_to("cache")
    tree = read_tree(tmp_path)
    assert (tree.unknown, tree["other"]["order"]) == ({"colour"}, 3)
    (tmp_path / "astray").symlink_to("nowhere")
    with pytest.raises(AttributeFormatError, match="astray"):
        read_tree(tmp_path)


def test_table_reader_refuses() -> None:
    with pytest.raises(SlabinfoError, match="first lines"):
        parse_slabinfo("slabinfo - version: 1.1\n")
    # More digits than Python converts, more than 64 bits, and digits of other scripts.
    for number in ("9" * 5000, "9" * 20, "\u0661"):
        with pytest.raises(SlabinfoError, match="not a line of a slab table"):
            parse_cache_line(f"x {number} 1 8 512 1 : tunables 0 0 0 : slabdata 1 1 0")


def test_page_explains_every_attribute_that_it_shows() -> None:
    """In a sentence of its own; the document has formats, and what each back end makes of it."""
    shown = {*PLAIN.split(), *FLAGS.split(), *WRITABLE_FROM_OUTSIDE.split()}
    words = (ROOT / "python" / "kmem" / "live" / "page" / "words.js").read_text()
    assert set(re.findall(r'^  (\w+): "', words, re.MULTILINE)) == shown
    documented = (ROOT / "docs" / "attributes.md").read_text()
    assert {name for name in shown if f"`{name}`" not in documented} == set()
