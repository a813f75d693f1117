/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Debug caches: their layout against the kernel's rules (S4.1), the kernel's own self-tests of
 * validation (S10.5), every kind of corruption with the report it must give (S10.3), and properties
 * of debug caches while nothing is wrong, also with several threads.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "walker.h"

#include "base/metadata.h"
#include "machine/stack.h"
#include "engines/debug/object.h"
#include "heap/reclaim.h"
#include "percpu/percpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define F SLAB_CONSISTENCY_CHECKS
#define Z SLAB_RED_ZONE
#define P SLAB_POISON
#define U SLAB_STORE_USER
#define T SLAB_TRACE

enum { OBJECTS = 200 };

/* A process without corruption has no reports; reports of the self-tests are kept away. */
static void quietly(uint64_t (*act)(struct kmem_cache *), struct kmem_cache *cache)
{
        int kept = dup(STDERR_FILENO);
        int nowhere = fileno(fopen("/dev/null", "w"));

        dup2(nowhere, STDERR_FILENO);
        act(cache);
        dup2(kept, STDERR_FILENO);
        close(kept);
        close(nowhere);
}

/* How many errors validation finds. */
static uint64_t errors_of_validate(struct kmem_cache *cache)
{
        uint64_t before = cache->debug_errors;

        quietly(debug_validate, cache);
        return cache->debug_errors - before;
}

static struct kmem_cache *make(unsigned int size, unsigned int align, slab_flags_t flags)
{
        struct kmem_cache *cache =
                kmem_cache_create("victim", size, align, flags | SLAB_NO_USER_FLAGS, NULL);

        check(cache != NULL && cache->engine == &debug_engine);
        return cache;
}

/* ---- Layout (S4.1) ---------------------------------------------------------------------------- */

static void construct(void *object)
{
}

static void layouts(void **state)
{
        static const struct {
                unsigned int size;
                unsigned int align;
                slab_flags_t flags;
                bool ctor;
                unsigned int inuse;
                unsigned int free_pointer;
                unsigned int left;
                unsigned int stride;
        } rows[] = {
                /* Nothing but the object; the free pointer near its middle (S4-05). */
                {64, 0, F, false, 64, 32, 0, 64},
                {61, 0, F, false, 64, 24, 0, 64},
                {4, 0, F, false, 8, 0, 0, 8},
                /*
                 * A constructed object is kept whole, and so is an object that readers may look at.
                 */
                {64, 0, F, true, 64, 64, 0, 72},
                {64, 0, F | SLAB_TYPESAFE_BY_RCU, false, 64, 64, 0, 72},
                /* A red zone of a word where there would be none (S4-03), left pad, guard (S4-07). */
                {64, 0, Z, false, 72, 32, 8, 88},
                {61, 0, Z, false, 64, 24, 8, 80},
                {4, 0, Z, false, 8, 8, 8, 32},
                {64, 64, Z, false, 72, 32, 64, 192},
                /* Poison wants the whole object. */
                {64, 0, P, false, 64, 64, 0, 72},
                {64, 64, P, false, 64, 64, 0, 128},
                /* Two tracks of 32 bytes (S4-06, S4-10). */
                {64, 0, U, false, 64, 32, 0, 128},
                {64, 0, U | SLAB_KMALLOC, false, 64, 32, 0, 136},
                {64, 0, Z | U | SLAB_KMALLOC, false, 72, 72, 8, 168},
                {64, 0, F | Z | P | U, false, 72, 72, 8, 160},
                {64, 0, F | Z | P | U | SLAB_KMALLOC, false, 72, 72, 8, 168},
                {4096, 4096, F | Z | P | U, false, 4104, 4104, 4096, 12288},
                {64, 0, T, false, 64, 32, 0, 64},
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                struct kmem_cache *cache = kmem_cache_create("layout", rows[i].size, rows[i].align,
                                                             rows[i].flags | SLAB_NO_USER_FLAGS,
                                                             rows[i].ctor ? construct : NULL);

                check(cache != NULL);
                check_equal(cache->inuse, rows[i].inuse);
                check_equal(cache->free_pointer, rows[i].free_pointer);
                check_equal(cache->red_left_pad, rows[i].left);
                check_equal(cache->size, rows[i].stride);
                check_equal(cache->sheaf_capacity, 0);
                check_equal(cache->has_cpu_partial, false);
                kmem_cache_destroy(cache);
        }
}

static void chosen_free_pointer(void **state)
{
        struct kmem_cache_args args = {.use_freeptr_offset = true, .freeptr_offset = 16};
        struct kmem_cache *cache = kmem_cache_create("layout", 64, &args,
                                                     F | SLAB_TYPESAFE_BY_RCU | SLAB_NO_USER_FLAGS);

        check_equal(cache->free_pointer, 16);
        check_equal(cache->size, 64);
        kmem_cache_destroy(cache);
        cache = kmem_cache_create("layout", 64, &args,
                                  F | P | SLAB_TYPESAFE_BY_RCU | SLAB_NO_USER_FLAGS);
        check_equal(cache->free_pointer, 64);
        check(!poisons_objects(cache)); /* S4-02 */
        kmem_cache_destroy(cache);
        /* Where it would reach into the red zone it lies outside, and stays in the filler without. */
        args.freeptr_offset = 8;
        for (unsigned int size = 9; size <= 16; size++) {
                void *object;

                cache = kmem_cache_create("layout", size, &args,
                                          F | SLAB_TYPESAFE_BY_RCU | SLAB_NO_USER_FLAGS);
                check_equal(cache->free_pointer, 8);
                kmem_cache_destroy(cache);
                cache = kmem_cache_create("layout", size, &args,
                                          F | Z | SLAB_TYPESAFE_BY_RCU | SLAB_NO_USER_FLAGS);
                check_equal(cache->free_pointer, size < 16 ? cache->inuse : 8);
                object = kmem_cache_alloc(cache, 0);
                memset(object, 0x33, size);
                kmem_cache_free(cache, object);
                debug_validate(cache);
                check_equal(cache->debug_errors, 0);
                kmem_cache_destroy(cache);
        }
}

/* ---- Flags from option debug (S9-20 to S9-23) --------------------------------------------------- */

static slab_flags_t flags_of(const char *name, unsigned int size, slab_flags_t flags)
{
        struct kmem_cache *cache = kmem_cache_create(name, size, 0, flags, NULL);
        slab_flags_t got = cache->flags & (F | Z | P | U | T);

        check_equal(cache->engine == &debug_engine, got != 0);
        kmem_cache_destroy(cache);
        return got;
}

static void child_flags(void)
{
        check_equal(flags_of("plain", 64, 0), Z | P);
        check_equal(flags_of("plain", 64, F), F | Z | P);
        check_equal(flags_of("plain", 64, SLAB_NO_USER_FLAGS), 0);
        check_equal(flags_of("plain", 64, SLAB_NO_USER_FLAGS | U), U);
        check_equal(flags_of("named", 64, 0), F | U);
        check_equal(flags_of("named", 64, SLAB_NOLEAKTRACE), F | U);
        check_equal(flags_of("quiet", 64, 0), 0);
        check_equal(flags_of("all", 64, 0), F | Z | P | U);
        check_equal(flags_of("traced", 64, 0), T);
}

static void child_no_leak_trace(void)
{
        check_equal(flags_of("plain", 64, 0), F | U);
        check_equal(flags_of("plain", 64, SLAB_NOLEAKTRACE), F);
}

/* 4096 bytes are a page without debugging and two with it; 64 bytes are always a page. */
static void child_keep_order(void)
{
        check_equal(flags_of("plain", 64, 0), F | Z | P | U);
        check_equal(flags_of("plain", 4096, 0), F);
        check_equal(flags_of("named", 4096, 0), 0);
}

/*
 * Without memory for a smaller object the object stays, and has the new request from then on. Its pointer is
 * volatile, so that the compiler keeps the store in front of its free.
 */
static void child_stays(void)
{
        char *volatile object = krealloc(kmalloc(2048, 0), 1100, 0);

        for (size_t size = 1 << 20; size > 500; size /= 2)
                while (kmalloc(size, 0))
                        ;
        check(block_resize(CLASS_KMALLOC, object, 2048, 900, NULL) == object);
        object[950] = 'x';
        kfree(object);
}

static void child_failslab(void)
{
        struct kmem_cache *cache = kmem_cache_create("plain", 64, 0, 0, NULL);

        check(cache->failslab && cache->engine != &debug_engine);
}

/* The least that a handler may do; the text is looked for. */
static void exit_of_signal(int number)
{
        (void)number;
        if (write(STDERR_FILENO, "fault\n", 6) == 6)
                _exit(0);
        _exit(1);
}

static void child_other_engines(void)
{
        struct kmem_cache *cache = kmem_cache_create("plain", 64, 0, F | Z | P | U, NULL);

        check(cache->engine->number != ENGINE_SLUB);
        check_equal(cache->flags & (F | Z | P | U | T), 0); /* S8-05 */
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        kmem_cache_destroy(cache);
}

/* The option brings its own back end, whatever engine the cache would have. */
static void child_debug_of_other_engines(void)
{
        struct kmem_cache *cache = kmem_cache_create("plain", 64, 0, P, NULL);
        void *object = kmem_cache_alloc(cache, 0);

        check(cache->engine == &debug_engine);
        check_equal(cache->flags & (F | Z | P | U | T), F | Z);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
        object = kmalloc(100, 0);
        check_equal(cache_of(object)->flags & (F | Z | P | U | T), F | Z);
        kfree(object);
}

enum { LARGE_REQUEST = 100000 };

/* The compiler knows nothing of the block, and keeps the write. */
static void write_beyond(void *block, size_t offset)
{
        __asm__ volatile("" : "+r"(block));
        ((volatile char *)block)[offset] = 1;
}

/* A guarded block has the bytes that were asked for, zeroes where they are wanted, and moves. */
static void child_large_guarded(void)
{
        char *block = kzalloc(LARGE_REQUEST, 0);
        char *moved;

        check(!heap_contains(block));
        check_equal(ksize(block), LARGE_REQUEST);
        for (size_t i = 0; i < LARGE_REQUEST; i++)
                check(block[i] == 0);
        memset(block, 7, LARGE_REQUEST);
        moved = krealloc(block, 2 * LARGE_REQUEST, 0);
        check(moved && moved != block && moved[LARGE_REQUEST - 1] == 7);
        check_equal(ksize(moved), 2 * LARGE_REQUEST);
        check_equal(ksize(block), 0);
        kfree(moved);
        /* The addresses of the block that was freed last are not handed out. */
        block = kmalloc(2 * LARGE_REQUEST, 0);
        check(block && block != moved);
        kfree(block);
}

static void child_large_red_zone(void)
{
        char *block = kmalloc(LARGE_REQUEST, 0);

        write_beyond(block, LARGE_REQUEST);
        kfree(block);
}

/* In use until the end of the process. */
static void child_large_at_exit(void)
{
        write_beyond(kmalloc(LARGE_REQUEST, 0), LARGE_REQUEST + 5);
}

static void child_large_guard(void)
{
        char *block = kmalloc(LARGE_REQUEST, 0);

        signal(SIGSEGV, exit_of_signal);
        write_beyond(block, round_up(LARGE_REQUEST, PAGE_SIZE));
}

static void child_large_freed(void)
{
        char *block = kmalloc(LARGE_REQUEST, 0);

        kfree(block);
        signal(SIGSEGV, exit_of_signal);
        write_beyond(block, 0);
}

static void large_blocks(void **state)
{
        child_passes("large_guarded", "debug=FZ,large.debug=Z");
        child_passes("large_guarded", "large.debug=Z");
        child_passes("large_guarded", "large.debug=Z,engine=slob");
        child_aborts("large_red_zone", "large.debug=Z,debug_abort=1",
                     "[Right Redzone overwritten]");
        child_prints("large_red_zone", "large.debug=Z",
                     "of 100000 bytes: [Right Redzone overwritten]");
        child_prints("large_at_exit", "large.debug=Z",
                     "of 100000 bytes: [Right Redzone overwritten]");
        child_prints("large_guard", "large.debug=Z", "fault");
        child_prints("large_freed", "large.debug=Z", "fault");
        child_passes("large_red_zone", "debug=FZ");
}

/* An object that is harmed and never freed is looked at when the process ends. */
static void child_harmed_at_exit(void)
{
        char *object = kmem_cache_alloc(kmem_cache_create("plain", 100, 0, 0, NULL), 0);

        write_beyond(object, 101);
}

/* As by the handler of a signal that interrupted a call: the lock is never dropped. */
static void child_exit_in_call(void)
{
        check(kmem_cache_create("plain", 100, 0, 0, NULL));
        alarm(30);
        lock_take(&cache_mutex);
        exit(0);
}

static void checks_at_exit(void **state)
{
        child_passes("exit_in_call", "debug=F");
        child_passes("exit_in_call", "slabinfo=/dev/null");
        child_prints("harmed_at_exit", "debug=FZ", "BUG plain (Not tainted): Object corrupt");
        child_aborts("harmed_at_exit", "debug=FZ,debug_abort=1", "[Right Redzone overwritten]");
}

static void flags(void **state)
{
        child_passes("flags", "debug=ZP,na*.debug=zFU,named.debug=fu,quiet.debug=FZ-,all.debug=,"
                              "traced.debug=T");
        child_passes("no_leak_trace", "debug=FU");
        child_prints("stays", "debug=FZU,memory_limit=8M", "[kmalloc Redzone overwritten]");
        child_passes("keep_order", "debug=FZPU,named.debug=ZO");
        child_passes("failslab", "debug=A");
        child_passes("other_engines", "debug=FZPU,plain.debug=-,engine=slab");
        child_passes("other_engines", "debug=FZPU,plain.debug=-,engine=slob");
        child_passes("debug_of_other_engines", "debug=FZ,engine=slab");
        child_passes("debug_of_other_engines", "debug=FZ,engine=slob");
        child_prints("flags",
                     "debug=ZP,na*.debug=zFU,named.debug=fu,quiet.debug=FZ-,all.debug=,"
                     "traced.debug=T,debug=FX",
                     "option debug=FX: expected letters of FZPUTAO, or - for none");
}

/* S4-40, S4-44 */
static void child_merging(void)
{
        struct kmem_cache *first = kmem_cache_create("first", 64, 0, 0, NULL);
        struct kmem_cache *checked = kmem_cache_create("checked", 64, 0, F, NULL);
        struct kmem_cache *poisoned = kmem_cache_create("poisoned", 64, 0, P, NULL);
        struct kmem_cache *named = kmem_cache_create("named", 64, 0, 0, NULL);

        check(checked == first && poisoned != first);
        check(named != first && named->flags & Z);
}

static struct kmem_cache *victim;

/* The alias has all of the stride, and of its objects no part is padding (S4-43). */
static void child_merged_report(void)
{
        char *object;

        victim = kmem_cache_create("victim", 100, 128, F, NULL);
        check(kmem_cache_create("larger", 128, 128, F, NULL) == victim);
        object = kmem_cache_alloc(victim, 0);
        kmem_cache_free(victim, object);
        object[victim->free_pointer] ^= 1;
        kmem_cache_alloc(victim, 0);
}

static void merging(void **state)
{
        static struct child_result result;

        child_passes("merging", "slab_merge=1,named.debug=Z");
        child_run("merged_report", "slab_merge=1", &result);
        check_equal(result.status, 0);
        check(strstr(result.output, "\nObject   ") != NULL);
        check(!strstr(result.output, "\nPadding  "));
}

/* ---- The kernel's self-tests (S10.5) -------------------------------------------------------------- */

static void self_clobber_zone(void **state)
{
        struct kmem_cache *cache = make(64, 0, Z);
        uint8_t *object = kmem_cache_alloc(cache, 0);

        object[64] = 0x12;
        check_equal(errors_of_validate(cache), 2);
        check_equal(errors_of_validate(cache), 0);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
}

static void self_next_pointer(void **state)
{
        struct kmem_cache *cache = make(64, 0, P);
        uint8_t *object = kmem_cache_alloc(cache, 0);
        void *pointer;

        kmem_cache_free(cache, object);
        memcpy(&pointer, object + cache->free_pointer, sizeof(pointer));
        object[cache->free_pointer] = (uint8_t)~object[cache->free_pointer];
        check_equal(errors_of_validate(cache), 3);
        memcpy(object + cache->free_pointer, &pointer, sizeof(pointer));
        check_equal(errors_of_validate(cache), 2);
        check_equal(errors_of_validate(cache), 0);
        kmem_cache_destroy(cache);
}

static void self_first_word(void **state)
{
        struct kmem_cache *cache = make(64, 0, P);
        uint8_t *object = kmem_cache_alloc(cache, 0);

        kmem_cache_free(cache, object);
        object[0] = 0x78;
        check_equal(errors_of_validate(cache), 2);
        check_equal(errors_of_validate(cache), 0);
        object[50] = 0x9a;
        check_equal(errors_of_validate(cache), 2);
        kmem_cache_destroy(cache);
}

static void self_clobber_redzone_free(void **state)
{
        struct kmem_cache *cache = make(64, 0, Z);
        uint8_t *object = kmem_cache_alloc(cache, 0);

        kmem_cache_free(cache, object);
        object[64] = 0xab;
        check_equal(errors_of_validate(cache), 2);
        check_equal(errors_of_validate(cache), 0);
        kmem_cache_destroy(cache);
}

static void self_kmalloc_redzone(void **state)
{
        struct kmem_cache *cache = make(32, 0, SLAB_KMALLOC | U | Z);
        uint8_t *object = kmem_cache_alloc(cache, 0);

        debug_set_request(cache, object, 18);
        object[18] = 0xab;
        object[19] = 0xab;
        check_equal(errors_of_validate(cache), 2);
        check_equal(errors_of_validate(cache), 0);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
}

static uint64_t destroy_it(struct kmem_cache *cache)
{
        kmem_cache_destroy(cache);
        return 0;
}

static void self_leak_destroy(void **state)
{
        struct kmem_cache *cache = make(64, 0, F | SLAB_NO_MERGE);
        void *object = kmem_cache_alloc(cache, 0);

        quietly(destroy_it, cache);
        check_equal(cache->debug_errors, 2); /* the record stays, as its slab does */
        check(object != NULL);
}

/*
 * ---- Corruption, made by children: the report, and that the program goes on --------------------
 */

static char *victim_make(unsigned int size, unsigned int align, slab_flags_t flags_wanted)
{
        victim = make(size, align, flags_wanted);
        return kmem_cache_alloc(victim, 0);
}

static void go_on(void)
{
        void *objects[OBJECTS];

        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(victim, 0));
        for (unsigned int i = 0; i < OBJECTS; i++)
                kmem_cache_free(victim, objects[i]);
        printf("went on\n");
}

static void child_left_red_zone(void)
{
        char *object = victim_make(64, 0, F | Z);

        object[-1] = 'x';
        kmem_cache_free(victim, object);
        go_on();
}

static void child_right_red_zone(void)
{
        char *object = victim_make(64, 0, F | Z);

        object[64] = 'x';
        object[66] = 'y';
        kmem_cache_free(victim, object);
        go_on();
}

static void child_two_red_zones(void)
{
        char *object = victim_make(64, 0, F | Z);

        object[-1] = 'x';
        object[64] = 'x';
        kmem_cache_free(victim, object);
        check_equal(victim->debug_errors, 5); /* two ranges, two repairs, and not freed */
}

static void child_kmalloc_red_zone(void)
{
        char *volatile block = kmalloc(18, 0); /* so that the compiler does not see it */

        block[18] = 'x';
        kfree(block);
        printf("went on\n");
}

/* Over the tracks and the request, too: neither the stack there nor the size is to be followed. */
static void child_far_beyond(void)
{
        static const uint8_t bytes[] = {0x41, 0x80, 0xff};
        struct kmem_cache *cache;
        char text[KMEM_ATTR_BYTES];

        for (size_t i = 0; i < array_size(bytes); i++) {
                char *volatile block = kmalloc(18, 0);

                cache = caches_by_index[heap.map[address_page(block)] >> PAIR_SHIFT];
                memset(block, bytes[i], padding_end(cache));
                check_equal(debug_request(cache, block), cache->object_size);
                check(kmem_attr_read(cache->name, "alloc_traces", text, sizeof(text)) > 0);
                debug_validate(cache);
                check(krealloc(block, 20, __GFP_ZERO) == block);
                kfree(block);
        }
        printf("went on\n");
}

static void child_alignment_padding(void)
{
        char *object = victim_make(61, 0, F | P);

        object[62] = 'x';
        kmem_cache_free(victim, object);
        go_on();
}

static void child_poison(void)
{
        char *object = victim_make(64, 0, F | P | U);

        kmem_cache_free(victim, object);
        object[5] = 'x';
        check(kmem_cache_alloc(victim, 0) != object);
        check_equal(victim->node[0].disabled, 1);
        kmem_cache_free(victim, object); /* of a slab that is no longer used: nothing happens */
        go_on();
}

static void child_end_poison(void)
{
        char *object = victim_make(64, 0, F | P);

        kmem_cache_free(victim, object);
        object[63] = 'x';
        kmem_cache_alloc(victim, 0);
        go_on();
}

static void child_object_padding(void)
{
        char *object = victim_make(40, 32, F | P);

        check_equal(victim->size, 64);
        object[50] = 'x';
        kmem_cache_free(victim, object);
        go_on();
}

static void child_slab_padding(void)
{
        char *object = victim_make(200, 0, F | P);
        size_t bytes = order_bytes(victim->order);

        check_equal(victim->size, 208);
        check(bytes % 208);
        object[bytes - 1] = 'x';
        kmem_cache_free(victim, object);
        printf("last byte @%zu\n", bytes - 1);
        go_on();
}

static void child_free_pointer(void)
{
        char *object = victim_make(64, 0, F | P);

        kmem_cache_free(victim, object);
        object[64] ^= 1;
        kmem_cache_alloc(victim, 0);
        go_on();
}

/* Flag U alone checks nothing, but a pointer that leads nowhere is not followed. */
static void child_free_chain(void)
{
        char *object = victim_make(64, 0, U);

        kmem_cache_free(victim, object);
        memset(object, 'x', 64);
        check(kmem_cache_alloc(victim, 0) == object);
        go_on();
}

static void child_double_free(void)
{
        char *object = victim_make(64, 0, F | U);

        kmem_cache_free(victim, object);
        kmem_cache_free(victim, object);
        kmem_cache_alloc(victim, 0);
        check(kmem_cache_alloc(victim, 0) != object);
        go_on();
}

/* Characters that a terminal would follow, and the marks that a report has for functions' names. */
static void child_names(void)
{
        char *object;

        prctl(PR_SET_NAME, "thread\1\33[2J");
        victim = kmem_cache_create("a\1b\nc\177", 64, 0, F | T | SLAB_NO_USER_FLAGS, NULL);
        object = kmem_cache_alloc(victim, 0);
        kmem_cache_free(victim, object);
        kmem_cache_free(victim, object);
        printf("went on\n");
}

static void child_double_free_unchecked(void)
{
        char *object = victim_make(64, 0, P);

        kmem_cache_free(victim, object);
        kmem_cache_free(victim, object);
}

static void child_invalid_pointer(void)
{
        char *object = victim_make(64, 0, F);

        kmem_cache_free(victim, object + 8);
        kfree(object + 16);
        kmem_cache_free(victim, object);
        go_on();
}

/* The slab has ended, so it is not even an address in a slab. */
static void child_slab_gone(void)
{
        char *object = victim_make(64, 0, F);

        kmem_cache_free(victim, object);
        kmem_cache_shrink(victim);
        victim->engine->give(victim, &slot_peek(&shared_slot, cache_index(victim))->engine,
                             (void **)&object, 1);
        go_on();
}

static void child_wrong_cache(void)
{
        struct kmem_cache *other = kmem_cache_create("other", 64, 0, F | Z, NULL);
        char *object = victim_make(64, 0, F | Z | U);

        kmem_cache_free(other, object);
        check(kmem_cache_alloc(victim, 0) == object);
        go_on();
}

/* A write to an object of a slab that goes is found when the slab goes (S1-59). */
static void child_release(void)
{
        char *object = victim_make(64, 0, F | P);

        kmem_cache_free(victim, object);
        object[9] = 'x';
        kmem_cache_shrink(victim);
        check_equal(victim->node[0].slabs, 0);
        go_on();
}

static void child_leak(void)
{
        char *object = victim_make(64, 0, F | U);

        kmem_cache_alloc(victim, 0);
        kmem_cache_destroy(victim);
        printf("leaked %p\n", (void *)object);
}

/* A report of more than 4 MiB ends there, and says so. */
static void child_long_leak(void)
{
        enum { END_BYTES = 400 };
        char end[END_BYTES + 1] = "";
        FILE *file = tmpfile();
        struct stat status;

        check(file);
        victim_make(16, 0, F);
        for (unsigned int i = 0; i < 120000; i++)
                check(kmem_cache_alloc(victim, 0));
        check(dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
        kmem_cache_destroy(victim);
        check(fstat(fileno(file), &status) == 0);
        check(status.st_size > 4 << 20 && status.st_size < (4 << 20) + 4096);
        check(pread(fileno(file), end, END_BYTES, status.st_size - END_BYTES) == END_BYTES);
        fputs(end, stdout);
}

static void child_trace(void)
{
        char *object = victim_make(64, 0, T);

        memcpy(object, "traced content", 14);
        kmem_cache_free(victim, object);
        check_equal(victim->debug_errors, 0);
        printf("went on\n");
}

/* Without memory for a report there is room for its beginning. */
static bool no_metadata;

void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes)
{
        return no_metadata ? NULL : __real_metadata_alloc(bytes);
}

static unsigned int walks; /* of stacks */

unsigned int __real_stack_capture(uintptr_t *frames, unsigned int room);
unsigned int __wrap_stack_capture(uintptr_t *frames, unsigned int room);
unsigned int __wrap_stack_capture(uintptr_t *frames, unsigned int room)
{
        add_relaxed(&walks, 1);
        return __real_stack_capture(frames, room);
}

static void check_walks(unsigned int expected)
{
        check_equal(walks, expected);
        walks = 0;
}

/* A bulk call's stack is that of all its objects, and walked once. */
static void bulk_walks_once(void **state)
{
        enum { MANY = 300 };
        struct kmem_cache *cache = kmem_cache_create("walked", 64, 0, F | U | SLAB_NO_MERGE, NULL);
        void *objects[MANY];
        char text[KMEM_ATTR_BYTES];

        (void)state;
        walks = 0;
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects), MANY);
        check_walks(1);
        check(kmem_attr_read("walked", "alloc_traces", text, sizeof(text)) > 0);
        check_equal(strtoul(text, NULL, 10), MANY); /* a single entry, for all */
        kmem_cache_free_bulk(cache, MANY, objects);
        check_walks(1);
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects), MANY);
        kfree_bulk(MANY, objects);
        check_walks(2);
        for (unsigned int i = 0; i < 10; i++)
                kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        check_walks(20);
        kmem_cache_destroy(cache);
}

static void child_no_memory(void)
{
        char *object = victim_make(64, 0, F | Z | U);

        object[64] = 'x';
        no_metadata = true;
        kmem_cache_free(victim, object);
        no_metadata = false;
        go_on();
}

static const struct attack {
        const char *name;
        const char *options;
        const char *expected[8];
} attacks[] = {
        {"left_red_zone",
         NULL,
         {"[Left Redzone overwritten] 0x", "@offset=7. First byte 0x78 instead of 0xcc\n=====",
          "BUG victim (Not tainted): Object corrupt\n-----", "\nRedzone  0000",
          "cc cc cc cc cc cc cc 78                          .......x\n",
          "FIX victim: Restoring Left Redzone 0x", "FIX victim: Object at 0x", " not freed\n"}},
        {"right_red_zone",
         NULL,
         {"[Right Redzone overwritten] 0x", "@offset=72. First byte 0x78 instead of 0xcc\n=====",
          "78 cc 79 cc cc cc cc cc                          x.y.....\n",
          "FIX victim: Restoring Right Redzone 0x", "=0xcc\n"}},
        {"two_red_zones", NULL, {"[Left Redzone overwritten]", "[Right Redzone overwritten]"}},
        {"kmalloc_red_zone",
         "debug=FZU,classes=kernel",
         {"[kmalloc Redzone overwritten] 0x", "First byte 0x78 instead of 0xcc",
          "BUG kmalloc-32 (Not tainted)", "Allocated in ", "FIX kmalloc-32: Object at 0x"}},
        {"far_beyond",
         "debug=FZPU,classes=kernel",
         {"[Right Redzone overwritten] 0x", "[Object padding overwritten] 0x",
          "Allocated in 0x4141414141414141 age=", "Allocated in 0xffffffffffffffff age="}},
        {"alignment_padding",
         NULL,
         {"[Alignment padding overwritten] 0x", "@offset=62. First byte 0x78 instead of 0x5a"}},
        {"poison",
         NULL,
         {"[Poison overwritten] 0x", "@offset=5. First byte 0x78 instead of 0x6b",
          "6b 6b 6b 6b 6b 78 6b", "Allocated in ", "Freed in ",
          " age=", "FIX victim: Restoring Poison 0x", "FIX victim: Marking all objects used\n"}},
        {"end_poison",
         NULL,
         {"[End Poison overwritten] 0x", "@offset=63. First byte 0x78 instead of 0xa5"}},
        {"object_padding",
         NULL,
         {"[Object padding overwritten] 0x", "@offset=50. First byte 0x78 instead of 0x5a",
          "\nPadding  0000", "5a 5a 78 5a"}},
        {"slab_padding",
         NULL,
         {"BUG victim (Not tainted): Padding overwritten. 0x", "\nPadding  0000",
          "FIX victim: Restoring slab padding 0x", "=0x5a\n"}},
        {"free_pointer",
         NULL,
         {"BUG victim (Not tainted): Freepointer corrupt", "\nSlab 0x", "\nObject 0x",
          "Marking all objects used"}},
        {"free_chain",
         NULL,
         {"BUG victim (Not tainted): Freechain corrupt", "fp=0x7878787878787878",
          "FIX victim: Isolate corrupted freechain"}},
        {"names",
         NULL,
         {"TRACE a?b?c? alloc 0x", "BUG a?b?c? (Not tainted): Object already free",
          "FIX a?b?c?: Object at 0x", "Comm: thread??[2J\nCall Trace:\n"}},
        {"double_free",
         NULL,
         {"BUG victim (Not tainted): Object already free", "Allocated in ", "Freed in ",
          "FIX victim: Object at 0x", "Call Trace:\n"}},
        {"invalid_pointer",
         NULL,
         {"BUG victim (Not tainted): Invalid object pointer 0x",
          "BUG victim (Tainted: B): Invalid object pointer 0x", "FIX victim: Object at 0x"}},
        {"slab_gone", NULL, {"BUG victim (Not tainted): Invalid object pointer 0x", "not freed"}},
        {"wrong_cache", NULL, {"wrong slab cache: the object is from victim\nAllocated in "}},
        {"release", NULL, {"[Poison overwritten] 0x", "@offset=9. First byte 0x78"}},
        {"trace",
         NULL,
         {"TRACE victim alloc 0x", " inuse=1 fp=0x", "TRACE victim free 0x",
          "74 72 61 63 65 64 20 63 6f 6e 74 65 6e 74", "traced content", " Comm: "}},
        {"no_memory",
         NULL,
         {"[Right Redzone overwritten] 0x", "(there is no memory for the rest)"}},
};

static void corruption(void **state)
{
        static struct child_result result;

        for (size_t i = 0; i < array_size(attacks); i++) {
                child_run(attacks[i].name, attacks[i].options, &result);
                if (result.status)
                        fprintf(stderr, "%s: %s\n", attacks[i].name, result.output);
                check_equal(result.status, 0);
                if (strcmp(attacks[i].name, "two_red_zones") != 0)
                        check(strstr(result.output, "went on") != NULL);
                for (size_t j = 0; j < 8 && attacks[i].expected[j]; j++)
                        if (!strstr(result.output, attacks[i].expected[j])) {
                                fprintf(stderr, "%s: no \"%s\" in:\n%s\n", attacks[i].name,
                                        attacks[i].expected[j], result.output);
                                fail();
                        }
        }
}

static void leak(void **state)
{
        child_prints("leak", NULL, "Objects remaining on __kmem_cache_shutdown()");
        child_prints("leak", NULL, "@offset=0\nAllocated in ");
        child_prints("long_leak", NULL, "(a report has 4 MiB at most: the rest is left out)");
        child_prints("leak", NULL, "Slab cache still has objects: 2 in 1 slabs, leaked");
}

static void ends(void **state)
{
        child_aborts("double_free", "debug_abort=1", "Object already free");
        child_aborts("poison", "debug_abort=1", "Poison overwritten");
        child_aborts("double_free_unchecked", NULL, "is free already (double free)");
}

/* ---- While nothing is wrong ------------------------------------------------------------------------ */

/* New memory reads as poison (S10-03), and the lists are right at each step. */
static void content_and_lists(void **state)
{
        static const slab_flags_t sets[] = {F, Z, P, U, F | Z, F | Z | P | U, F | P, Z | U};

        for (size_t i = 0; i < array_size(sets); i++) {
                struct kmem_cache *cache = make(100, 0, sets[i]);
                uint8_t *objects[OBJECTS];
                struct walk_counts counts;

                for (unsigned int n = 0; n < OBJECTS; n++) {
                        objects[n] = kmem_cache_alloc(cache, 0);
                        check((uintptr_t)objects[n] % 8 == 0);
                        if (sets[i] & P)
                                check(objects[n][0] == POISON_FREE &&
                                      objects[n][98] == POISON_FREE &&
                                      objects[n][99] == POISON_END);
                        memset(objects[n], (int)n, 100);
                }
                walk_heap(cache, &counts);
                check_equal(counts.inuse, OBJECTS);
                check_equal(counts.full, OBJECTS / cache->objects);
                check_equal(counts.cpu_slabs + counts.cpu_partial, 0);
                for (unsigned int n = 0; n < OBJECTS; n++) {
                        for (unsigned int byte = 0; byte < 100; byte++)
                                check_equal(objects[n][byte], n);
                        kmem_cache_free(cache, objects[n]);
                        if (n % 16 == 0)
                                walk_heap(cache, &counts);
                        if (sets[i] & P)
                                check(objects[n][0] == POISON_FREE);
                }
                walk_heap(cache, &counts);
                check_equal(counts.inuse, 0);
                check_equal(debug_validate(cache), counts.slabs);
                check_equal(cache->debug_errors, 0);
                kmem_cache_destroy(cache);
        }
}

/*
 * Free objects of a debug cache hold bytes that are checked, so their pages are not given back
 * (PURGE-1).
 */
static void purging(void **state)
{
        struct kmem_cache *cache = make(1024, 0, F | P);
        void *objects[OBJECTS];

        for (unsigned int i = 0; i < OBJECTS; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int i = 1; i < OBJECTS; i++)
                kmem_cache_free(cache, objects[i]);
        check(!cache->engine->purge);
        heap_trim(0);
        debug_validate(cache);
        check_equal(cache->debug_errors, 0);
        kmem_cache_free(cache, objects[0]);
        kmem_cache_destroy(cache);
}

static unsigned int constructed;

static void count_construct(void *object)
{
        constructed++;
        memset(object, 0x41, 64);
}

/* A constructed object keeps its content through a free (S4-02, S8-31). */
static void constructors(void **state)
{
        struct kmem_cache *cache = kmem_cache_create(
                "constructed", 64, 0, F | Z | P | U | SLAB_NO_USER_FLAGS, count_construct);
        uint8_t *object = kmem_cache_alloc(cache, 0);

        check_equal(constructed, cache->objects);
        check(object[0] == 0x41 && object[63] == 0x41);
        object[7] = 0x42;
        kmem_cache_free(cache, object);
        check(kmem_cache_alloc(cache, 0) == object);
        check(object[7] == 0x42 && object[0] == 0x41);
        kmem_cache_free(cache, object);
        check_equal(cache->debug_errors, 0);
        kmem_cache_destroy(cache);
}

/* The requested size, through the calls that change it (S8-26, S8-27). */
static void child_requests(void)
{
        char *block = kmalloc(100, 0);
        struct kmem_cache *cache = caches_by_index[heap.map[address_page(block)] >> PAIR_SHIFT];

        check(debug_has_request(cache));
        check_equal(debug_request(cache, block), 100);
        memset(block, 1, 100);
        check(krealloc(block, 90, 0) == block);
        check_equal(debug_request(cache, block), 90);
        check(krealloc(block, 97, __GFP_ZERO) == block);
        check_equal(debug_request(cache, block), 97);
        for (unsigned int i = 0; i < 97; i++)
                check_equal(block[i], i < 90);
        debug_validate(cache);
        /* A program that asks for the usable size may write to all of it. */
        memset(block, 2, ksize(block));
        check_equal(debug_request(cache, block), cache->object_size);
        debug_validate(cache);
        kfree(block);
        block = kzalloc(5, 0);
        for (unsigned int i = 0; i < 5; i++)
                check_equal(block[i], 0);
        block = krealloc(block, 4000, __GFP_ZERO);
        for (unsigned int i = 0; i < 4000; i++)
                check_equal(block[i], 0);
        cache = caches_by_index[heap.map[address_page(block)] >> PAIR_SHIFT];
        check_equal(debug_request(cache, block), 4000);
        kfree(block);
        check_equal(cache->debug_errors, 0);
        /* A red zone stands where it shrank, and is zero when that belongs to the block again. */
        block = kzalloc(100, 0);
        memset(block, 1, 100);
        check(krealloc(block, 90, __GFP_ZERO) == block);
        check_equal((uint8_t)block[90], RED_ACTIVE);
        check(krealloc(block, 95, __GFP_ZERO) == block);
        for (size_t i = 90; i < 95; i++)
                check_equal(block[i], 0);
        for (size_t i = 95, end = ksize(block); i < end; i++)
                check_equal(hide_address(block)[i], 0); /* compilers know the size asked for */
        /* What the program wrote into a red zone is not painted over by a smaller request. */
        check(krealloc(block, 90, 0) == block);
        hide_address(block)[92] = 7;
        check(krealloc(block, 80, 0) == block);
        check_equal(hide_address(block)[92], 7);
        hide_address(block)[92] = (char)RED_ACTIVE;
        kfree(block);
        block = kmalloc_node(100, 0, (int)system_nodes() - 1);
        cache = caches_by_index[heap.map[address_page(block)] >> PAIR_SHIFT];
        check_equal(debug_request(cache, block), 100);
        debug_validate(cache);
        kfree(block);
        check_equal(cache->debug_errors, 0);
}

static void requests(void **state)
{
        child_passes("requests", "debug=FZPU");
        child_passes("requests", "debug=FZPU,classes=kernel,slots=locked");
        child_passes("requests", "debug=FZPU,numa_fake=2");
}

/* Other threads allocate, resize and free while a thread looks at everything. */
static uint32_t stop;
static struct kmem_cache *shared_cache;

static void *churn(void *argument)
{
        uint64_t random = (uintptr_t)argument;
        void *objects[32] = {0};
        char *blocks[32] = {0};

        for (unsigned int round = 0; round < 20000; round++) {
                unsigned int i = random_step(&random) % 32;
                size_t size = 1 + random_step(&random) % 120;

                if (objects[i])
                        kmem_cache_free(shared_cache, objects[i]);
                objects[i] = random_step(&random) % 3 ? kmem_cache_alloc(shared_cache, 0) : NULL;
                if (objects[i])
                        memset(objects[i], 0xee, 96);
                blocks[i] = krealloc(blocks[i], size, 0);
                memset(blocks[i], 0xdd, size);
        }
        for (unsigned int i = 0; i < 32; i++) {
                kfree(blocks[i]);
                if (objects[i])
                        kmem_cache_free(shared_cache, objects[i]);
        }
        add_relaxed(&stop, 1);
        return NULL;
}

/* A large block with a red zone that comes and goes: checking the bytes to its right takes long. */
static void *resize(void *argument)
{
        size_t most = class_bytes(CLASS_KMALLOC, 32768);
        size_t least = most - most / 16 + 1;
        char *block = NULL;

        while (load_relaxed(&stop) < (uintptr_t)argument) {
                block = krealloc(block, least, 0);
                block = krealloc(block, most, 0);
                memset(block, 0xdd, most);
        }
        kfree(block);
        return NULL;
}

static void child_threads(void)
{
        enum { THREADS = 4 };
        pthread_t threads[THREADS + 1];
        struct walk_counts counts;
        uint64_t validated = 0;

        shared_cache = kmem_cache_create("shared", 96, 0, 0, NULL);
        check(shared_cache->engine == &debug_engine);
        for (uintptr_t i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
        check(pthread_create(&threads[THREADS], NULL, resize, (void *)(uintptr_t)THREADS) == 0);
        while (load_relaxed(&stop) < THREADS) {
                validated += debug_validate(shared_cache);
                for (uint32_t index = 1; index < slots_index_end(); index++) {
                        struct kmem_cache *cache = load_acquire(&caches_by_index[index]);

                        if (cache && cache->engine == &debug_engine)
                                debug_validate(cache);
                }
                kmem_cache_shrink(shared_cache);
        }
        for (unsigned int i = 0; i <= THREADS; i++)
                pthread_join(threads[i], NULL);
        check(validated > 0);
        for (uint32_t index = 1; index < slots_index_end(); index++)
                if (caches_by_index[index])
                        check_equal(caches_by_index[index]->debug_errors, 0);
        walk_heap(shared_cache, &counts);
        check_equal(counts.inuse, 0);
        kmem_cache_destroy(shared_cache);
}

static void threads(void **state)
{
        child_passes("threads", "debug=FZPU");
        child_passes("threads", "debug=FZPU,slots=locked,numa_fake=2");
        child_passes("threads", "debug=U,min_partial=0");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"flags", child_flags},
                {"no_leak_trace", child_no_leak_trace},
                {"stays", child_stays},
                {"keep_order", child_keep_order},
                {"failslab", child_failslab},
                {"other_engines", child_other_engines},
                {"debug_of_other_engines", child_debug_of_other_engines},
                {"large_guarded", child_large_guarded},
                {"large_red_zone", child_large_red_zone},
                {"large_at_exit", child_large_at_exit},
                {"large_guard", child_large_guard},
                {"large_freed", child_large_freed},
                {"harmed_at_exit", child_harmed_at_exit},
                {"exit_in_call", child_exit_in_call},
                {"merging", child_merging},
                {"merged_report", child_merged_report},
                {"left_red_zone", child_left_red_zone},
                {"right_red_zone", child_right_red_zone},
                {"two_red_zones", child_two_red_zones},
                {"kmalloc_red_zone", child_kmalloc_red_zone},
                {"alignment_padding", child_alignment_padding},
                {"poison", child_poison},
                {"end_poison", child_end_poison},
                {"object_padding", child_object_padding},
                {"slab_padding", child_slab_padding},
                {"free_pointer", child_free_pointer},
                {"far_beyond", child_far_beyond},
                {"free_chain", child_free_chain},
                {"names", child_names},
                {"double_free", child_double_free},
                {"double_free_unchecked", child_double_free_unchecked},
                {"invalid_pointer", child_invalid_pointer},
                {"slab_gone", child_slab_gone},
                {"wrong_cache", child_wrong_cache},
                {"release", child_release},
                {"leak", child_leak},
                {"long_leak", child_long_leak},
                {"trace", child_trace},
                {"no_memory", child_no_memory},
                {"requests", child_requests},
                {"threads", child_threads},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(layouts),
                cmocka_unit_test(chosen_free_pointer),
                cmocka_unit_test(flags),
                cmocka_unit_test(large_blocks),
                cmocka_unit_test(checks_at_exit),
                cmocka_unit_test(merging),
                cmocka_unit_test(self_clobber_zone),
                cmocka_unit_test(self_next_pointer),
                cmocka_unit_test(self_first_word),
                cmocka_unit_test(self_clobber_redzone_free),
                cmocka_unit_test(self_kmalloc_redzone),
                cmocka_unit_test(self_leak_destroy),
                cmocka_unit_test(corruption),
                cmocka_unit_test(leak),
                cmocka_unit_test(ends),
                cmocka_unit_test(content_and_lists),
                cmocka_unit_test(purging),
                cmocka_unit_test(constructors),
                cmocka_unit_test(requests),
                cmocka_unit_test(threads),
                cmocka_unit_test(bulk_walks_once),
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("debug", tests, NULL, NULL);
}
