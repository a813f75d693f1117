# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random sequences of all calls against the model."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from heap import Heap, Server
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from model import (
    ACCOUNT,
    EBUSY,
    EINVAL,
    EIO,
    ENOMEM,
    ERANGE,
    HUGE,
    HWCACHE_ALIGN,
    KERNEL,
    NO_MERGE,
    NOWAIT,
    PAGE,
    RECLAIM_ACCOUNT,
    SLAB_ACCOUNT,
    TYPESAFE,
    ZERO,
    ZERO_SIZE,
    Block,
    Cache,
    Group,
    Places,
    Pool,
    Rules,
    up,
)

LOOK = 16384  # bytes of a block that are filled and compared; of longer ones the two ends
CACHES_MAX, GROUPS_MAX, POOLS_MAX = 4, 4, 3
POOL_BYTES = 48

T = TypeVar("T")

small_sizes = st.integers(1, 300)
edges = st.sampled_from(
    [
        *(
            edge + step
            for edge in (8, 16, 128, 4080, 4088, 4096, 8192, 32768)
            for step in (-1, 0, 1)
        ),
        *(28672, 65536, 1 << 20, (1 << 20) + 1),
        *(HUGE - PAGE, HUGE - 1, HUGE, HUGE + 1, HUGE + (4 << 20)),
    ]
)
sizes = st.one_of(small_sizes, small_sizes, st.integers(1, 9000), st.integers(1, 100000), edges)
object_sizes = st.one_of(small_sizes, st.integers(1, 3000), st.integers(1, 20000))
aligns = st.sampled_from([0, 0, 0, 8, 16, 32, 64, 256, 1024, 4096])
block_aligns = st.sampled_from([16, 32, 64, 128, 512, 2048, 4096, 8192, 65536, 1 << 22])
bytes_ = st.integers(1, 255)
picks = st.integers(0, 1 << 16)
counts = st.one_of(st.integers(0, 8), st.integers(0, 300))
limits = st.one_of(st.just(0), st.integers(1, 3000), st.integers(1, 200000))


def pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


class Calls(RuleBasedStateMachine):
    """All calls; see model.py for what they must do."""

    def __init__(self, server: Server, options: str) -> None:
        super().__init__()
        self.heap = Heap(server)
        self.rules = Rules(
            slob="engine=slob" in options,
            slab="engine=slab" in options,
            class_max=8192 if "classes=kernel" in options else 32768,
            debug=options.partition("debug=")[2].partition(",")[0],
        )
        self.caches: list[Cache] = []
        self.blocks: list[Block] = []
        self.pools: list[Pool] = []
        self.groups: list[Group] = []
        self.current: Group | None = None
        self.places = Places()
        self.made = 0
        self.later: list[tuple[tuple[Any, ...], object]] = []

    # ---- What every call has in common ------------------------------------------------------

    def ask(self, *operations: tuple[Any, ...]) -> list[Any]:
        """The results of operations; what was put off is done before."""
        later, self.later = self.later, []
        answers = self.heap.ask(*(operation for operation, _ in later), *operations)
        for (operation, wrong), answer in zip(later, answers, strict=False):
            assert answer is not False, f"{wrong}: {operation}"
        return answers[len(later) :]

    def put_off(self, *operation: Any, wrong: object = "") -> None:
        """An operation whose result can wait, as long as it is not False."""
        self.later.append((operation, wrong))

    def call(self, name: str, *arguments: int) -> tuple[int, int]:
        result: tuple[int, int] = self.ask(("call", name, *arguments))[0]
        return result

    def fill(self, block: Block, byte: int) -> None:
        block.fill = byte
        for at, count in self.looked_at(block):
            self.put_off("fill", at, count, byte)

    @staticmethod
    def looked_at(block: Block) -> list[tuple[int, int]]:
        if block.size <= LOOK:
            return [(block.address, block.size)]
        half = LOOK // 2
        return [(block.address, half), (block.address + block.size - half, half)]

    def check(self, block: Block, byte: int) -> None:
        """Every byte of a block that is looked at has this value."""
        for at, count in self.looked_at(block):
            self.put_off("holds", at, count, byte, wrong=block)

    def check_start(self, block: Block, byte: int, size: int) -> None:
        self.put_off("holds", block.address, min(size, LOOK // 2), byte, wrong=block)

    def arrive(self, block: Block, align: int, *, zero: bool, byte: int) -> None:
        """A block was handed out."""
        assert block.address % align == 0, f"{block.address:#x} is not aligned to {align}"
        self.places.add(block.address, max(block.usable, block.size))
        if zero:
            self.check(block, 0)
        self.fill(block, byte)

    def leave(self, block: Block) -> None:
        """A block is about to be given back."""
        self.check(block, block.fill)
        self.forget(block)

    def forget(self, block: Block) -> None:
        self.places.remove(block.address)
        block.uncharge()

    def accounts(self, wanted: bool) -> Group | None:
        """Whom a request is charged to (S11-02)."""
        return self.current if wanted else None

    # ---- Caches -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.caches) < CACHES_MAX)
    @rule(
        size=object_sizes,
        align=aligns,
        flags=st.sets(
            st.sampled_from([HWCACHE_ALIGN, RECLAIM_ACCOUNT, TYPESAFE, NO_MERGE, SLAB_ACCOUNT])
        ),
        built=st.sampled_from([0, 0, 0x5C]),
    )
    def create_cache(self, size: int, align: int, flags: set[int], built: int) -> None:
        self.made += 1
        name, bits = f"cache-{self.made}", sum(flags)
        address, _ = self.ask(("create", name, size, align, bits, built))[0]
        assert address
        assert self.call("kmem_cache_size", address)[0] == size
        stride = self.rules.stride(size, align, bits)
        align = self.rules.align(size, align, bits)
        self.caches.append(Cache(address, name, size, align, bits, built, stride))

    @rule(bad=st.sampled_from([("", 8, 0, 0), ("x", 0, 0, 0), ("x", 8, 24, 0), ("x", 8, 8192, 0)]))
    def create_wrong_cache(self, bad: tuple[str, int, int, int]) -> None:
        assert self.ask(("create", *bad, 0))[0] == (0, EINVAL)

    def charged(self, cache: Cache, flags: int) -> Group | None:
        return self.accounts(bool(flags & ACCOUNT or cache.flags & SLAB_ACCOUNT))

    def new_object(self, cache: Cache, address: int, flags: int, byte: int) -> Block:
        block = Block(address, cache.size, cache.size, cache=cache)
        block.owner = self.charged(cache, flags)
        block.charge = cache.stride + 8
        self.arrive(block, cache.align, zero=bool(flags & ZERO), byte=byte)
        return block

    def flags_for(self, cache: Cache, zero: bool, account: bool) -> int:
        # Clearing an object would undo what the constructor did.
        return KERNEL | (ZERO if zero and not cache.built else 0) | (ACCOUNT if account else 0)

    @precondition(lambda self: self.caches)
    @rule(
        number=picks,
        zero=st.booleans(),
        account=st.booleans(),
        byte=bytes_,
        far=st.booleans(),
        node=st.sampled_from([None, None, 0, 1]),
    )
    def cache_alloc(
        self, number: int, zero: bool, account: bool, byte: int, far: bool, node: int | None
    ) -> None:
        cache = pick(self.caches, number)
        flags = self.flags_for(cache, zero, account)
        owner = self.charged(cache, flags)
        # Another thread is in no group.
        where = "elsewhere" if far and not owner else "call"
        how = "kmem_cache_alloc" if node is None else "kmem_cache_alloc_node"
        wish = () if node is None else (node,)
        address, error = self.ask((where, how, cache.address, flags, *wish))[0]
        if owner and not owner.charge(1, cache.stride + 8):
            assert (address, error) == (0, ENOMEM)
            return
        assert address
        if cache.built:
            self.put_off("holds", address, cache.size, cache.built, wrong=cache)
        cache.live.append(self.new_object(cache, address, flags, byte))

    def give_back(self, cache: Cache, block: Block) -> None:
        """What a program does before it frees: constructed objects go back as they came."""
        self.leave(block)
        if cache.built:
            self.put_off("fill", block.address, cache.size, cache.built)

    @precondition(lambda self: any(cache.live for cache in self.caches))
    @rule(number=picks, at=picks, by_address=st.booleans(), far=st.booleans())
    def cache_free(self, number: int, at: int, by_address: bool, far: bool) -> None:
        cache = pick([cache for cache in self.caches if cache.live], number)
        block = cache.live.pop(at % len(cache.live))
        self.give_back(cache, block)
        where = "elsewhere" if far else "call"
        if by_address and not self.rules.slob:
            self.put_off(where, "kfree", block.address)
        else:
            self.put_off(where, "kmem_cache_free", cache.address, block.address)

    @precondition(lambda self: self.caches)
    @rule(number=picks, count=counts, zero=st.booleans(), account=st.booleans(), byte=bytes_)
    def alloc_bulk(self, number: int, count: int, zero: bool, account: bool, byte: int) -> None:
        cache = pick(self.caches, number)
        self.bulk(cache, count, self.flags_for(cache, zero, account), byte)

    def bulk(self, cache: Cache, count: int, flags: int, byte: int) -> None:
        owner = self.charged(cache, flags)
        got, objects, error = self.ask(("alloc_bulk", cache.address, flags, count))[0]
        if count and owner and not owner.charge(count, cache.stride + 8):
            assert (got, error) == (0, ENOMEM)
            return
        assert got == count
        for address in objects:
            cache.live.append(self.new_object(cache, address, flags, byte))

    @precondition(lambda self: any(cache.live for cache in self.caches))
    @rule(number=picks, count=counts, any_cache=st.booleans(), holes=st.booleans())
    def free_bulk(self, number: int, count: int, any_cache: bool, holes: bool) -> None:
        self.free_some(
            pick([cache for cache in self.caches if cache.live], number),
            number,
            count,
            any_cache=any_cache,
            holes=holes,
        )

    @precondition(lambda self: self.caches)
    @rule(
        number=picks,
        rounds=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=2, max_size=6),
        byte=bytes_,
    )
    def burst(self, number: int, rounds: list[tuple[int, int]], byte: int) -> None:
        """Through sheaves and arrays and back, with one cache."""
        cache = pick(self.caches, number)
        for taken, given in rounds:
            self.bulk(cache, taken, KERNEL, byte)
            self.free_some(cache, number, given)

    def free_some(
        self, cache: Cache, number: int, count: int, *, any_cache: bool = False, holes: bool = False
    ) -> None:
        objects = []
        for _ in range(min(count, len(cache.live))):
            block = cache.live.pop(number % len(cache.live))
            self.give_back(cache, block)
            objects.append(block.address)
            if holes:
                objects.append(0)
        any_cache &= not self.rules.slob
        self.put_off("free_bulk", 0 if any_cache else cache.address, objects)

    @precondition(lambda self: self.caches)
    @rule(number=picks)
    def shrink(self, number: int) -> None:
        cache = pick(self.caches, number)
        remain, _ = self.call("kmem_cache_shrink", cache.address)
        if self.rules.slob:
            assert remain == 0
        elif not cache.pending:
            pools = [pool for pool in self.pools if pool.cache is cache]
            held = cache.live or any(pool.reserve or pool.out for pool in pools)
            assert remain == bool(held)

    @precondition(lambda self: self.caches)
    @rule(
        number=picks,
        attribute=st.sampled_from(["sheaf_capacity", "min_partial", "cpu_partial"]),
        value=st.integers(0, 40),
    )
    def tune(self, number: int, attribute: str, value: int) -> None:
        """A value that holds is read back; no object is touched, whatever it is."""
        name = pick(self.caches, number).name
        result, error = self.ask(("tune", name, attribute, value))[0]
        if result:
            assert error in (EINVAL, EIO, ERANGE)
        else:
            assert self.ask(("number", name, attribute))[0] == value

    @precondition(lambda self: self.caches)
    @rule(
        number=picks,
        limit=st.integers(-1, 200),
        batchcount=st.integers(-1, 200),
        shared=st.integers(-1, 10),
    )
    def write_slabinfo(self, number: int, limit: int, batchcount: int, shared: int) -> None:
        """Taken, or ignored if impossible; other engines refuse it. No object is touched."""
        name = pick(self.caches, number).name
        before = self.ask(("number", name, "sheaf_capacity"))[0]
        line = f"{name} {limit} {batchcount} {shared}"
        result, error = self.ask(("write_slabinfo", line))[0]
        if not self.rules.slab:
            assert (result, error) == (-1, EIO)
            return
        assert result == 0
        taken = 1 <= batchcount <= limit and shared >= 0
        assert self.ask(("number", name, "sheaf_capacity"))[0] == (limit if taken else before)

    @precondition(lambda self: any(not cache.live and not cache.pools for cache in self.caches))
    @rule(number=picks)
    def destroy_cache(self, number: int) -> None:
        cache = pick([cache for cache in self.caches if not cache.live and not cache.pools], number)
        self.caches.remove(cache)
        self.call("kmem_cache_destroy", cache.address)

    @precondition(lambda self: any(cache.live and cache.flags & TYPESAFE for cache in self.caches))
    @rule(number=picks)
    def free_under_reader(self, number: int) -> None:
        """S8-30: a reader still finds an object where it was, whatever is shrunk."""
        cache = pick(
            [cache for cache in self.caches if cache.live and cache.flags & TYPESAFE], number
        )
        block = cache.live.pop(number % len(cache.live))
        self.give_back(cache, block)
        byte = cache.built or block.fill
        self.call("kmem_rcu_read_lock")
        self.call("kmem_cache_free", cache.address, block.address)
        self.call("kmem_cache_shrink", cache.address)
        self.check(block, byte)
        self.call("kmem_rcu_read_unlock")

    # ---- Memory by size ---------------------------------------------------------------------

    def usable(self, address: int) -> int:
        return self.call("ksize", address)[0]

    def new_block(self, address: int, size: int, align: int = 0) -> Block:
        """@align 0: by kmalloc, else by malloc or with an alignment."""
        block = Block(address, size, self.usable(address), from_class="kmalloc")
        block.large = self.rules.is_large(size, align)
        block.huge = block.large and block.usable >= HUGE
        assert block.usable >= size
        return block

    def block_charge(self, size: int) -> int:
        if self.rules.is_large(size):
            return up(size, PAGE)
        if self.rules.slob:
            return up(size, 8) + 8
        return self.rules.class_stride(self.call("kmalloc_size_roundup", size)[0]) + 8

    @rule(
        size=sizes,
        how=st.sampled_from(["kmalloc", "kzalloc", "kcalloc", "kmalloc_array"]),
        account=st.booleans(),
        byte=bytes_,
    )
    def kmalloc(self, size: int, how: str, account: bool, byte: int) -> None:
        flags = KERNEL | (ACCOUNT if account else 0)
        many = how in ("kcalloc", "kmalloc_array")
        address, error = self.call(how, *((1, size) if many else (size,)), flags)
        owner = self.accounts(account)
        if owner and not owner.charge(1, self.block_charge(size)):
            assert (address, error) == (0, ENOMEM)
            return
        assert address
        block = self.new_block(address, size)
        if owner:
            block.owner, block.charge = owner, self.block_charge(size)
            block.from_class = "kmalloc-cg"
        zero = how in ("kzalloc", "kcalloc")
        block.cleared = zero
        self.arrive(block, self.rules.block_align(size, 0), zero=zero, byte=byte)
        self.blocks.append(block)

    @rule(
        size=sizes,
        align=block_aligns,
        how=st.sampled_from(["malloc", "calloc", "realloc", "memalign", "aligned_alloc"]),
        byte=bytes_,
    )
    def malloc(self, size: int, align: int, how: str, byte: int) -> None:
        arguments = {"malloc": (size,), "calloc": (1, size), "realloc": (0, size)}
        if how in arguments:
            align = 16
        paged = align == 16 and self.rules.is_paged(size)
        taken = self.ask(("large_taken",))[0] if paged else 0
        address, _ = self.call(how, *arguments.get(how, (align, size)))
        assert address
        block = self.new_block(address, size, align)
        if paged:
            block.large = self.ask(("large_taken",))[0] > taken
            assert how == "calloc" or not block.large
        assert self.call("malloc_usable_size", address)[0] == block.usable
        self.arrive(block, align, zero=how == "calloc", byte=byte)
        self.blocks.append(block)

    @rule(how=st.sampled_from(["kmalloc", "kzalloc", "krealloc"]))
    def kmalloc_nothing(self, how: str) -> None:
        arguments = (0, 0) if how == "krealloc" else (0,)
        assert self.call(how, *arguments, KERNEL)[0] == ZERO_SIZE
        self.call("kfree", ZERO_SIZE)

    @rule(how=st.sampled_from(["kcalloc", "kmalloc_array", "calloc", "kmalloc", "malloc"]))
    def too_much(self, how: str) -> None:
        """Products that overflow, and sizes beyond half of the address space."""
        product = (1 << 40, 1 << 40)
        arguments = {"calloc": product, "kmalloc": (1 << 63, KERNEL), "malloc": (1 << 63,)}
        assert self.call(how, *arguments.get(how, (*product, KERNEL))) == (0, ENOMEM)

    @precondition(lambda self: self.blocks)
    @rule(number=picks, how=st.sampled_from(["kfree", "free", "kfree_sensitive"]))
    def free(self, number: int, how: str) -> None:
        block = self.blocks.pop(number % len(self.blocks))
        self.leave(block)
        self.put_off("call", how, block.address)

    @precondition(lambda self: self.blocks)
    @rule(number=picks, count=counts, holes=st.booleans())
    def kfree_bulk(self, number: int, count: int, holes: bool) -> None:
        objects = [ZERO_SIZE] if holes else []
        for _ in range(min(count, len(self.blocks))):
            block = self.blocks.pop(number % len(self.blocks))
            self.leave(block)
            objects += [block.address, 0] if holes else [block.address]
        self.put_off("free_bulk", 0, objects)

    def resized(
        self, block: Block, address: int, size: int, *, zero: bool, byte: int, align: int = 0
    ) -> None:
        """A block has become another one, or has another size."""
        old_size, old_fill = block.size, block.fill
        moved = address != block.address
        self.places.remove(block.address)
        block.address, block.size, block.usable = address, size, self.usable(address)
        if moved:
            block.large = self.rules.is_large(size, align)
            block.huge = block.large and block.usable >= HUGE
            assert address % self.rules.block_align(size, align) == 0
        assert block.usable >= size
        self.check_start(block, old_fill, min(old_size, size))
        block.cleared &= zero
        if block.cleared and old_size < size <= LOOK:
            self.put_off("holds", address + old_size, size - old_size, 0, wrong=block)
        self.arrive(block, 8, zero=False, byte=byte)

    @precondition(lambda self: any(not block.owner for block in self.blocks))
    @rule(number=picks, size=sizes, zero=st.booleans(), byte=bytes_)
    def krealloc(self, number: int, size: int, zero: bool, byte: int) -> None:
        block = pick([block for block in self.blocks if not block.owner], number)
        zero |= block.cleared
        self.check(block, block.fill)
        old = block.usable
        address, _ = self.call("krealloc", block.address, size, KERNEL | (ZERO if zero else 0))
        assert address
        assert address == block.address or size > old
        if address != block.address:
            block.from_class = "kmalloc"
        self.resized(block, address, size, zero=zero, byte=byte)

    @precondition(lambda self: any(not block.owner for block in self.blocks))
    @rule(number=picks, size=sizes, byte=bytes_)
    def realloc(self, number: int, size: int, byte: int) -> None:
        block = pick([block for block in self.blocks if not block.owner], number)
        self.check(block, block.fill)
        address, _ = self.call("realloc", block.address, size)
        assert address
        if address != block.address:
            block.from_class = "kmalloc"
        self.resized(block, address, size, zero=False, byte=byte, align=16)

    @precondition(
        lambda self: self.current and any(block.owner in self.groups for block in self.blocks)
    )
    @rule(number=picks, size=sizes, byte=bytes_)
    def krealloc_accounted(self, number: int, size: int, byte: int) -> None:
        """In place, its owner is charged the difference; else as a new block, while both count."""
        assert self.current
        block = pick([block for block in self.blocks if block.owner in self.groups], number)
        assert block.owner
        self.check(block, block.fill)
        old, charge = block.usable, self.block_charge(size)
        address, error = self.call("krealloc", block.address, size, KERNEL | ACCOUNT)
        if size <= old:
            assert address == block.address
            self.resized(block, address, size, zero=False, byte=byte)
            return
        grows = charge - block.charge
        in_place = block.large and self.rules.is_large(size)
        fits = [all(group.has_room(charge) for group in self.current.chain())]
        fits += [in_place and all(group.has_room(grows) for group in block.owner.chain())]
        if not address:
            assert error == ENOMEM and not fits[0]
            self.learn_refusals()
            self.check(block, block.fill)
            return
        assert any(fits)
        # The owner's figures alone do not tell if the current group is one of those inside it.
        moved = self.stats(self.current)[1] != self.current.objects
        if moved or self.settle(block, block.owner, charge) is False:
            # Both were there for a moment.
            assert fits[0]
            self.learn_peaks(block.owner, grows)
            self.current.move(1, charge)
            block.uncharge()
            block.owner, block.charge = self.current, charge
            block.from_class = "kmalloc-cg"
        self.learn_refusals()
        self.resized(block, address, size, zero=False, byte=byte)

    def settle(self, block: Block, owner: Group, charge: int) -> bool:
        """Whether the block was resized in place, which never counts it twice."""
        after = owner.bytes + charge - block.charge
        held, objects, _, peak, *_ = self.stats(owner)
        if (held, objects, peak) != (after, owner.objects, max(owner.peak, after)):
            return False
        owner.move(0, charge - block.charge)
        block.charge = charge
        return True

    def learn_peaks(self, owner: Group, grows: int) -> None:
        """A block that could not grow in place has been charged to its owner for the attempt."""
        for group in owner.chain():
            attempt = max(group.peak, group.bytes + grows)
            if self.stats(group)[3] == attempt:
                group.peak = attempt

    def learn_refusals(self) -> None:
        """Which of two groups refused is not said; a request counts once."""
        for group in self.groups:
            refusals = self.stats(group)[4]
            assert group.refusals <= refusals <= group.refusals + 1
            group.refusals = refusals

    # ---- After a grace period ---------------------------------------------------------------

    @precondition(lambda self: any(not block.owner for block in self.blocks))
    @rule(number=picks, head=st.booleans())
    def kfree_rcu(self, number: int, head: bool) -> None:
        block = pick([block for block in self.blocks if not block.owner], number)
        self.blocks.remove(block)
        self.leave(block)
        inside = block.address if head and block.size >= 16 else 0
        self.call("kmem_free_rcu", block.address, inside)

    @precondition(lambda self: not self.rules.slob)
    @precondition(
        lambda self: any(not block.owner for cache in self.caches for block in cache.live)
    )
    @rule(number=picks)
    def kfree_rcu_object(self, number: int) -> None:
        live = [block for cache in self.caches for block in cache.live if not block.owner]
        block = pick(live, number)
        assert block.cache
        block.cache.live.remove(block)
        self.give_back(block.cache, block)
        block.cache.pending = True
        self.call("kmem_free_rcu", block.address, 0)

    @rule()
    def barrier(self) -> None:
        self.call("kfree_rcu_barrier")
        self.call("kmem_synchronize_rcu")
        for cache in self.caches:
            cache.pending = False

    @rule()
    def trim(self) -> None:
        self.call("malloc_trim", 0)

    # ---- Pools ------------------------------------------------------------------------------

    def element_size(self, kind: str, data: int, cache: Cache | None) -> int:
        return cache.size if cache else data if kind == "kmalloc" else PAGE << data

    def new_element(self, pool: Pool, address: int, owner: Group | None) -> Block:
        size = self.element_size(pool.kind, pool.data, pool.cache)
        align = size if pool.kind == "pages" else 0
        if pool.cache:
            block = Block(address, size, size, cache=pool.cache, charge=pool.cache.stride + 8)
        else:
            block = self.new_block(address, size, align)
        block.owner = owner
        if pool.cache:
            assert address % pool.cache.align == 0
        else:
            assert address % self.rules.block_align(size, align) == 0
        self.places.add(address, max(block.usable, size))
        return block

    def charge_elements(self, cache: Cache | None, count: int) -> tuple[Group | None, int]:
        """Whom elements are charged to, and how many of them fit."""
        owner = self.charged(cache, 0) if cache else None
        if not owner or not cache:
            return None, count
        for fitting in range(count):
            if not owner.charge(1, cache.stride + 8):
                return owner, fitting
        return owner, count

    @precondition(lambda self: len(self.pools) < POOLS_MAX)
    @rule(
        kind=st.sampled_from(["slab", "kmalloc", "pages"]),
        least=st.integers(0, 12),
        size=st.integers(1, 5000),
        number=picks,
    )
    def create_pool(self, kind: str, least: int, size: int, number: int) -> None:
        plain = [cache for cache in self.caches if not cache.built]
        if kind == "slab" and not plain:
            return
        cache = pick(plain, number) if kind == "slab" else None
        data = cache.address if cache else size if kind == "kmalloc" else size % 3
        address, error = self.ask(("pool", least, kind, data))[0]
        owner, fitting = self.charge_elements(cache, least)
        if fitting < least:
            assert (address, error) == (0, ENOMEM) and owner and cache
            owner.move(-fitting, -fitting * (cache.stride + 8))
            return
        assert address
        own = [self.new_block(address, POOL_BYTES)]
        pool = Pool(address, kind, data, cache, least, own, [])
        promised, elements = self.ask(("reserve", address))[0]
        assert (promised, len(elements)) == (least, least)
        self.places.add(address, own[0].usable)
        pool.reserve = [self.new_element(pool, element, owner) for element in elements]
        if cache:
            cache.pools += 1
        self.pools.append(pool)
        self.note_array(pool)

    def note_array(self, pool: Pool) -> None:
        """The array of the reserve is a block too, which the pool does not show."""
        del pool.own[1:]
        size = 8 * max(pool.promised, 1)
        usable = self.call("kmalloc_size_roundup", size)[0]
        pool.own.append(Block(0, size, usable, large=self.rules.is_large(size)))

    def check_reserve(self, pool: Pool) -> None:
        promised, elements = self.ask(("reserve", pool.address))[0]
        assert promised == pool.promised
        assert elements == [block.address for block in pool.reserve]

    @precondition(lambda self: self.pools)
    @rule(number=picks, byte=bytes_)
    def pool_alloc(self, number: int, byte: int) -> None:
        pool = pick(self.pools, number)
        address, error = self.call("mempool_alloc", pool.address, NOWAIT)
        owner, fitting = self.charge_elements(pool.cache, 1)
        if fitting:
            assert address
            pool.out.append(self.new_element(pool, address, owner))
        elif pool.reserve:
            assert address == pool.reserve[-1].address
            pool.out.append(pool.reserve.pop())
        else:
            assert (address, error) == (0, ENOMEM)
            return
        self.fill(pool.out[-1], byte)
        self.check_reserve(pool)

    @precondition(lambda self: self.pools)
    @rule(number=picks, byte=bytes_)
    def pool_alloc_reserved(self, number: int, byte: int) -> None:
        pool = pick(self.pools, number)
        address, error = self.call("mempool_alloc_preallocated", pool.address)
        if not pool.reserve:
            assert (address, error) == (0, ENOMEM)
            return
        block = pool.reserve.pop()
        assert address == block.address
        pool.out.append(block)
        self.fill(block, byte)

    @precondition(lambda self: any(pool.out for pool in self.pools))
    @rule(number=picks)
    def pool_free(self, number: int) -> None:
        pool = pick([pool for pool in self.pools if pool.out], number)
        block = pool.out.pop(number % len(pool.out))
        self.check(block, block.fill)
        self.call("mempool_free", block.address, pool.address)
        if len(pool.reserve) < pool.promised:
            pool.reserve.append(block)
        else:
            self.forget(block)
        self.check_reserve(pool)

    @precondition(lambda self: self.pools)
    @rule(number=picks, least=st.integers(1, 30))
    def pool_resize(self, number: int, least: int) -> None:
        pool = pick(self.pools, number)
        assert self.call("mempool_resize", pool.address, least)[0] == 0
        grows = least > pool.promised
        pool.promised = least
        while len(pool.reserve) > least:
            self.forget(pool.reserve.pop())
        if grows:
            self.note_array(pool)
            wanted = least - len(pool.reserve)
            owner, fitting = self.charge_elements(pool.cache, wanted)
            _, elements = self.ask(("reserve", pool.address))[0]
            assert len(elements) == len(pool.reserve) + fitting
            for element in elements[len(pool.reserve) :]:
                pool.reserve.append(self.new_element(pool, element, owner))
        self.check_reserve(pool)

    @precondition(lambda self: any(not pool.out for pool in self.pools))
    @rule(number=picks)
    def destroy_pool(self, number: int) -> None:
        pool = pick([pool for pool in self.pools if not pool.out], number)
        self.pools.remove(pool)
        for block in pool.reserve:
            self.forget(block)
        self.places.remove(pool.address)
        if pool.cache:
            pool.cache.pools -= 1
        self.call("mempool_destroy", pool.address)

    # ---- Groups -----------------------------------------------------------------------------

    def stats(self, group: Group) -> tuple[int, ...]:
        result: tuple[int, ...] = self.ask(("group_stats", group.address))[0]
        return result

    @precondition(lambda self: len(self.groups) < GROUPS_MAX)
    @rule(number=picks, limit=limits, top=st.booleans(), enter=st.booleans())
    def create_group(self, number: int, limit: int, top: bool, enter: bool) -> None:
        parent = None if top or not self.groups else pick(self.groups, number)
        self.made += 1
        address, _ = self.ask(
            ("group", f"group-{self.made}", parent.address if parent else 0, limit)
        )[0]
        assert address
        self.groups.append(Group(address, parent, limit))
        if enter:
            self.enter(self.groups[-1])

    def enter(self, group: Group | None) -> None:
        before, _ = self.call("kmem_group_set", group.address if group else 0)
        assert before == (self.current.address if self.current else 0)
        self.current = group

    @precondition(lambda self: self.groups)
    @rule(number=picks, none=st.booleans())
    def set_group(self, number: int, none: bool) -> None:
        self.enter(None if none else pick(self.groups, number))

    @precondition(lambda self: self.groups)
    @rule(number=picks, limit=limits)
    def set_limit(self, number: int, limit: int) -> None:
        group = pick(self.groups, number)
        assert self.call("kmem_group_set_limit", group.address, limit)[0] == 0
        group.limit = limit

    @precondition(lambda self: self.groups and self.caches)
    @rule(number=picks, which=picks, count=st.integers(1, 40), short=st.sampled_from([0, 0, 1]))
    def leave_room(self, number: int, which: int, count: int, short: int) -> None:
        """A limit that some objects of a cache reach to the byte, or miss by one."""
        group, cache = pick(self.groups, number), pick(self.caches, which)
        limit = group.bytes + count * (cache.stride + 8) - short
        assert self.call("kmem_group_set_limit", group.address, limit)[0] == 0
        group.limit = limit

    @precondition(lambda self: self.current and any(c.flags & SLAB_ACCOUNT for c in self.caches))
    @rule(which=picks, count=st.integers(1, 20), byte=bytes_)
    def reach_limit(self, which: int, count: int, byte: int) -> None:
        """The last bytes of a limit can be had, and not one more."""
        assert self.current
        cache = pick([cache for cache in self.caches if cache.flags & SLAB_ACCOUNT], which)
        limit = self.current.bytes + count * (cache.stride + 8)
        assert self.call("kmem_group_set_limit", self.current.address, limit)[0] == 0
        self.current.limit = limit
        self.bulk(cache, count, KERNEL, byte)
        self.bulk(cache, 1, KERNEL, byte)

    @precondition(lambda self: self.groups)
    @rule(number=picks)
    def destroy_group(self, number: int) -> None:
        group = pick(self.groups, number)
        live, error = self.call("kmem_group_destroy", group.address)
        if any(other.parent is group for other in self.groups):
            assert (live, error) == (-1, EBUSY)
            return
        assert live == group.objects
        self.groups.remove(group)
        if self.current is group:
            self.current = None

    @invariant()
    def groups_are_exact(self) -> None:
        if not self.groups:
            return
        actual = self.ask(*(("group_stats", group.address) for group in self.groups))
        for group, stats in zip(self.groups, actual, strict=True):
            expected = (group.bytes, group.objects, group.limit, group.peak, group.refusals, 0)
            assert stats == expected

    @invariant()
    def caches_are_exact(self) -> None:
        known = [cache for cache in self.caches if not cache.pending]
        if not known:
            return
        actual = self.ask(*(("number", cache.name, "objects_inuse") for cache in known))
        in_pools = Counter(
            block.cache.name
            for pool in self.pools
            for block in pool.reserve + pool.out
            if block.cache
        )
        for cache, inuse in zip(known, actual, strict=True):
            assert inuse == len(cache.live) + in_pools[cache.name], cache

    # ---- At rest ----------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            # Not after a failure, which stands for itself.
            if not sys.exc_info()[0]:
                self.at_rest()
        finally:
            self.heap.close()

    def at_rest(self) -> None:
        for cache in self.caches:
            for block in cache.live:
                self.check(block, block.fill)
        for block in self.blocks:
            self.check(block, block.fill)
        self.barrier()
        self.caches_are_exact()
        held = [block for pool in self.pools for block in pool.own + pool.reserve + pool.out]
        by_size = [block for block in held + self.blocks if not block.cache]
        classes = self.ask(("class_counts",))[0]
        self.classes_are_exact(classes, [block for block in by_size if not block.large])
        table = self.heap.end()
        known = {cache.name for cache in self.caches} | set(classes)
        assert set(table.caches) - {"slob"} == known, table.text
        for cache in self.caches:
            line = table.caches[cache.name]
            assert line.size == cache.stride
            assert len(cache.live) <= line.active <= line.objects, table.text
        large = [block.usable for block in by_size if block.large]
        huge = sum(block.huge for block in by_size)
        assert table.large[0] + table.huge[0] == len(large), table.text
        assert table.large[1] + table.huge[1] == sum(large), table.text
        assert table.huge[0] == huge, table.text

    def classes_are_exact(self, classes: dict[str, tuple[int, int]], blocks: list[Block]) -> None:
        """By stride; with engine slob, whose blocks are of exact sizes, all together."""
        actual: Counter[int] = Counter()
        for inuse, stride in classes.values():
            actual[0 if self.rules.slob else stride] += inuse
        expected = Counter(
            0 if self.rules.slob else self.rules.class_stride(block.usable) for block in blocks
        )
        assert +actual == +expected, classes
