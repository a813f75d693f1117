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
