# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem ps, info, attr and trim: processes that run on libkmem, seen and steered from outside."""

import json
from pathlib import Path

import typer

from kmem.common.attribute_table import ATTRIBUTES
from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.processes import command
from kmem.live.registry.file import Cache, Registry, on_libkmem, open_process, read_each
from kmem.live.registry.layout import FLAGS, RegistryError
from kmem.traces.slabinfo import HEADER_LINE, VERSION_LINE

WAIT_SECONDS = 2.0  # for what the process itself has to work out or do

# Numbers that stand in the cache's record under the attribute's name.
PLAIN = (
    "slab_size object_size objs_per_slab order align min_partial cpu_partial usersize aliases"
    " failslab remote_node_defrag_ratio skip_kfence sheaf_capacity engine"
)
# Known without the process: sums over nodes.
LIVE_NODES = {"slabs": "slabs", "total_objects": "objects", "partial": "partial"}
# Worked out by the process on request.
REFRESHED = "objects objects_partial cpu_slabs slabs_cpu_partial objects_inuse"
WRITABLE = " ".join(name for name, attribute in ATTRIBUTES.items() if attribute.outside)
NAMES = sorted({*f"{PLAIN} {FLAGS} {REFRESHED} {WRITABLE}".split(), *LIVE_NODES})


def word(name: str) -> str:
    """A name as the slab table has it: one word that moves no cursor, and not a comment."""
    shown = "".join(letter if letter != " " and letter.isprintable() else "!" for letter in name)
    return "!" + shown[1:] if shown.startswith("#") else shown


def table_row(cache: Cache) -> dict[str, int | str]:
    slabs = cache.total("slabs")
    return {
        "name": word(cache.name),
        "active_objs": cache.active,
        "num_objs": cache.objects,
        "objsize": cache["slab_size"],
        "objperslab": cache["objs_per_slab"],
        "pagesperslab": cache.pages_per_slab,
        "limit": cache["limit"],
        "batchcount": cache["batchcount"],
        "sharedfactor": cache["shared"],
        "active_slabs": slabs - min(cache.total("free_slabs"), slabs),
        "num_slabs": slabs,
        "sharedavail": cache.total("shared_objects"),
    }


def table_line(row: dict[str, int | str]) -> str:
    return (
        "{name:<17} {active_objs:>6} {num_objs:>6} {objsize:>6} {objperslab:>4} {pagesperslab:>4}"
        " : tunables {limit:>4} {batchcount:>4} {sharedfactor:>4}"
        " : slabdata {active_slabs:>6} {num_slabs:>6} {sharedavail:>6}"
    ).format(**row)


def find_cache(registry: Registry, name: str) -> Cache:
    for cache in registry.caches():
        if name in (cache.name, word(cache.name)):
            return cache
    process = registry.process
    raise RegistryError(f"process {process} has no cache {name!r} (kmem info {process} lists them)")


def process_row(registry: Registry) -> dict[str, int | str]:
    caches = registry.caches()
    return {
        "pid": registry.process,
        "command": command(registry.process),
        "caches": len(caches),
        "slab_kib": sum(cache.slab_bytes for cache in caches) >> 10,
        "release": registry.read("head", "release"),
    }


def show_processes(*, as_json: bool) -> None:
    refusals: list[str] = []
    rows = read_each(process_row, refusals)
    for refusal in refusals:
        say(refusal)
    seen = {row["pid"] for row in rows}
    rows += [
        {"pid": process, "command": command(process), "caches": 0, "slab_kib": 0, "release": "-"}
        for process in on_libkmem() - seen
    ]
    rows.sort(key=lambda row: row["pid"])
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    typer.echo(f"{'PID':>7} {'CACHES':>6} {'SLAB_KIB':>9} {'RELEASE':<8} COMMAND")
    for row in rows:
        typer.echo("{pid:>7} {caches:>6} {slab_kib:>9} {release:<8} {command}".format(**row))


def show_info(process: int, cache_name: str | None, *, as_json: bool) -> None:
    with open_process(process) as registry:
        caches = [find_cache(registry, cache_name)] if cache_name is not None else registry.caches()
        rows = [table_row(cache) for cache in caches]
        missing = registry.number("head", "missing")
    if as_json:
        document = {"pid": process, "caches": rows, "records_missing": missing}
        typer.echo(json.dumps(document, indent=1))
        return
    typer.echo(VERSION_LINE)
    typer.echo(HEADER_LINE)
    for row in rows:
        typer.echo(table_line(row))
    if missing:
        typer.echo(f"# records that found no room in the registry: {missing}")


def nodes_text(counts: list[tuple[int, int]]) -> str:
    """TOTAL N0=x N1=y, with the nodes that have any."""
    parts = [f" N{number}={count}" for number, count in counts if count]
    return f"{sum(count for _, count in counts)}{''.join(parts)}"


def split_name(text: str) -> tuple[str, str]:
    """Of CACHE/NAME; the cache's name may hold slashes itself."""
    cache, slash, name = text.rpartition("/")
    if not slash or not cache or not name:
        raise BadUsage(f"attr {text!r}: expected CACHE/NAME, like kmalloc-64/cpu_partial")
    if name not in NAMES:
        raise BadUsage(f"attr {text}: no attribute {name}; there are {' '.join(NAMES)}")
    return cache, name


def refreshed(registry: Registry, cache: Cache, name: str) -> str:
    """A figure that nobody keeps: the process works it out at its next slow path."""
    process = registry.process
    request = registry.ask(cache["birth"], "refresh")
    done = registry.wait(request, WAIT_SECONDS)
    if done is None:
        raise RegistryError(
            f"{cache.name}/{name}: process {process} would have to work"
            " it out and sleeps; it will at its next refill or drain"
        )
    # Another cache may have its record since.
    found = [one for one in registry.caches() if one["birth"] == cache["birth"]]
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
        waiting = None if in_force or name == "shrink" else registry.waiting(cache["birth"], name)
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
        cache = find_cache(registry, cache_name)
        registry.ask(cache["birth"], name, str(check_value(cache, name, value)))


def trim(process: int) -> None:
    with open_process(process, writable=True) as registry:
        done = registry.wait(registry.ask(0, "trim"), WAIT_SECONDS)
    if done is not None:
        typer.echo(f"{done[1]} bytes given back")
        return
    if not Path(f"/proc/{process}").exists():
        raise RegistryError(f"process {process} has ended")
    typer.echo(
        f"pending: process {process} has not passed a refill or drain for {WAIT_SECONDS:g} s; it"
        " trims at the next one"
    )
