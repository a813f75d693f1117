# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every cache of the recorded boots, made anew with option kernel on a simulated machine: its
attributes are those of /sys/kernel/slab, except where the kernel's caller asks for what no
attribute shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kmem.common.tree import BUILD
from kmem.lab import boots

LIBRARY = BUILD / "src" / "simulator" / "libkmem-simulator-4k.so"
ALIGN_MOST = 4096  # bytes; the most that a program may ask for

# What makes a cache, as far as its attributes show it.
GIVEN = ("object_size", "hwcache_align", "cache_dma", "reclaim_account", "destroy_by_rcu")
COMPARED = (
    *("object_size", "slab_size", "align", "order", "objs_per_slab"),
    *("min_partial", "cpu_partial", "sheaf_capacity"),
)

# Arguments of the kernel's callers that no attribute shows.
POINTER_INSIDE = {"freeptr_offset": 0}  # these callers name a place in the object
UNSHOWN: dict[str, dict[str, dict[str, int]]] = {
    "6.1": {},
    "6.12": {},
    "7.2": {
        "TCP": POINTER_INSIDE,
        "TCPv6": POINTER_INSIDE,
        "ext4_inode_cache": POINTER_INSIDE,
        "vm_area_struct": POINTER_INSIDE,
        "maple_node": {"sheaf_capacity": 32},
    },
}

# Values of ours that are others, with the reason.
OTHERS = {
    # The kernel makes these two before it has sheaves; here they are caches as others.
    ("7.2", "kmem_cache"): {"sheaf_capacity": ("28", "0")},
    ("7.2", "kmem_cache_node"): {"sheaf_capacity": ("60", "0")},
    # 6.1 aligns only blocks of a power of two of bytes beyond a word.
    ("6.1", "kmalloc-96"): {"align": ("32", "8")},
    ("6.1", "kmalloc-192"): {"align": ("64", "8")},
    # Nothing here is aligned beyond a page of 4,096 bytes.
    **{
        (kernel, f"{kind}-8k"): {"align": (str(ALIGN_MOST), "8192")}
        for kernel in boots.KERNELS
        for kind in ("kmalloc", "kmalloc-cg", "kmalloc-rcl", "dma-kmalloc")
    },
}


def arguments_of(values: dict[str, str]) -> dict[str, int]:
    """A cache that is aligned to cache lines asks for no other alignment."""
    given = {word: int(values[word]) for word in GIVEN}
    given["ctor"] = int("ctor" in values)
    if not given["hwcache_align"]:
        given["align"] = min(int(values["align"]), ALIGN_MOST)
    return given


def made_here(
    caches: dict[str, dict[str, int]], cpus: int, kernel: str
) -> dict[str, dict[str, str]]:
    options = f"kernel={kernel},slab_merge=0"
    finished = subprocess.run(
        [sys.executable, Path(__file__).with_name("make_caches.py"), LIBRARY, str(cpus), options],
        input=json.dumps(caches),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return dict(json.loads(finished.stdout))


def differences(
    ours: dict[str, dict[str, str]], theirs: dict[str, dict[str, str]]
) -> dict[str, dict[str, tuple[str, str]]]:
    """Ours and the kernel's, by cache and attribute."""
    found = {
        name: {
            word: (ours[name][word], values[word])
            for word in COMPARED
            if word in values and ours[name][word] != values[word]
        }
        for name, values in theirs.items()
    }
    return {name: words for name, words in found.items() if words}


@pytest.mark.parametrize("boot", boots.BOOTS, ids=lambda boot: boot.name)
def test_caches_are_the_kernels(boot: boots.Boot) -> None:
    theirs = boot.attributes()
    caches = {
        name: arguments_of(values) | UNSHOWN[boot.kernel].get(name, {})
        for name, values in theirs.items()
    }
    expected = {
        name: words
        for (kernel, name), words in OTHERS.items()
        if kernel == boot.kernel and name in theirs
    }
    assert differences(made_here(caches, boot.cpus, boot.kernel), theirs) == expected


def test_unshown_arguments_matter() -> None:
    """Without them these caches are others, so that each is needed."""
    boot = boots.Boot("7.2", 4)
    theirs = boot.attributes()
    caches = {name: arguments_of(theirs[name]) for name in UNSHOWN["7.2"]}
    ours = made_here(caches, boot.cpus, boot.kernel)
    found = differences(ours, {name: theirs[name] for name in caches})
    assert sorted(found) == sorted(UNSHOWN["7.2"])


def test_another_kernels_caches_are_others() -> None:
    """No cache of 7.2 has a CPU partial list or lacks sheaves, but for the two of the boot."""
    theirs = boots.Boot("7.2", 4).attributes()
    caches = {name: arguments_of(values) for name, values in theirs.items()}
    found = differences(made_here(caches, 4, "6.12"), theirs)
    assert found.keys() == theirs.keys()
    without = [name for name, words in found.items() if "sheaf_capacity" not in words]
    assert sorted(without) == ["kmem_cache", "kmem_cache_node"]
