# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A process with the library in it, whose heap holds nothing but what is asked for.

    heap_server.py SOCKET LIBRARY

Loads libkmem-malloc.so beside libc's malloc, which stays Python's own. Each
connection is served by a child that was forked off the untouched heap, so that
every one begins with the same state, and one that crashes takes nothing along.
A request is a list of operations, tuples that begin with a method of Worker;
the answer is the list of their results.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Listener
from typing import Any

POINTER = ctypes.c_void_p
INT = ctypes.c_int
LONG = ctypes.c_long
NOTHING = None

RESULTS: dict[str, Any] = {
    "kmem_cache_alloc": POINTER,
    "kmem_cache_alloc_node": POINTER,
    "kmem_cache_free": NOTHING,
    "kmem_cache_destroy": NOTHING,
    "kmem_cache_shrink": INT,
    "kmem_cache_size": ctypes.c_uint,
    "kmalloc": POINTER,
    "kzalloc": POINTER,
    "kcalloc": POINTER,
    "kmalloc_array": POINTER,
    "kmalloc_size_roundup": ctypes.c_size_t,
    "krealloc": POINTER,
    "ksize": ctypes.c_size_t,
    "kfree": NOTHING,
    "kfree_sensitive": NOTHING,
    "malloc": POINTER,
    "calloc": POINTER,
    "realloc": POINTER,
    "memalign": POINTER,
    "aligned_alloc": POINTER,
    "free": NOTHING,
    "malloc_usable_size": ctypes.c_size_t,
    "malloc_trim": INT,
    "mempool_alloc": POINTER,
    "mempool_alloc_preallocated": POINTER,
    "mempool_free": NOTHING,
    "mempool_resize": INT,
    "mempool_destroy": NOTHING,
    "kmem_free_rcu": NOTHING,
    "kfree_rcu_barrier": NOTHING,
    "kmem_synchronize_rcu": NOTHING,
    "kmem_rcu_read_lock": NOTHING,
    "kmem_rcu_read_unlock": NOTHING,
    "kmem_group_create": POINTER,
    "kmem_group_destroy": LONG,
    "kmem_group_set": POINTER,
    "kmem_group_set_limit": INT,
}

# Of both values of option classes.
CLASSES = sorted(
    {8, 192, *range(16, 128, 16)}
    | {base // 8 * step for base in (128 << n for n in range(8)) for step in range(8, 17)}
    | {*range(36864, 65536, 4096)}
    | {base // 4 * step for base in (65536, 131072) for step in range(4, 9)}
)

CONSTRUCTOR = ctypes.CFUNCTYPE(None, POINTER)


class Worker:
    """The operations; addresses are plain numbers, NULL is 0."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.constructors: list[Any] = []
        # Registering for membarrier is quick as long as there is one thread.
        self.call("kmem_synchronize_rcu")
        self.call("malloc_trim", 0)
        self.other = ThreadPoolExecutor(1)

    def call(self, name: str, *arguments: int) -> tuple[int, int]:
        """A function of the library; its result, and errno, which was 0 before."""
        function = getattr(self.library, name)
        function.restype = RESULTS[name]
        ctypes.set_errno(0)
        result = function(*map(ctypes.c_size_t, arguments))
        return result or 0, ctypes.get_errno()

    def elsewhere(self, name: str, *arguments: int) -> tuple[int, int]:
        """The same in another thread, always the same one."""
        return self.other.submit(self.call, name, *arguments).result()

    def create(self, name: str, size: int, align: int, flags: int, built: int) -> tuple[int, int]:
        """kmem_cache_create; with @built the constructor fills objects with it."""
        function = self.library.kmem_cache_create
        function.restype = POINTER
        made = CONSTRUCTOR(lambda at: ctypes.memset(at, built, size) and None)
        if built:
            self.constructors.append(made)  # for as long as the cache may call it
        ctypes.set_errno(0)
        cache = function(name.encode(), size, align, flags, made if built else None)
        return cache or 0, ctypes.get_errno()

    def alloc_bulk(self, cache: int, flags: int, count: int) -> tuple[int, list[int], int]:
        objects = (POINTER * count)()
        ctypes.set_errno(0)
        got = self.library.kmem_cache_alloc_bulk(
            POINTER(cache), flags, ctypes.c_size_t(count), objects
        )
        return got, [at or 0 for at in objects[:got]], ctypes.get_errno()

    def free_bulk(self, cache: int, objects: list[int]) -> None:
        array = (POINTER * len(objects))(*objects)
        self.library.kmem_cache_free_bulk(POINTER(cache), ctypes.c_size_t(len(objects)), array)

    def pool(self, least: int, kind: str, data: int) -> tuple[int, int]:
        """mempool_create with the functions of a kind: slab, kmalloc, pages."""
        alloc, free = {
            "slab": (self.library.mempool_alloc_slab, self.library.mempool_free_slab),
            "kmalloc": (self.library.mempool_kmalloc, self.library.mempool_kfree),
            "pages": (self.library.mempool_alloc_pages, self.library.mempool_free_pages),
        }[kind]
        function = self.library.mempool_create
        function.restype = POINTER
        ctypes.set_errno(0)
        made = function(least, alloc, free, ctypes.c_size_t(data))
        return made or 0, ctypes.get_errno()

    def reserve(self, pool: int) -> tuple[int, list[int]]:
        """What a pool promises, and the elements it has."""
        promised, current = (ctypes.c_int * 2).from_address(pool)
        elements = POINTER.from_address(pool + 16).value or 0
        return promised, list((ctypes.c_size_t * current).from_address(elements))

    def group(self, name: str, parent: int, limit: int) -> tuple[int, int]:
        function = self.library.kmem_group_create
        function.restype = POINTER
        ctypes.set_errno(0)
        made = function(name.encode(), POINTER(parent), ctypes.c_size_t(limit))
        return made or 0, ctypes.get_errno()

    def group_stats(self, group: int) -> tuple[int, ...]:
        """bytes, objects, limit, peak, refusals, unowned."""
        stats = (ctypes.c_size_t * 6)()
        if self.library.kmem_group_stats(POINTER(group), stats):
            return ()
        return tuple(stats)

    def number(self, cache: str, attribute: str) -> int:
        """A number among a cache's attributes, -1 if there is no such cache."""
        text = ctypes.create_string_buffer(64)
        if self.library.kmem_attr_read(cache.encode(), attribute.encode(), text, 64) < 0:
            return -1
        return int(text.value)

    def large_taken(self) -> int:
        """Large and huge blocks handed out since the start, the last field of kmem_stats."""
        stats = (ctypes.c_uint64 * 24)(24 * 8)
        assert not self.library.kmem_stats_get(stats)
        return stats[23]

    def tune(self, cache: str, attribute: str, value: int) -> tuple[int, int]:
        """kmem_attr_write; its result, and errno."""
        ctypes.set_errno(0)
        result = self.library.kmem_attr_write(
            cache.encode(), attribute.encode(), str(value).encode()
        )
        return result, ctypes.get_errno()

    def write_slabinfo(self, line: str) -> tuple[int, int]:
        """kmem_slabinfo_write; its result, and errno."""
        ctypes.set_errno(0)
        result = self.library.kmem_slabinfo_write(line.encode())
        return result, ctypes.get_errno()

    def class_counts(self) -> dict[str, tuple[int, int]]:
        """Objects in use, and their stride, of each size class that has been needed."""
        found = {}
        for size in CLASSES:
            short = f"{size // 1024}k" if size % 1024 == 0 else f"{size}"
            for name in (f"kmalloc-{short}", f"kmalloc-cg-{short}"):
                inuse = self.number(name, "objects_inuse")
                if inuse >= 0:
                    found[name] = inuse, self.number(name, "slab_size")
        return found

    def fill(self, at: int, count: int, byte: int) -> None:
        ctypes.memset(at, byte, count)

    def holds(self, at: int, count: int, byte: int) -> bool:
        return ctypes.string_at(at, count) == bytes([byte]) * count

    def end(self) -> None:
        """Ends the process as a program does, which writes the slab table."""
        ctypes.CDLL(None).exit(0)


def serve(connection: Connection, library: ctypes.CDLL) -> None:
    os.dup2(os.open(connection.recv(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    worker = Worker(library)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        answers = []
        for name, *arguments in request:
            operation: Callable[..., Any] = getattr(worker, name)
            answers.append(operation(*arguments))
        connection.send(answers)


def main() -> None:
    socket, path = sys.argv[1:]
    library = ctypes.CDLL(path, use_errno=True)
    with Listener(socket, "AF_UNIX", backlog=8) as listener:
        print("ready", flush=True)
        while True:
            connection = listener.accept()
            if os.fork() == 0:
                serve(connection, library)
                os._exit(0)
            connection.close()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass


if __name__ == "__main__":
    main()
