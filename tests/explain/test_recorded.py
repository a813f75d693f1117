# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of recorded kernels, whose machines we know: forms agree, and the CPU count is found."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from kmem.common.tree import ROOT, build
from kmem.explain import policies
from kmem.explain.answers import Answers, Machine, answer
from kmem.explain.files import read_files
from kmem.explain.policies import KERNELS, cpu_partial, sheaf_capacity
from kmem.lab import orders
from kmem.lab.boots import BOOTS, Boot
from kmem.lab.kernels import KERNELS as VERSIONS

PAGE = 4096


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def answers_of(*files: Path) -> list[Answers]:
    return [answer(table, Machine()) for table in read_files(files).tables]


def write_folder(boot: Boot, folder: Path) -> Path:
    for cache, values in boot.attributes().items():
        (folder / cache).mkdir(parents=True)
        for name, text in values.items():
            (folder / cache / name).write_text(f"{text}\n")
    return folder


def write_tar(boot: Boot, file: Path) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for cache, values in boot.attributes().items():
            for name, text in values.items():
                entry = tarfile.TarInfo(f"sys/kernel/slab/{cache}/{name}")
                content = f"{text}\n".encode()
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return file


def write_grep(boot: Boot, file: Path) -> Path:
    lines = [
        f"{cache}/{name}:{text}"
        for cache, values in boot.attributes().items()
        for name, text in values.items()
    ]
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("boot", BOOTS, ids=lambda boot: boot.name)
def test_cpu_count_is_found(boot: Boot) -> None:
    (found,) = answers_of(boot.slabinfo)
    assert found.allocator == "SLUB"
    assert found.page_bytes == PAGE
    low, high = map(int, found.fit.text.split("-"))
    assert low <= boot.cpus <= high <= 2 * boot.cpus
    assert found.fit.fitting >= 0.97 * found.fit.caches
    assert found.cpus is not None and found.cpus.how == "computed"


@pytest.mark.parametrize("boot", BOOTS[:2] + BOOTS[-1:], ids=lambda boot: boot.name)
def test_sysfs_in_each_form_agrees(boot: Boot, tmp_path: Path) -> None:
    forms = [
        answers_of(write_folder(boot, tmp_path / "slab")),
        answers_of(write_tar(boot, tmp_path / "slab.tar.gz")),
        answers_of(write_grep(boot, tmp_path / "slab.txt")),
    ]
    shapes = [
        {
            fact.name: (fact.objects, fact.active, fact.stride, fact.slabs, fact.total)
            for fact in one.facts
        }
        for (one,) in forms
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == len(boot.attributes())
    assert {one.fit.text for (one,) in forms} == {answers_of(boot.slabinfo)[0].fit.text}


def test_padding_is_seen_in_sysfs(tmp_path: Path) -> None:
    """Only sysfs has both the size of an object and the distance to the next."""
    (found,) = answers_of(write_grep(BOOTS[0], tmp_path / "slab.txt"))
    padding = {fact.name: fact.padding.value for fact in found.facts if fact.padding}
    attributes = BOOTS[0].attributes()
    for name, value in padding.items():
        each = int(attributes[name]["slab_size"]) - int(attributes[name]["object_size"])
        assert value == each * int(attributes[name]["objects"].split()[0])
    assert any(padding.values())


@pytest.mark.parametrize("boot", BOOTS, ids=lambda boot: boot.name)
def test_limits_by_size_are_the_kernels(boot: Boot) -> None:
    """Caches without CPU lists, and those that ask for more, differ."""
    (kernel,) = [one for one in KERNELS if boot.kernel in one.versions]
    others = []
    for name, values in boot.attributes().items():
        stride = int(values["slab_size"])
        if kernel.sheaves:
            same = int(values["sheaf_capacity"]) == sheaf_capacity(stride, PAGE)
        else:
            same = int(values["cpu_partial"]) == cpu_partial(stride, PAGE, kernel.objects)
        if not same:
            others.append(name)
    allowed = {"kmem_cache", "kmem_cache_node", "maple_node", "vm_area_struct"}
    assert set(others) <= allowed, others


def test_kernels_are_those_of_the_library() -> None:
    """Options of src/base/kernels.c, row by row."""
    text = (ROOT / "src" / "base" / "kernels.c").read_text()
    rows = dict(re.findall(r"^ +(OF_ALL_SLUB [A-Z_ ]+),\s+/\* ([\d.]+) \*/", text, re.MULTILINE))
    options = {
        version: row.split()
        for row, version in re.findall(r"(OF_ALL_SLUB [A-Z_ ]+),\s+/\* ([\d.]+) \*/", text)
    }
    assert rows or options
    ours = {version: kernel for kernel in KERNELS for version in kernel.versions}
    assert list(ours) == [version for version in VERSIONS if version != "2.6.24"] == list(options)
    for version, words in options.items():
        kernel = ours[version]
        assert kernel.order_rule == ("6.12" if "NEW_ORDERS" in words else "5.10")
        assert kernel.sheaves == ("SHEAVES" in words)
        accounting = "objects" if "IN_OBJECTS" in words else "slabs"
        assert kernel.cpu_lists == ("" if kernel.sheaves else accounting)
        expected = policies.SEED_OBJECTS if "IN_OBJECTS" in words else policies.LATER_OBJECTS
        assert kernel.objects == expected


def test_growth_from_boot_to_load() -> None:
    """Two tables of a machine: what a load leaves behind grows, and nothing in its boot does."""
    from kmem.explain.leaks import growths

    boot, later = (
        answers_of(Path(str(BOOTS[0].slabinfo).replace("boot-", name)))[0]
        for name in ("boot-", "hackbench-g16-process-")
    )
    moments = [{fact.name: fact for fact in one.facts} for one in (boot, later)]
    assert growths([moments[0]]) == []
    assert growths([moments[0], moments[0]]) == []
    for growth in growths(moments):
        assert growth.objects[0] < growth.objects[1]
        assert growth.grown_bytes > 0
