# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads a tree of slab attributes: /sys/kernel/slab, or the directory of `kmem run --attrs`.

A directory for each cache holds a file for each attribute; symbolic links are other names of a
cache. docs/attributes.md gives the meaning of each attribute.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kmem.common.attribute_table import ATTRIBUTES
from kmem.common.errors import KmemError


class AttributeFormatError(KmemError):
    """A file that does not read as its attribute should."""


@dataclass(frozen=True)
class NodeCounts:
    """A total, and the part of each NUMA node that is not 0."""

    total: int
    nodes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CpuPartial:
    """Objects and slabs on CPU partial lists: of all CPUs, and of each CPU that has any."""

    objects: int
    slabs: int
    cpus: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Counter:
    """A statistics counter: the sum, and the part of each CPU that is not 0."""

    total: int
    cpus: dict[int, int] = field(default_factory=dict)


Value = bool | int | str | None | NodeCounts | CpuPartial | Counter


def matched(pattern: str, text: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise ValueError
    return match


def parse_number(text: str) -> int:
    return int(matched(r"(\d+)\n", text)[1])


def parse_flag(text: str) -> bool:
    return matched(r"([01])\n", text)[1] == "1"


def parse_word(text: str) -> str:
    return matched(r"(\w+)\n", text)[1]


def parse_nothing(text: str) -> None:
    """The value of a file that can only be written."""
    matched("", text)


def parse_constructor(text: str) -> str | None:
    """symbol+offset/size, in the kernel with [module]; [file]+offset; or an address."""
    if not text:
        return None
    symbol = r"[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+( \[\w+\])?"
    return matched(rf"({symbol}|\[[^/\]]+\]\+0x[0-9a-f]+|0x[0-9a-f]+)\n", text)[1]


def parse_traces(text: str) -> str:
    """Entries of a line, with the call stack below indented; see docs/attributes.md."""
    entry = r" *\d+ \S+( waste=\d+/\d+)? age=\d+(/\d+/\d+)? pid=\d+(-\d+)?( (cpus|nodes)=[\d,-]+)*"
    return matched(rf"(No data|{entry}(\n {{8}}\S+)*(\n{entry}(\n {{8}}\S+)*)*)\n", text)[1]


def parse_parts(letter: str, text: str) -> tuple[int, dict[int, int]]:
    match = matched(rf"(\d+)((?: {letter}\d+=\d+)*)\n", text)
    parts = {int(n): int(x) for n, x in re.findall(rf"{letter}(\d+)=(\d+)", match[2])}
    return int(match[1]), parts


def parse_nodes(text: str) -> NodeCounts:
    counts = NodeCounts(*parse_parts("N", text))
    # A kernel without NUMA gives the total only.
    if 0 in counts.nodes.values() or (counts.nodes and sum(counts.nodes.values()) != counts.total):
        raise ValueError
    return counts


def parse_counter(text: str) -> Counter:
    counter = Counter(*parse_parts("C", text))
    # Counts of libkmem's threads that have no CPU's slot are in the total only.
    if 0 in counter.cpus.values() or sum(counter.cpus.values()) > counter.total:
        raise ValueError
    return counter


def parse_cpu_partial(text: str) -> CpuPartial:
    match = matched(r"(\d+)\((\d+)\)((?: C\d+=\d+\(\d+\))*)\n", text)
    parts = re.findall(r"C(\d+)=(\d+)\((\d+)\)", match[3])
    cpus = {int(cpu): (int(objects), int(slabs)) for cpu, objects, slabs in parts}
    return CpuPartial(int(match[1]), int(match[2]), cpus)


FORMATS: dict[str, Callable[[str], Value]] = {
    "number": parse_number,
    "flag": parse_flag,
    "nodes": parse_nodes,
    "cpu_partial": parse_cpu_partial,
    "counter": parse_counter,
    "constructor": parse_constructor,
    "word": parse_word,
    "nothing": parse_nothing,
    "traces": parse_traces,
}
# CONFIG_SLUB_STATS of kernels that have sheaves; libkmem has the older counters.
SHEAF_COUNTERS = (
    "alloc_cpu_sheaf free_cpu_sheaf free_rcu_sheaf free_rcu_sheaf_fail sheaf_flush sheaf_refill"
    " sheaf_alloc sheaf_free barn_get barn_get_fail barn_put barn_put_fail sheaf_prefill_fast"
    " sheaf_prefill_slow sheaf_prefill_oversize sheaf_return_fast sheaf_return_slow"
)

PARSERS: dict[str, Callable[[str], Value]] = {
    **{name: FORMATS[attribute.format] for name, attribute in ATTRIBUTES.items()},
    **dict.fromkeys(SHEAF_COUNTERS.split(), parse_counter),
}


def parse_attribute(name: str, text: str) -> Value:
    """The value of an attribute that PARSERS knows."""
    try:
        return PARSERS[name](text)
    except ValueError:
        raise AttributeFormatError(f"attribute {name}: cannot read {text!r}") from None


@dataclass
class SlabTree:
    """All caches. Use tree["name"]["attribute"]; other names lead to equal values."""

    caches: dict[str, dict[str, Value]] = field(default_factory=dict)  # by directory
    links: dict[str, str] = field(default_factory=dict)  # other names, to directories
    unknown: set[str] = field(default_factory=set)  # attributes left out, as PARSERS lacks them

    def __getitem__(self, name: str) -> dict[str, Value]:
        return self.caches[self.links.get(name, name)]


def read_cache(folder: Path, unknown: set[str]) -> dict[str, Value]:
    values = {}
    for file in folder.iterdir():
        if file.name in PARSERS:
            try:
                values[file.name] = parse_attribute(file.name, file.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                raise AttributeFormatError(
                    f"{folder.name}: attribute {file.name}: expected text in UTF-8"
                ) from None
            except AttributeFormatError as error:
                raise AttributeFormatError(f"{folder.name}: {error}") from None
        else:
            unknown.add(file.name)
    return values


def read_tree(folder: Path) -> SlabTree:
    """Raises AttributeFormatError, or OSError where files cannot be read."""
    tree = SlabTree()
    for place in folder.iterdir():
        if place.is_symlink():
            tree.links[place.name] = place.readlink().name
        else:
            tree.caches[place.name] = read_cache(place, tree.unknown)
    for name, place_name in tree.links.items():
        if place_name not in tree.caches:
            raise AttributeFormatError(f"{name}: links to {place_name}, which is not there")
    return tree
