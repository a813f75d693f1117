# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem ps and info: the processes that run on libkmem, and the slab table of each."""

import json
import os
from dataclasses import asdict
from operator import itemgetter

import typer

from kmem.common.errors import say
from kmem.common.processes import command, title
from kmem.live.registry.caches import Cache, read_caches
from kmem.live.registry.file import Registry
from kmem.live.registry.find import on_libkmem, open_process, read_each
from kmem.live.registry.heap import read_guards, read_soft_limit
from kmem.live.registry.layout import RegistryError
from kmem.traces.slabinfo import HEADER_LINE, VERSION_LINE


def word(name: str) -> str:
    """A name as the slab table has it: a word without control characters, and not a comment."""
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
    # A byte that is no UTF-8 is a surrogate on the command line, and \xNN in a registry's names.
    name = os.fsencode(name).decode("utf-8", "backslashreplace")
    caches = read_caches(registry)
    # A cache's own name comes first: the word of another, newer cache may be equal to it.
    for name_of in (lambda cache: cache.name, lambda cache: word(cache.name)):
        for cache in caches:
            if name_of(cache) == name:
                return cache
    process = registry.process
    if name == "*":
        raise RegistryError(
            f"process {process} has no cache '*'; expected the name of one; a single attribute is"
            " written for all at once: kmem attr PID '*/guard_sampling' VALUE"
        )
    raise RegistryError(f"process {process} has no cache {name!r} (kmem info {process} lists them)")


def names_of(process: int) -> dict[str, int | str | None]:
    return {"command": command(process), "command_line": title(process)}


def process_row(registry: Registry) -> dict[str, int | str | None]:
    caches = read_caches(registry)
    return {
        "pid": registry.process,
        **names_of(registry.process),
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
    nothing = {"caches": None, "slab_kib": None, "release": None}
    rows += [{"pid": process, **names_of(process), **nothing} for process in on_libkmem() - seen]
    rows.sort(key=itemgetter("pid"))
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    typer.echo(f"{'PID':>7} {'CACHES':>6} {'SLAB_KIB':>9} {'RELEASE':<8} COMMAND")
    for row in rows:
        shown = {name: "-" if cell is None else cell for name, cell in row.items()}
        typer.echo("{pid:>7} {caches:>6} {slab_kib:>9} {release:<8} {command_line}".format(**shown))


def read_protection(registry: Registry) -> dict[str, int | str] | None:
    """The level of option protect and what it keeps; None without it, or from an older library."""
    head = registry.parts["head"]
    if "hardened_level" not in head or not registry.number("head", "hardened_level"):
        return None
    sizes = ("slab_bytes", "large_bytes", "waiting_bytes", "closed_bytes")
    return {"level": "hardened"} | {
        name: registry.number("head", f"hardened_{name}") for name in sizes
    }


def show_info(process: int, cache_name: str | None, *, as_json: bool) -> None:
    with open_process(process) as registry:
        caches = (
            [find_cache(registry, cache_name)] if cache_name is not None else read_caches(registry)
        )
        rows = [table_row(cache) for cache in caches]
        missing = registry.number("head", "missing")
        protection = read_protection(registry)
        guards = read_guards(registry)
        limit = read_soft_limit(registry)
    if as_json:
        document = {
            "pid": process,
            "caches": rows,
            "records_missing": missing,
            "protect": protection,
            "guards": guards and asdict(guards),
            "soft_limit": limit and asdict(limit),
        }
        typer.echo(json.dumps(document, indent=1))
        return
    typer.echo(VERSION_LINE)
    typer.echo(HEADER_LINE)
    for row in rows:
        typer.echo(table_line(row))
    if protection:
        typer.echo(
            "# protect={level}: {slab_bytes} bytes in slabs and {large_bytes} in large blocks;"
            " {waiting_bytes} bytes of freed blocks wait, and {closed_bytes} without"
            " memory".format(**protection)
        )
    if guards is not None and guards.made:
        typer.echo(
            f"# guards: {guards.made} made, {guards.live} live, {guards.missed} missed,"
            f" {guards.faults} faults"
        )
    if limit is not None:
        typer.echo(
            f"# soft_limit: {limit.limit_bytes} bytes; {limit.trims} trims gave back"
            f" {limit.given_back_bytes} bytes"
        )
    if missing:
        typer.echo(f"# records that found no room in the registry: {missing}")
