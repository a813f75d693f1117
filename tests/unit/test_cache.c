/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The calls on named caches: arguments and their errors, flags, alignment, merging, destruction.
 */
#include "engines.h"
#include "records.h"
#include "walker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 300 };

static void *objects[MANY];

static void exercise(struct kmem_cache *cache, unsigned int size)
{
        check(cache != NULL);
        for (unsigned int i = 0; i < MANY; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                check(objects[i] != NULL);
                memset(objects[i], (int)i, size);
        }
        for (unsigned int i = 0; i < MANY; i++) {
                check_equal(*(uint8_t *)objects[i], i & 0xff);
                check_equal(((uint8_t *)objects[i])[size - 1], i & 0xff);
                kmem_cache_free(cache, objects[i]);
        }
}

static void sizes(void **state)
{
        static const unsigned int all[] = {1,    2,    7,    8,     9,       100,
                                           1000, 4096, 5000, 40000, 1 << 20, 4 << 20};

        for (size_t i = 0; i < array_size(all); i++) {
                struct kmem_cache *cache;
                void *object;

                /* With the fields around an object, the largest object has no room in a slab. */
                if (all[i] == 4 << 20 && options_given(OPTION_DEBUG))
                        continue;
                cache = kmem_cache_create("sizes", all[i], 0, 0, NULL);

                check(cache != NULL);
                check_equal(kmem_cache_size(cache), all[i]);
                if (all[i] <= 40000)
                        exercise(cache, all[i]);
                object = kmem_cache_zalloc(cache, 0);
                for (unsigned int byte = 0; byte < all[i]; byte++)
                        check_equal(((char *)object)[byte], 0);
                kmem_cache_free(cache, object);
                check_equal(kmem_cache_shrink(cache), 0);
                kmem_cache_destroy(cache);
        }
}

/* __GFP_ZERO clears used objects too. */
static void zeroing(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("zeroing", 77, 0, 0, NULL);

        for (unsigned int round = 0; round < 2; round++) {
                exercise(cache, 77);
                for (unsigned int i = 0; i < MANY; i++) {
                        objects[i] = round ? kmem_cache_zalloc(cache, 0)
                                           : kmem_cache_alloc(cache, __GFP_ZERO);
                        for (unsigned int byte = 0; byte < 77; byte++)
                                check_equal(((char *)objects[i])[byte], 0);
                }
                for (unsigned int i = 0; i < MANY; i++)
                        kmem_cache_free(cache, objects[i]);
        }
        kmem_cache_destroy(cache);
}

static void alignments(void **state)
{
        for (unsigned int align = 1; align <= 4096; align *= 2)
                for (unsigned int size = 1; size < 300; size += 37) {
                        struct kmem_cache *cache =
                                kmem_cache_create("alignments", size, align, 0, NULL);

                        check(cache != NULL);
                        for (unsigned int i = 0; i < 20; i++) {
                                objects[i] = kmem_cache_alloc(cache, 0);
                                check_equal((uintptr_t)objects[i] % (align < 8 ? 8 : align), 0);
                        }
                        for (unsigned int i = 0; i < 20; i++)
                                kmem_cache_free(cache, objects[i]);
                        kmem_cache_destroy(cache);
                }
}

/* S4-20 */
static void hardware_cache_align(void **state)
{
        static const unsigned int rows[][2] = {{4, 8},   {8, 8},   {9, 16},  {16, 16}, {17, 32},
                                               {32, 32}, {33, 64}, {64, 64}, {200, 64}};

        for (size_t i = 0; i < array_size(rows); i++) {
                struct kmem_cache *cache =
                        kmem_cache_create("line", rows[i][0], 0, SLAB_HWCACHE_ALIGN, NULL);

                for (unsigned int j = 0; j < 20; j++) {
                        objects[j] = kmem_cache_alloc(cache, 0);
                        check_equal((uintptr_t)objects[j] % rows[i][1], 0);
                }
                for (unsigned int j = 0; j < 20; j++)
                        kmem_cache_free(cache, objects[j]);
                kmem_cache_destroy(cache);
        }
}

static void child_refused(void)
{
        struct kmem_cache_args offset = {.use_freeptr_offset = true, .freeptr_offset = 8};
        struct kmem_cache_args sheaf = {.sheaf_capacity = 1023};
        struct kmem_cache *cache;

#define REFUSED(call)                                                                              \
        do {                                                                                       \
                errno = 0;                                                                         \
                check((call) == NULL);                                                             \
                check_equal(errno, EINVAL);                                                        \
        } while (0)
        REFUSED(kmem_cache_create(NULL, 64, 0, 0, NULL));
        REFUSED(kmem_cache_create("", 64, 0, 0, NULL));
        REFUSED(kmem_cache_create("zero", 0, 0, 0, NULL));
        REFUSED(kmem_cache_create("one\nline\x1b[2J\x7f", 0, 0, 0, NULL));
        REFUSED(kmem_cache_create("align", 64, 3, 0, NULL));
        REFUSED(kmem_cache_create("align", 64, 8192, 0, NULL));
        REFUSED(kmem_cache_create("flag", 64, 0, 0x1u, NULL));
        REFUSED(kmem_cache_create("flag", 64, 0, 0x08000000u, NULL));
        REFUSED(kmem_cache_create("two", 64, 0, SLAB_ENGINE_SLUB | SLAB_ENGINE_SLAB, NULL));
        REFUSED(kmem_cache_create("two", 64, 0, SLAB_ENGINE_SLAB | SLAB_ENGINE_SLOB, NULL));
        REFUSED(kmem_cache_create("two", 64, NULL, SLAB_ENGINE_SLUB | SLAB_ENGINE_SLOB));
        REFUSED(kmem_cache_create("huge", (4u << 20) + 1, 0, 0, NULL));
        REFUSED(kmem_cache_create("huge", UINT32_MAX, 0, 0, NULL));
        REFUSED(kmem_cache_create("offset", 64, &offset, 0)); /* needs TYPESAFE_BY_RCU: S4-05 */
        offset.freeptr_offset = UINT32_MAX - 7;
        REFUSED(kmem_cache_create("offset", 64, &offset, SLAB_TYPESAFE_BY_RCU));
        REFUSED(kmem_cache_create("sheaf", 64, &sheaf, 0));
        offset.freeptr_offset = 64;
        REFUSED(kmem_cache_create("offset", 64, &offset, SLAB_TYPESAFE_BY_RCU));
        offset.freeptr_offset = 12;
        REFUSED(kmem_cache_create("offset", 64, &offset, SLAB_TYPESAFE_BY_RCU));
        offset.freeptr_offset = 56;
        cache = kmem_cache_create("offset", 64, &offset, SLAB_TYPESAFE_BY_RCU);
        check(cache != NULL);
        kmem_cache_destroy(cache);
#undef REFUSED
}

/* S8-03, S8-04: NULL, EINVAL and a line that says which and why. */
static void refused(void **state)
{
        static const char *const texts[] = {
                "kmem_cache_create(NULL)",
                "kmem_cache_create(zero) size 0",
                "kmem_cache_create(one?line?[2J?) size 0",
                "failed with error 22",
                "align 3",
                "a power of two up to 4096",
                "flags 0x8000000 ",
                "expected at most one of SLAB_ENGINE_SLUB, SLAB_ENGINE_SLAB, SLAB_ENGINE_SLOB",
                "too large",
                "unknown flag 0x1, expected SLAB_* flags",
                "freeptr_offset 12, expected a multiple of 8 inside the object, and "
                "SLAB_TYPESAFE_BY_RCU or a constructor",
                "freeptr_offset 4294967288, expected a multiple of 8 inside the object, and "
                "SLAB_TYPESAFE_BY_RCU or a constructor",
                "sheaf_capacity 1023, expected 0 to 1022",
        };

        for (size_t i = 0; i < array_size(texts); i++)
                child_prints("refused", NULL, texts[i]);
}

/* All permitted flags are taken (S8-05). */
static void permitted_flags(void **state)
{
        static const slab_flags_t flags[] = {
                SLAB_CONSISTENCY_CHECKS, SLAB_RED_ZONE,    SLAB_POISON,          SLAB_KMALLOC,
                SLAB_HWCACHE_ALIGN,      SLAB_CACHE_DMA,   SLAB_CACHE_DMA32,     SLAB_STORE_USER,
                SLAB_RECLAIM_ACCOUNT,    SLAB_PANIC,       SLAB_TYPESAFE_BY_RCU, SLAB_TRACE,
                SLAB_DEBUG_OBJECTS,      SLAB_NOLEAKTRACE, SLAB_NO_MERGE,        SLAB_ACCOUNT,
                SLAB_NO_USER_FLAGS,      SLAB_ENGINE_SLUB, SLAB_ENGINE_SLAB,     SLAB_ENGINE_SLOB,
        };

        for (size_t i = 0; i < array_size(flags); i++) {
                struct kmem_cache *cache = kmem_cache_create("flags", 64, 0, flags[i], NULL);

                exercise(cache, 64);
                kmem_cache_destroy(cache);
        }
}

static void child_panic(void)
{
        kmem_cache_create("panicky", 0, 0, SLAB_PANIC, NULL);
}

static void panic_flag(void **state)
{
        child_aborts("panic", NULL, "kmem_cache_create(panicky): SLAB_PANIC is set");
}

/* The third argument's type selects the form. */
static unsigned int constructed;

static void construct(void *object)
{
        (void)object;
        constructed++;
}

static void create_forms(void **state)
{
        const struct kmem_cache_args args = {.align = 128, .ctor = construct};
        struct kmem_cache_args writable = args;
        unsigned short narrow = 128;
        struct kmem_cache *caches[] = {
                kmem_cache_create("five", 40, 128, 0, construct),
                kmem_cache_create("narrow", 40, narrow, 0, construct),
                kmem_cache_create("args", 40, &args, 0),
                kmem_cache_create("writable", 40, &writable, SLAB_NO_MERGE),
                kmem_cache_create_args("named", 40, &args, 0),
                (kmem_cache_create)("function", 40, 128, 0, construct),
        };

        for (size_t i = 0; i < array_size(caches); i++) {
                void *object;

                constructed = 0;
                object = kmem_cache_alloc(caches[i], 0);
                check(constructed >= 1);
                check_equal((uintptr_t)object % 128, 0);
                kmem_cache_free(caches[i], object);
                kmem_cache_destroy(caches[i]);
        }
        caches[0] = kmem_cache_create("defaults", 40, NULL, 0);
        exercise(caches[0], 40);
        kmem_cache_destroy(caches[0]);
}

/* S8-02, S8-04: the region is kept; a bad region leads to a warning and is treated as none. */
static void child_usercopy(void)
{
        struct kmem_cache_args args = {.useroffset = 8, .usersize = 16};
        struct kmem_cache *cache = kmem_cache_create("region", 64, &args, 0);

        check_equal(cache->useroffset, 8);
        check_equal(cache->usersize, 16);
        kmem_cache_destroy(cache);
        cache = kmem_cache_create_usercopy("function", 64, 0, 0, 8, 16, NULL);
        check_equal(cache->useroffset, 8);
        check_equal(cache->usersize, 16);
        kmem_cache_destroy(cache);
        args.useroffset = 56;
        cache = kmem_cache_create("beyond", 64, &args, 0);
        check_equal(cache->useroffset, 0);
        check_equal(cache->usersize, 0);
        kmem_cache_destroy(cache);
        args = (struct kmem_cache_args){.useroffset = 8};
        cache = kmem_cache_create("sizeless", 64, &args, 0);
        check_equal(cache->useroffset, 0);
        kmem_cache_destroy(cache);
}

static void usercopy(void **state)
{
        child_prints("usercopy", NULL, "kmem_cache_create(beyond): usercopy region 56+16");
        child_prints("usercopy", NULL, "kmem_cache_create(sizeless): usercopy region 8+0");
}

/* Names are copied, cut at their limit, and need not differ. */
static void names(void **state)
{
        char name[100];
        struct kmem_cache *a, *b;

        strcpy(name, "changing");
        a = kmem_cache_create(name, 64, 0, SLAB_NO_MERGE, NULL);
        b = kmem_cache_create(name, 64, 0, SLAB_NO_MERGE, NULL);
        strcpy(name, "changed!");
        check(a && b && a != b);
        check(strcmp(a->name, "changing") == 0);
        kmem_cache_destroy(a);
        kmem_cache_destroy(b);
        memset(name, 'x', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        a = kmem_cache_create(name, 64, 0, SLAB_NO_MERGE, NULL);
        check_equal(strlen(a->name), CACHE_NAME_BYTES - 1);
        kmem_cache_destroy(a);
}

static void child_odd_names(void)
{
        static const char *const odd[] = {"with space", "tab\there", "new\nline 1 2 3",
                                          "#hash",      " ",         "50%s"};

        for (size_t i = 0; i < array_size(odd); i++) {
                char text[KMEM_ATTR_BYTES];

                check(kmem_cache_create(odd[i], 64, 0, 0, NULL) != NULL);
                check(kmem_attr_read(odd[i], "engine", text, sizeof(text)) > 0);
        }
        check(kmem_group_create("two\nlines", NULL, 0) != NULL);
}

/* Any name is allowed, and is a single word of the slab table. */
static void odd_names(void **state)
{
        static const char *const words[] = {
                "\nwith!space ", "\ntab!here ", "\nnew!line!1!2!3 ",   "\n!hash ",
                "\n! ",          "\n50%s ",     "\n# group two!lines:"};

        for (size_t i = 0; i < array_size(words); i++)
                child_prints("odd_names", "slabinfo=-", words[i]);
}

static void null_calls(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("null", 64, 0, 0, NULL);
        void *none[3] = {NULL};

        kmem_cache_destroy(NULL);
        kmem_cache_free(cache, NULL);
        kmem_cache_free_bulk(cache, 3, none);
        kmem_cache_free_bulk(NULL, 3, none);
        kmem_cache_free_bulk(cache, 0, none);
        check_equal(kmem_cache_alloc_bulk(cache, 0, 0, none), 0);
        kmem_cache_destroy(cache);
}

static void node_and_lru(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("node", 64, 0, 0, NULL);

        objects[0] = kmem_cache_alloc_node(cache, 0, NUMA_NO_NODE);
        objects[1] = kmem_cache_alloc_node(cache, __GFP_ZERO, 0);
        objects[2] = kmem_cache_alloc_node(cache, 0, 77);
        objects[3] = kmem_cache_alloc_lru(cache, NULL, 0);
        for (unsigned int i = 0; i < 4; i++) {
                check(objects[i] != NULL);
                kmem_cache_free(cache, objects[i]);
        }
        kmem_cache_destroy(cache);
}

/* S1-57, S8-09 */
static void shrink_result(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("shrink", 64, 0, 0, NULL);
        void *object;

        check_equal(kmem_cache_shrink(cache), 0);
        object = kmem_cache_alloc(cache, 0);
        /* 0 on engine slob, where pages belong to no cache (S7-45). */
        check_equal(kmem_cache_shrink(cache), !is_slob());
        kmem_cache_free(cache, object);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
}

/* S8-08: leftovers are named; frees of them may still come. */
static void child_leftovers(void)
{
        struct kmem_cache *cache = kmem_cache_create("leaky", 64, 0, 0, NULL);

        for (unsigned int i = 0; i < 3; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        kmem_cache_free(cache, objects[1]);
        kmem_cache_destroy(cache);
        fprintf(stderr, "remaining %p %p\n", objects[0], objects[2]);
        kfree(objects[0]);
        kfree(objects[2]);
        exercise(kmem_cache_create("after", 64, 0, 0, NULL), 64);
}

/* Two caches are gone: records of caches that nobody has must not lie in each other's list by the words that calls read. */
static struct kmem_cache *destroyed(bool older)
{
        struct kmem_cache *first = kmem_cache_create("gone first", 64, 0, SLAB_NO_MERGE, NULL);
        struct kmem_cache *second = kmem_cache_create("gone second", 64, 0, SLAB_NO_MERGE, NULL);

        check(first && second);
        kmem_cache_free(first, kmem_cache_alloc(first, 0));
        kmem_cache_free(second, kmem_cache_alloc(second, 0));
        kmem_cache_destroy(first);
        kmem_cache_destroy(second);
        return hide_address(older ? first : second);
}

static void child_destroyed_alloc_older(void)
{
        check(!kmem_cache_alloc(destroyed(true), 0));
}

static void child_destroyed_alloc_newer(void)
{
        check(!kmem_cache_alloc(destroyed(false), 0));
}

/* The memory of its record is not the next cache's. */
static void child_destroyed_alloc_late(void)
{
        struct kmem_cache *cache = destroyed(true);

        for (unsigned int i = 0; i < 5; i++)
                exercise(kmem_cache_create("next", 64, 0, SLAB_NO_MERGE, NULL), 64);
        check(!kmem_cache_alloc(cache, 0));
}

static void child_destroyed_alloc_many(void)
{
        check_equal(kmem_cache_alloc_bulk(destroyed(true), 0, array_size(objects), objects), 0);
}

static void child_destroyed_free_many(void)
{
        struct kmem_cache *cache = destroyed(false);

        for (unsigned int i = 0; i < 4; i++)
                objects[i] = kmalloc(64, GFP_KERNEL);
        kmem_cache_free_bulk(cache, 4, objects);
}

static void child_destroyed_free(void)
{
        kmem_cache_free(destroyed(false), kmalloc(64, GFP_KERNEL));
}

static void child_destroyed_twice(void)
{
        kmem_cache_destroy(destroyed(true));
}

static void child_destroyed_shrink(void)
{
        kmem_cache_shrink(destroyed(false));
}

static void destroyed_caches(void **state)
{
        static const char *const older = "the cache \"gone first\" was destroyed already";
        static const char *const newer = "the cache \"gone second\" was destroyed already";

        child_aborts("destroyed_alloc_older", NULL, older);
        child_aborts("destroyed_alloc_newer", NULL, newer);
        child_aborts("destroyed_alloc_newer", "guard_sampling=1,engine=slub", newer);
        child_aborts("destroyed_alloc_late", NULL, older);
        child_aborts("destroyed_alloc_many", NULL, older);
        child_aborts("destroyed_free_many", NULL, newer);
        child_aborts("destroyed_free", NULL, newer);
        child_aborts("destroyed_twice", NULL, older);
        child_aborts("destroyed_shrink", NULL, newer);
}

/* How many caches of that name others see. */
static unsigned int count_shown(const char *name)
{
        const struct registry_record_head *record = NULL;
        unsigned int found = 0;

        check(registry_is_made());
        while ((record = record_behind(record)))
                found += record->kind == RECORD_CACHE &&
                         strcmp(((const struct registry_cache *)record)->name, name) == 0;
        return found;
}

/* Nor does a child show it in its own registry, and its objects may be freed in both. */
static void child_shown_leftovers(void)
{
        struct kmem_cache *cache = kmem_cache_create("leaky", 64, 0, 0, NULL);
        pid_t child;

        for (unsigned int i = 0; i < 3; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        check_equal(count_shown("leaky"), 1);
        kmem_cache_destroy(cache);
        check_equal(count_shown("leaky"), 0);
        if (under_qemu()) {
                puts("# not checked: qemu clears no page in children, which tells them of their "
                     "fork");
                return;
        }
        child = fork();
        check(child >= 0);
        for (unsigned int i = 0; i < 3; i++)
                kfree(objects[i]);
        exercise(kmem_cache_create("after", 64, 0, 0, NULL), 64);
        check_equal(count_shown("after"), 1);
        check_equal(count_shown("leaky"), 0);
        if (child == 0)
                _exit(0);
        child_wait(child);
}

static void leftovers(void **state)
{
        static struct child_result result;
        /* Reports of debugging have a rule between the name and this, and addresses in full. */
        bool debugged = options_given(OPTION_DEBUG);
        char line[100], *remaining;
        void *first, *second;

        skip_on_slob("does not know what is left of a cache (S7-45)");
        child_prints("leftovers", NULL,
                     debugged ? "BUG leaky (Not tainted): Objects remaining on "
                                "__kmem_cache_shutdown()"
                              : "BUG leaky: Objects remaining on __kmem_cache_shutdown()");
        child_passes("shown_leftovers", "registry=on");
        child_run("leftovers", NULL, &result);
        assert_int_equal(result.status, 0);
        assert_non_null(strstr(result.output, "kmem_cache_destroy leaky: Slab cache still has "
                                              "objects"));
        remaining = strstr(result.output, "remaining 0x");
        assert_non_null(remaining);
        assert_int_equal(sscanf(remaining, "remaining %p %p", &first, &second), 2);
        snprintf(line, sizeof(line),
                 debugged ? "Object 0x%016lx @offset=" : "Object 0x%lx @offset=",
                 (unsigned long)(uintptr_t)first);
        assert_non_null(strstr(result.output, line));
        snprintf(line, sizeof(line),
                 debugged ? "Object 0x%016lx @offset=" : "Object 0x%lx @offset=",
                 (unsigned long)(uintptr_t)second);
        assert_non_null(strstr(result.output, line));
}

/* S4-40 to S4-43 */
static void child_merging(void)
{
        struct kmem_cache_args region = {.usersize = 8};
        struct kmem_cache *base = kmem_cache_create("base", 60, 0, 0, NULL);
        struct kmem_cache *alias = kmem_cache_create("alias", 64, 0, 0, NULL);
        struct kmem_cache *aligned = kmem_cache_create("aligned", 64, 32, 0, NULL);
        struct kmem_cache *others[12];
        unsigned int count = 0;

        check(alias == base); /* the stride is 64; object_size grows */
        check_equal(kmem_cache_size(base), 64);
        check(kmem_cache_create("smaller", 57, 0, 0, NULL) == base);
        check_equal(kmem_cache_size(base), 64);
        check_equal(aligned == base, chosen_engine() != &slab_engine); /* S4-42 */
        others[count++] = kmem_cache_create("larger", 65, 0, 0, NULL);
        others[count++] = kmem_cache_create("gap", 48, 0, 0, NULL); /* 64 - 48 >= a word */
        others[count++] = kmem_cache_create("ctor", 64, 0, 0, construct);
        others[count++] = kmem_cache_create("region", 64, &region, 0);
        others[count++] = kmem_cache_create("nomerge", 64, 0, SLAB_NO_MERGE, NULL);
        others[count++] = kmem_cache_create("poison", 64, 0, SLAB_POISON, NULL);
        others[count++] = kmem_cache_create("red", 64, 0, SLAB_RED_ZONE, NULL);
        others[count++] = kmem_cache_create("user", 64, 0, SLAB_STORE_USER, NULL);
        others[count++] = kmem_cache_create("trace", 64, 0, SLAB_TRACE, NULL);
        others[count++] = kmem_cache_create("rcu", 64, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        others[count++] = kmem_cache_create("noleak", 64, 0, SLAB_NOLEAKTRACE, NULL);
        others[count++] = kmem_cache_create("reclaim", 64, 0, SLAB_RECLAIM_ACCOUNT, NULL);
        for (unsigned int i = 0; i < count; i++) {
                check(others[i] && others[i] != base);
                for (unsigned int j = 0; j < i; j++)
                        check(others[i] != others[j]);
        }
        /* Equal on reclaim account: these two merge with each other. */
        check(kmem_cache_create("reclaim too", 64, 0, SLAB_RECLAIM_ACCOUNT, NULL) ==
              others[count - 1]);
        /* S8-08: only the last reference ends the cache. */
        exercise(base, 64);
        kmem_cache_destroy(alias);
        kmem_cache_destroy(alias);
        kmem_cache_destroy(aligned);
        exercise(base, 64);
        kmem_cache_destroy(base);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_destroy(others[i]);
        kmem_cache_destroy(others[count - 1]);
}

static void merging(void **state)
{
        skip_on_slob("never merges (S7-45)");
        child_passes("merging", "slab_merge=1");
}

static void merging_is_an_option(void **state)
{
        struct kmem_cache *a = kmem_cache_create("a", 64, 0, 0, NULL);
        struct kmem_cache *b = kmem_cache_create("b", 64, 0, 0, NULL);

        check_equal(a != b, !options.slab_merge);
        kmem_cache_destroy(a);
        kmem_cache_destroy(b);
}

static void check_engine(const char *cache, const char *expected)
{
        char text[KMEM_ATTR_BYTES];

        /* A cache with letters has the debug back end, whatever its engine. */
        if (options_given(OPTION_DEBUG))
                expected = "slub";
        check(kmem_attr_read(cache, "engine", text, sizeof(text)) > 0);
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(text, expected) != 0) {
                fprintf(stderr, "engine of %s is %s, expected %s\n", cache, text, expected);
                check(strcmp(text, expected) == 0);
        }
}

static const struct {
        slab_flags_t flag;
        const char *engine;
} engine_flags[] = {
        {SLAB_ENGINE_SLUB, "slub"},
        {SLAB_ENGINE_SLAB, "slab"},
        {SLAB_ENGINE_SLOB, "slob"},
};

/* A flag chooses the back end, whatever option engine says; by both forms of create. */
static void engine_by_flag(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("no flag", 64, 0, 0, NULL);

        check_engine("no flag", chosen_engine()->name);
        kmem_cache_destroy(cache);
        for (size_t i = 0; i < array_size(engine_flags); i++) {
                struct kmem_cache_args args = {.ctor = construct};

                cache = kmem_cache_create("by flag", 64, 0, engine_flags[i].flag, NULL);
                check_engine("by flag", engine_flags[i].engine);
                exercise(cache, 64);
                kmem_cache_destroy(cache);
                constructed = 0;
                cache = kmem_cache_create("by flag", 700, &args,
                                          engine_flags[i].flag | SLAB_TYPESAFE_BY_RCU);
                check_engine("by flag", engine_flags[i].engine);
                exercise(cache, 700);
                check(constructed >= 1);
                kmem_cache_destroy(cache);
        }
}

/* Objects of all three at once: each is known by its own cache. */
static void engines_side_by_side(void **state)
{
        struct kmem_cache *caches[array_size(engine_flags)];

        for (size_t i = 0; i < array_size(engine_flags); i++)
                caches[i] = kmem_cache_create("side", 40, 0, engine_flags[i].flag, NULL);
        for (unsigned int i = 0; i < MANY; i++) {
                objects[i] = kmem_cache_alloc(caches[i % array_size(caches)], 0);
                memset(objects[i], (int)i, 40);
        }
        for (unsigned int i = 0; i < MANY; i++) {
                for (unsigned int byte = 0; byte < 40; byte++)
                        check_equal(((uint8_t *)objects[i])[byte], i & 0xff);
                kmem_cache_free(caches[i % array_size(caches)], objects[i]);
        }
        for (size_t i = 0; i < array_size(caches); i++)
                kmem_cache_destroy(caches[i]);
}

static void check_flags_lose(const char *name, const char *engine)
{
        for (size_t i = 0; i < array_size(engine_flags); i++) {
                struct kmem_cache *cache =
                        kmem_cache_create(name, 64, 0, engine_flags[i].flag, NULL);

                check_engine(name, engine);
                exercise(cache, 64);
                kmem_cache_destroy(cache);
        }
}

/* An option that names the cache wins over the flag, in full or up to a '*'. */
static void child_engine_by_name(void)
{
        struct kmem_cache *other = kmem_cache_create("other", 64, 0, SLAB_ENGINE_SLUB, NULL);

        check_engine("other", "slub");
        kmem_cache_destroy(other);
        check_flags_lose("named", "slab");
        check_flags_lose("pattern-4", "slob");
        check_flags_lose("pattern-5", "slub");
}

static void child_engine_of_all(void)
{
        check_flags_lose("any", "slab");
}

/* Options know a cache by the name that it got. */
static void child_engine_of_long_name(void)
{
        char name[300];

        memset(name, 'n', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        check(kmem_cache_create(name, 64, 0, 0, NULL) != NULL);
        name[CACHE_NAME_BYTES - 1] = '\0';
        check_engine(name, "slab");
}

static void engine_by_option(void **state)
{
        char option[100];

        child_passes("engine_by_name", "named.engine=slab,pattern-*.engine=slob,"
                                       "pattern-5.engine=slub");
        child_passes("engine_of_all", "*.engine=slab");
        memset(option, 'n', CACHE_NAME_BYTES - 1);
        strcpy(option + CACHE_NAME_BYTES - 1, ".engine=slab");
        child_passes("engine_of_long_name", option);
}

/* Like caches of different back ends stay apart. */
static void child_merging_by_engine(void)
{
        struct kmem_cache *slub = kmem_cache_create("slub", 64, 0, SLAB_ENGINE_SLUB, NULL);
        struct kmem_cache *slab = kmem_cache_create("slab", 64, 0, SLAB_ENGINE_SLAB, NULL);
        struct kmem_cache *slob = kmem_cache_create("slob", 64, 0, SLAB_ENGINE_SLOB, NULL);
        struct kmem_cache *own = kmem_cache_create("own", 64, 0, 0, NULL);

        check(slub != slab && slub != slob && slab != slob);
        check(kmem_cache_create("slub 2", 64, 0, SLAB_ENGINE_SLUB, NULL) == slub);
        check(kmem_cache_create("slab 2", 64, 0, SLAB_ENGINE_SLAB, NULL) == slab);
        check(kmem_cache_create("slob 2", 64, 0, SLAB_ENGINE_SLOB, NULL) != slob);
        /* The default engine's caches merge, whether the engine was asked for by flag or not. */
        check_equal(own == slub, chosen_engine() == &slub_engine);
        check_equal(own == slab, chosen_engine() == &slab_engine);
        check(own != slob);
        check_engine("slub 2", "slub");
        check_engine("slab 2", "slab");
        check_engine("slob 2", "slob");
}

/* S4-42: on engine slab, with slabs that begin with a colour, the alignment also counts. */
static void child_merging_aligned(void)
{
        struct kmem_cache *base = kmem_cache_create("base", 640, 0, SLAB_ENGINE_SLAB, NULL);
        struct kmem_cache *aligned = kmem_cache_create("aligned", 640, 128, SLAB_ENGINE_SLAB, NULL);

        for (unsigned int i = 0; i < MANY; i++) {
                objects[i] = kmem_cache_alloc(aligned, 0);
                check_equal((uintptr_t)objects[i] % 128, 0);
        }
        for (unsigned int i = 0; i < MANY; i++)
                kmem_cache_free(aligned, objects[i]);
        check(aligned != base);
        /* The other way round it is like enough. */
        check(kmem_cache_create("less", 640, 64, SLAB_ENGINE_SLAB, NULL) == aligned);
}

static void merging_by_engine(void **state)
{
        child_passes("merging_by_engine", "slab_merge=1");
        child_passes("merging_aligned", "slab_merge=1");
}

/* 4,095 caches and no more; afterwards indexes are used again. */
static void child_many_caches(void)
{
        static struct kmem_cache *caches[CACHES_MAX];
        unsigned int count = 0;
        struct kmem_cache *last;

        while ((last = kmem_cache_create("many", 32, 0, SLAB_NO_MERGE, NULL))) {
                check(count < CACHES_MAX);
                objects[count % MANY] = kmem_cache_alloc(last, 0);
                kmem_cache_free(last, objects[count % MANY]);
                caches[count++] = last;
        }
        check_equal(errno, ENOSPC);
        /* The pages of engine slob have an index as well, and closed caches have two. */
        check_equal(count,
                    cache_is_closed(caches[0]) ? (CACHES_MAX - 1) / 2 : CACHES_MAX - 1 - is_slob());
        kmem_cache_destroy(caches[1234]);
        caches[1234] = kmem_cache_create("again", 500, 0, 0, NULL);
        exercise(caches[1234], 500);
        check(kmem_cache_create("full", 32, 0, SLAB_NO_MERGE, NULL) == NULL);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_destroy(caches[i]);
        exercise(kmem_cache_create("fresh", 32, 0, 0, NULL), 32);
}

static void many_caches(void **state)
{
        child_prints("many_caches", NULL, "4095 caches exist");
}

/* S8-46: a failing request says so unless asked not to; with __GFP_NOFAIL the process stops. */
static void child_exhausted(void)
{
        struct kmem_cache *cache = kmem_cache_create("exhausted", 4u << 20, 0, 0, NULL);
        unsigned int count = 0;

        while (kmem_cache_alloc(cache, __GFP_NOWARN))
                count++;
        fprintf(stderr, "quiet\n");
        check_equal(errno, ENOMEM);
        check(count > 0 && count < 100);
        for (unsigned int i = 0; i < 30; i++)
                check(kmem_cache_alloc(cache, GFP_KERNEL) == NULL);
        check_equal(kmem_cache_alloc_bulk(cache, __GFP_NOWARN, 5, objects), 0);
        check_equal(errno, ENOMEM);
        fprintf(stderr, "nofail\n");
        kmem_cache_alloc(cache, __GFP_NOFAIL);
}

static void exhausted(void **state)
{
        static struct child_result result;
        unsigned int lines = 0;
        char *quiet, *at;
        char title[50];

        child_aborts("exhausted", "reserve=64M", "__GFP_NOFAIL");
        child_run("exhausted", "reserve=64M", &result);
        quiet = strstr(result.output, "quiet\n");
        assert_non_null(quiet);
        at = strstr(result.output, "Unable to allocate memory");
        assert_true(at > quiet);
        for (; at; at = strstr(at + 1, "Unable to allocate memory"))
                lines++;
        assert_int_in_range(lines, 1, 10);
        snprintf(title, sizeof(title), "kmem: %s: Unable to allocate memory",
                 chosen_engine()->title);
        assert_non_null(strstr(result.output, title));
}

/* S8-31: a constructor may allocate from other caches. */
static struct kmem_cache *inner;

static void construct_with_parts(void *object)
{
        *(void **)object = kmem_cache_alloc(inner, 0);
        check(*(void **)object != NULL);
}

static void allocating_constructor(void **state)
{
        struct kmem_cache *outer;

        inner = kmem_cache_create("inner", 16, 0, 0, NULL);
        outer = kmem_cache_create("outer", 700, 0, 0, construct_with_parts);
        for (unsigned int i = 0; i < MANY; i++) {
                objects[i] = kmem_cache_alloc(outer, 0);
                check(*(void **)objects[i] != NULL);
        }
        for (unsigned int i = 0; i < MANY; i++)
                kmem_cache_free(outer, objects[i]);
        kmem_cache_destroy(outer);
}

static void construct_ones(void *object)
{
        memset(object, 1, 64);
}

/* Flags for zones and reclaim change nothing, and a constructor does not withstand __GFP_ZERO. */
static void flags_of_requests(void **state)
{
        static const gfp_t ignored[] = {
                GFP_ATOMIC,          GFP_NOWAIT,    GFP_USER,         GFP_DMA,
                GFP_DMA32,           __GFP_HIGHMEM, __GFP_MOVABLE,    __GFP_RECLAIMABLE,
                __GFP_MEMALLOC,      __GFP_COMP,    __GFP_NOMEMALLOC, __GFP_WRITE,
                __GFP_RETRY_MAYFAIL, __GFP_NORETRY};
        struct kmem_cache *cache = kmem_cache_create("ones", 64, 0, 0, construct_ones);
        char *object;

        for (size_t i = 0; i < array_size(ignored); i++) {
                object = kmem_cache_alloc(cache, ignored[i]);
                assert_non_null(object);
                assert_int_equal(object[0], 1);
                kmem_cache_free(cache, object);
        }
        object = kmem_cache_zalloc(cache, GFP_KERNEL);
        assert_int_equal(object[0], 0);
        assert_int_equal(object[63], 0);
        memset(object, 1, 64);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"refused", child_refused},
                {"panic", child_panic},
                {"usercopy", child_usercopy},
                {"leftovers", child_leftovers},
                {"shown_leftovers", child_shown_leftovers},
                {"merging", child_merging},
                {"many_caches", child_many_caches},
                {"destroyed_alloc_older", child_destroyed_alloc_older},
                {"destroyed_alloc_newer", child_destroyed_alloc_newer},
                {"destroyed_alloc_late", child_destroyed_alloc_late},
                {"destroyed_alloc_many", child_destroyed_alloc_many},
                {"destroyed_free_many", child_destroyed_free_many},
                {"destroyed_free", child_destroyed_free},
                {"destroyed_twice", child_destroyed_twice},
                {"destroyed_shrink", child_destroyed_shrink},
                {"exhausted", child_exhausted},
                {"odd_names", child_odd_names},
                {"engine_by_name", child_engine_by_name},
                {"engine_of_all", child_engine_of_all},
                {"engine_of_long_name", child_engine_of_long_name},
                {"merging_by_engine", child_merging_by_engine},
                {"merging_aligned", child_merging_aligned},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sizes),
                cmocka_unit_test(zeroing),
                cmocka_unit_test(alignments),
                cmocka_unit_test(hardware_cache_align),
                cmocka_unit_test(refused),
                cmocka_unit_test(permitted_flags),
                cmocka_unit_test(panic_flag),
                cmocka_unit_test(create_forms),
                cmocka_unit_test(usercopy),
                cmocka_unit_test(names),
                cmocka_unit_test(odd_names),
                cmocka_unit_test(null_calls),
                cmocka_unit_test(node_and_lru),
                cmocka_unit_test(shrink_result),
                cmocka_unit_test(leftovers),
                cmocka_unit_test(destroyed_caches),
                cmocka_unit_test(merging),
                cmocka_unit_test(merging_is_an_option),
                cmocka_unit_test(engine_by_flag),
                cmocka_unit_test(engines_side_by_side),
                cmocka_unit_test(engine_by_option),
                cmocka_unit_test(merging_by_engine),
                cmocka_unit_test(many_caches),
                cmocka_unit_test(exhausted),
                cmocka_unit_test(flags_of_requests),
                cmocka_unit_test(allocating_constructor),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
