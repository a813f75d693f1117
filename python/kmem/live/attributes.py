# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem attr: reads and writes the attributes of a running process's caches."""

import typer

from kmem.common.attribute_table import ATTRIBUTES
from kmem.common.errors import BadUsage, KmemError
from kmem.live.registry.caches import Cache, read_caches
from kmem.live.registry.file import Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import FLAGS, RegistryError
from kmem.live.registry.requests import (
    WAIT_SECONDS,
    answer,
    ask,
    waiting_request,
    why_no_answer,
)
from kmem.live.tables import find_cache

# Numbers that stand in the cache's record under the attribute's name.
PLAIN = (
    "slab_size object_size objs_per_slab order align min_partial cpu_partial usersize aliases"
    " failslab remote_node_defrag_ratio skip_kfence sheaf_capacity engine guard_sampling"
)
# Known without the process: sums over nodes.
LIVE_NODES = {"slabs": "slabs", "total_objects": "objects", "partial": "partial"}
# Worked out by the process on request.
REFRESHED = "objects objects_partial cpu_slabs slabs_cpu_partial objects_inuse"
WRITABLE = " ".join(name for name, attribute in ATTRIBUTES.items() if attribute.outside)
# Written for the cache of this name, it is written for all.
ALL, OF_ALL = "*", "guard_sampling"
NAMES = sorted({*f"{PLAIN} {FLAGS} {REFRESHED} {WRITABLE}".split(), *LIVE_NODES})


def nodes_text(counts: list[tuple[int, int]]) -> str:
    """TOTAL N0=x N1=y, with the nodes that have any."""
    parts = [f" N{number}={count}" for number, count in counts if count]
    return f"{sum(count for _, count in counts)}{''.join(parts)}"


def split_name(text: str) -> tuple[str, str]:
    """Cache and attribute of CACHE/NAME; the cache's name may hold slashes itself."""
    cache, slash, name = text.rpartition("/")
    if not slash or not cache or not name:
        raise BadUsage(f"attr {text!r}: expected CACHE/NAME, like kmalloc-64/cpu_partial")
    if name not in NAMES:
        raise BadUsage(f"attr {text}: no attribute {name}; there are {' '.join(NAMES)}")
    return cache, name


def refreshed(registry: Registry, cache: Cache, name: str) -> str:
    """A figure that nobody keeps: the process works it out at its next slow path."""
    process = registry.process
    request = ask(registry, cache["birth"], "refresh")
    done = answer(registry, request, WAIT_SECONDS)
    if done is None:
        raise RegistryError(
            f"{cache.name}/{name}: {why_no_answer(registry)}; it would have to work this out"
        )
    # Another cache may use this record by now.
    found = [one for one in read_caches(registry) if one["birth"] == cache["birth"]]
    if done[0] != 0 or not found:
        raise RegistryError(f"{cache.name}/{name}: process {process} has destroyed the cache")
    cache = found[0]
    if name == "objects_inuse":
        return str(cache[name])
    if name == "slabs_cpu_partial":
        return f"{cache['cpu_partial_objects']}({cache['cpu_partial_slabs']})"
    if name == "objects":
        counts = [
            (node["number"], max(node["objects"] - node["listed_free"], 0)) for node in cache.nodes
        ]
    else:
        counts = [(node["number"], node[name]) for node in cache.nodes]
    return nodes_text(counts)


def effective(registry: Registry, cache: Cache, name: str) -> str:
    if name == "shrink":
        return ""
    if name in PLAIN.split():
        return str(cache.fields[name])
    if name in cache.flags:
        return str(cache.flags[name])
    if name in LIVE_NODES:
        return nodes_text([(node["number"], node[LIVE_NODES[name]]) for node in cache.nodes])
    return refreshed(registry, cache, name)


def read_attribute(process: int, text: str, *, in_force: bool) -> None:
    cache_name, name = split_name(text)
    with open_process(process, writable=True) as registry:
        cache = find_cache(registry, cache_name)
        waiting = (
            None
            if in_force or name == "shrink"
            else waiting_request(registry, cache["birth"], name)
        )
        value = (
            effective(registry, cache, name)
            if waiting is None
            else str(registry.read("request", "value", waiting))
        )
    if value:
        typer.echo(value)


def most(cache: Cache, name: str) -> int:
    """The greatest value that an attribute takes."""
    limit = ATTRIBUTES[name].most
    return cache[f"{name}_most"] if limit is None else limit


DIGITS_MOST = 20  # of the largest 64-bit number


def check_value(cache: Cache, name: str, value: str) -> int:
    limit = most(cache, name)
    where = f"{cache.name}/{name}"
    least = 1 if name == "shrink" else 0
    if cache.fields["engine"] == "slab" and name == "sheaf_capacity":
        least = limit
    expected = f"{least}" if least == limit else f"a number from {least} to {limit}"
    is_number = value.isascii() and value.isdecimal() and len(value) <= DIGITS_MOST
    if not is_number or not least <= int(value) <= limit:
        raise BadUsage(f"{where}: {value!r}; expected {expected}; nothing changed")
    if name == "failslab" and cache["aliases"]:
        raise KmemError(f"{where}: the cache has aliases and cannot be marked; nothing changed")
    return int(value)


def write_attribute(process: int, text: str, value: str) -> None:
    cache_name, name = split_name(text)
    if name not in WRITABLE.split():
        raise BadUsage(f"attr {text}: read only; one can write {WRITABLE}")
    with open_process(process, writable=True) as registry:
        if cache_name == ALL and name == OF_ALL:
            write_for_all(registry, value)
            return
        cache = find_cache(registry, cache_name)
        ask(registry, cache["birth"], name, str(check_value(cache, name, value)))


def write_for_all(registry: Registry, value: str) -> None:
    """The attribute that can be written for all caches at once, and for those to come."""
    if "guards_made" not in registry.parts["head"]:
        raise KmemError(f"process {registry.process}: its library is older than {OF_ALL}")
    limit = ATTRIBUTES[OF_ALL].most
    is_number = value.isascii() and value.isdecimal() and len(value) <= DIGITS_MOST
    if not is_number or limit is None or int(value) > limit:
        raise BadUsage(
            f"{ALL}/{OF_ALL}: {value!r}; expected a number from 0 to {limit}; nothing changed"
        )
    ask(registry, 0, OF_ALL, str(int(value)))
