# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A process with a simulated machine, which makes caches and prints their attributes.

    make_caches.py LIBRARY CPUS OPTIONS < CACHES

LIBRARY is libkmem-simulator-4k.so. CACHES is a JSON object of the arguments of each cache by its
name; the output has the attributes of each cache as text, by its name and theirs. The caches of
kmalloc are the library's own, which a first block makes.
"""

import ctypes
import json
import re
import sys

FLAGS = {
    "hwcache_align": 0x2000,
    "cache_dma": 0x4000,
    "reclaim_account": 0x20000,
    "destroy_by_rcu": 0x80000,
}
ATTRIBUTES = (
    *("object_size", "slab_size", "align", "order", "objs_per_slab"),
    *("min_partial", "cpu_partial", "slabs_cpu_partial", "sheaf_capacity"),
    *("usersize", *FLAGS),
)
TEXT_BYTES = 256
CONSTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Machine(ctypes.Structure):
    """struct sim_machine."""

    _fields_ = (
        ("cpus_online", ctypes.c_uint),
        ("cpus_present", ctypes.c_uint),
        ("cpus_possible", ctypes.c_uint),
        ("nodes", ctypes.c_uint),
        ("memory_bytes", ctypes.c_uint64),
        ("options", ctypes.c_char_p),
    )


class Arguments(ctypes.Structure):
    """struct kmem_cache_args."""

    _fields_ = (
        ("align", ctypes.c_uint),
        ("useroffset", ctypes.c_uint),
        ("usersize", ctypes.c_uint),
        ("freeptr_offset", ctypes.c_uint),
        ("use_freeptr_offset", ctypes.c_bool),
        ("sheaf_capacity", ctypes.c_uint),
        ("ctor", CONSTRUCTOR),
    )


def nothing(_: int | None) -> None:
    """The constructor of all caches that have one."""


def allocate(library: ctypes.CDLL, size: int) -> None:
    library.kmalloc.restype = ctypes.c_void_p
    if not library.kmalloc(ctypes.c_size_t(size), 0):
        sys.exit(f"no block of {size} bytes")


def make(library: ctypes.CDLL, name: str, given: dict[str, int], constructor: object) -> None:
    arguments = Arguments(
        align=given.get("align", 0),
        usersize=given.get("usersize", 0),
        freeptr_offset=given.get("freeptr_offset", 0),
        use_freeptr_offset="freeptr_offset" in given,
        sheaf_capacity=given.get("sheaf_capacity", 0),
    )
    if given.get("ctor"):
        arguments.ctor = constructor
    flags = sum(flag for word, flag in FLAGS.items() if given.get(word))
    create = library.kmem_cache_create_args
    create.restype = ctypes.c_void_p
    if not create(name.encode(), given["object_size"], ctypes.byref(arguments), flags):
        sys.exit(f"no cache {name} with {given}")


def attribute(library: ctypes.CDLL, name: str, word: str) -> str:
    text = ctypes.create_string_buffer(TEXT_BYTES)
    read = library.kmem_attr_read
    if read(name.encode(), word.encode(), text, ctypes.c_size_t(TEXT_BYTES)) < 0:
        sys.exit(f"no attribute {word} of {name}")
    return text.value.decode().strip()


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    cpus, options = int(sys.argv[2]), sys.argv[3].encode()
    if library.sim_start(ctypes.byref(Machine(cpus_online=cpus, options=options))):
        sys.exit("the machine does not start")
    constructor = CONSTRUCTOR(nothing)
    caches = json.load(sys.stdin)
    for name, given in caches.items():
        if re.fullmatch(r"kmalloc-\d+k?", name):
            allocate(library, given["object_size"])
        else:
            make(library, name, given, constructor)
    made = {name: {word: attribute(library, name, word) for word in ATTRIBUTES} for name in caches}
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
