# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lists of live objects of memleak, kmemleak and /proc/allocinfo, as heap profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmem.common.errors import KmemError
from kmem.explain.files import read_files
from kmem.explain.heap.figures import answer
from kmem.explain.heap.files import is_profile, profile_of
from kmem.explain.heap.profile import HeapProfile
from kmem.explain.heap.sites import sites_of

LISTS = Path(__file__).parent / "lists"
# By hand: what each call site holds, of objects and bytes.
HELD = {
    "allocinfo": {
        "__filemap_get_folio (mm/filemap.c:1919)": (2304, 9437184),
        "alloc_inode (fs/inode.c:259)": (1200, 921600),
        "alpha_probe (drivers/a.c:7) [alpha]": (512, 65536),
    },
    "kmemleak": {"idr_pre_get+0x67": (1, 544), "memdup_user+0x30 [alpha]": (2, 256)},
    "memleak": {"0xffffffe1294db528": (610, 771040), "xhci_urb_enqueue+0xcc": (3, 576)},
    "allocinfo-rounded": {
        "__filemap_get_folio (mm/filemap.c:1919)": (7040, 28835840),
        "alloc_inode (fs/inode.c:259)": (300, 1258291),
    },
    "sanitizer": {
        "main /tmp/a.c:9": (3, 300),
        "keep (/tmp/a.out+0x43ef81)": (2, 64),
    },
    "memcheck": {"main (a.c:9)": (1, 1024), "keep (a.c:4)": (70, 71680)},
    "memleak-libbpf": {
        "alpha_pages+0x1e8 [alpha]": (1857, 7606272),
        "_Z3foov+0x12 [/root/bcc/libbpf-tools/a.out]": (20, 15680),
    },
}


def listed(content: bytes) -> HeapProfile:
    assert is_profile(content, content)
    return profile_of(Path("list"), content)


def held(profile: HeapProfile) -> dict[str, tuple[int, int]]:
    sites = sites_of(answer(profile).all.held, profile.mappings)
    return {site.calls[0]: (round(site.sum.objects), round(site.sum.bytes)) for site in sites}


@pytest.mark.parametrize("name", HELD)
def test_what_call_sites_hold(name: str) -> None:
    content = (LISTS / f"{name}.txt").read_bytes()
    profile = listed(content)
    assert held(profile) == HELD[name]
    unread = [(one.line, one.reason) for one in profile.unread]
    behind = "bytes of slabs, whose objects stand at their own places"
    slabs = {
        "allocinfo": [(4, f"16,777,216 {behind}")],
        "allocinfo-rounded": [(2, f"53,582,234 {behind}")],
    }
    assert unread == slabs.get(name, [])
    # A log of the kernel with stamps, and a mail.
    for before in ("[   60.123456] ", "> "):
        carried = "".join(before + line + "\n" for line in content.decode().splitlines())
        assert held(listed(carried.encode())) == HELD[name], before


def test_a_stack_as_a_string_of_bytes() -> None:
    """The first releases of memleak for Python 3."""
    calls = r"b'pcpu_alloc+0x3d8 [kernel]\n\t\tbpf_prog_alloc+0x33 [kernel]'"
    text = f"\t16 bytes in 1 allocations from stack\n\t\t{calls}\n"
    assert held(listed(text.encode())) == {"bpf_prog_alloc+0x33": (1, 16)}


def test_kinds_of_objects() -> None:
    """An object that is none of slabs has its own calls, which are not of the one before."""
    text = (
        "unreferenced object 0xffff888004d2a000 (size 64):\n"
        "  backtrace (crc 5de3a1f2):\n    alpha_probe+0x30/0xc8 [alpha]\n"
        "unreferenced object (percpu) 0x605f0c (size 4096):\n"
        "  backtrace (crc 1):\n    pcpu_alloc_noprof+0x604/0x8ac\n    beta_probe+0x30/0xc8 [beta]\n"
    )
    profile = listed(text.encode())
    assert held(profile) == {
        "alpha_probe+0x30 [alpha]": (1, 64),
        "beta_probe+0x30 [beta]": (1, 4096),
    }
    assert [len(stack.places) for stack in profile.stacks] == [1, 1]
    assert listed(text.split("[alpha]\n")[1].encode()).stacks[0].bytes == 4096


@pytest.mark.parametrize("name", ["allocinfo", "kmemleak", "memleak", "memcheck"])
def test_lists_of_several_times(name: str) -> None:
    """An object that lives at two times is one object."""
    content = (LISTS / f"{name}.txt").read_bytes()
    assert held(listed(content + content)) == HELD[name]


def test_a_sorted_reading_is_one() -> None:
    head, columns, *rows = (LISTS / "allocinfo.txt").read_text(encoding="utf-8").splitlines()
    rows.sort(key=lambda row: int(row.split()[0]))
    none, some = rows[:1], rows[1:]
    assert "func:do_initcalls" in none[0]
    for lines in ([*none, columns, head, *some], [*some[::-1], head, columns, *none]):
        assert held(listed("\n".join(lines).encode())) == HELD["allocinfo"]


def test_checks_of_memcheck() -> None:
    """Each process's last check; what is no record has no calls of the record before."""
    record = "==7== {0} bytes in 1 blocks are definitely lost in loss record 1 of 2\n"
    calls = "==7==    at 0x48: malloc (vg_replace_malloc.c:380)\n==7==    by 0x10: keep (a.c:4)\n"
    text = (
        record.format(100)
        + calls
        + "==7== LEAK SUMMARY:\n"
        + record.format("50 (+50)").replace("1 blocks", "1 (+1) blocks")
        + calls
        + "==7== LEAK SUMMARY:\n"
        + record.format(100)
        + calls
        + "==7== Invalid read of size 1\n==7==    at 0x20: main (a.c:9)\n"
        + record.format(50)
        + calls
        + "==7== LEAK SUMMARY:\n"
    )
    profile = listed((text + text.replace("==7==", "==8==")).encode())
    assert [stack.bytes for stack in profile.stacks] == [100, 50, 100, 50]
    assert {tuple(place.name for place in stack.places) for stack in profile.stacks} == {
        ("keep (a.c:4)",)
    }
    assert [one.line for one in profile.unread] == [5, 22]
    # With --time-stamp=yes the clock stands in front of the process.
    stamped = listed(text.replace("==7==", "==00:01:02:03.456 7==").encode())
    assert [stack.bytes for stack in stamped.stacks] == [100, 50]
    assert [one.line for one in stamped.unread] == [5]


def test_numbers_that_cannot_be_read() -> None:
    many = "9" * 22
    text = f"16 1 mm/a.c:1 func:alpha\n{many} 1 mm/a.c:2 func:beta\n"
    assert [one.line for one in listed(text.encode()).unread] == [2]
    text = f"16 bytes in 1 allocations from stack\n{many} bytes in 1 allocations from stack\n"
    profile = listed(f"{text}\talpha+0x1 [kernel]\n".encode())
    assert ([stack.places for stack in profile.stacks], len(profile.unread)) == ([()], 1)


def test_a_list_beside_a_table_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text(
        "slabinfo - version: 2.1\nalpha 10 32 128 32 1 : tunables 0 0 0 : slabdata 1 1 0\n"
        + (LISTS / "kmemleak.txt").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    content = file.read_bytes()
    assert not is_profile(content, content)
    assert [cache.name for cache in read_files([file]).tables[0].caches] == ["alpha"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9 bytes in 0 allocations from stack\n", "line 1: 0 objects of 9 bytes; expected a byte"),
        ("9 bytes in 10 allocations from stack\n", "line 1: 10 objects of 9 bytes"),
        (
            f"{10**15 - 1} bytes in 1 allocations from stack\n" * 1200,
            "",
        ),
        ("allocinfo - version: 1.0\n", "no object in it"),
        ("12 1 mm/a.c:1 func:alloc_slab_page\n", "line 1: 12 bytes of slabs"),
    ],
)
def test_lists_that_say_nothing(text: str, reason: str) -> None:
    if not reason:
        assert "expected at most" in listed(text.encode()).unread[0].reason
        return
    with pytest.raises(KmemError, match=reason):
        listed(text.encode())
