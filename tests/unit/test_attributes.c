/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Attributes of caches (S9): every row's format and meaning, the values that can be written and
 * their effect, and refusals. Figures are compared with states that were counted out by hand:
 * children run without sheaves and with slabs of a page, so that each object taken or given moves
 * exactly one figure.
 */
#define _GNU_SOURCE
#include "child.h"
#include "skip.h"

#include "lang/compiler.h"
#include "engines/engine.h"
#include "kmem.h"
#include "percpu/percpu.h"
#include "percpu/stock.h"
#include "engines/slub/counters.h"
#include "engines/slub/slab.h"
#include "introspect/attributes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTED_OUT "sheaf_capacity=0,slub_max_order=0"

/* S9.1, then ours; w: can be written, - : reads as empty. */
static const struct row {
        const char *name;
        const char *kind;
} rows[] = {
        {"slab_size", "number"},     {"object_size", "number"},
        {"objs_per_slab", "number"}, {"order", "number"},
        {"align", "number"},         {"min_partial", "number w"},
        {"cpu_partial", "number w"}, {"slabs_cpu_partial", "listed"},
        {"partial", "nodes"},        {"objects_partial", "nodes"},
        {"cpu_slabs", "nodes"},      {"slabs", "nodes"},
        {"total_objects", "nodes"},  {"objects", "nodes"},
        {"ctor", "empty"},           {"aliases", "number"},
        {"hwcache_align", "flag"},   {"reclaim_account", "flag"},
        {"destroy_by_rcu", "flag"},  {"cache_dma", "flag"},
        {"usersize", "number"},      {"sanity_checks", "flag"},
        {"red_zone", "flag"},        {"poison", "flag"},
        {"store_user", "flag"},      {"trace", "flag"},
        {"validate", "empty w"},     {"shrink", "empty w"},
        {"failslab", "flag w"},      {"remote_node_defrag_ratio", "number w"},
        {"skip_kfence", "flag w"},   {"guard_sampling", "number w"},
        {"engine", "word"},          {"sheaf_capacity", "number w"},
        {"objects_inuse", "number"},
};

static const char *value_of(const char *cache, const char *name)
{
        static char text[4][KMEM_ATTR_BYTES];
        static unsigned int turn;
        char *value = text[turn++ % 4];
        int length = kmem_attr_read(cache, name, value, KMEM_ATTR_BYTES);

        check(length >= 0);
        check_equal(length, strlen(value));
        return value;
}

/* Prints the value that was read, which a plain check could not. */
static void expect(const char *cache, const char *name, const char *expected, int line)
{
        const char *value = value_of(cache, name);

        if (strcmp(value, expected) == 0)
                return;
        fprintf(stderr, "%s of %s is %s, expected %s (line %d)\n", name, cache, value, expected,
                line);
        check_failed("an attribute's value", __FILE__, line);
}

#define EXPECT(cache, name, value) expect(cache, name, value "\n", __LINE__)

static void expect_number(const char *cache, const char *name, unsigned long number, int line)
{
        char text[32];

        snprintf(text, sizeof(text), "%lu\n", number);
        expect(cache, name, text, line);
}

#define EXPECT_NUMBER(cache, name, number) expect_number(cache, name, number, __LINE__)

/* A count with everything on a single node: where there are two, on the node of this CPU. */
static void expect_nodes(const char *cache, const char *name, unsigned long number, int line)
{
        char text[64] = "0\n";
        unsigned int node = 0;

        if (system_nodes() > 1)
                sscanf(value_of(cache, name), "%*u N%u=", &node);
        if (number)
                snprintf(text, sizeof(text), "%lu N%u=%lu\n", number, node, number);
        expect(cache, name, text, line);
}

#define EXPECT_NODES(cache, name, number) expect_nodes(cache, name, number, __LINE__)

/* On a single CPU a thread stays in its slot, however slots are numbered. */
static void stay_on_this_cpu(void)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((unsigned int)sched_getcpu(), &set);
        check(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static bool has_format(const char *kind, const char *value)
{
        size_t length = strlen(value);
        unsigned long number, part;
        int used = 0;

        if (strncmp(kind, "empty", 5) == 0)
                return length == 0;
        if (length < 2 || value[length - 1] != '\n')
                return false;
        if (strncmp(kind, "word", 4) == 0)
                return strspn(value, "abcdefghijklmnopqrstuvwxyz") == length - 1;
        if (strncmp(kind, "flag", 4) == 0)
                return length == 2 && (*value == '0' || *value == '1');
        if (strncmp(kind, "number", 6) == 0)
                return strspn(value, "0123456789") == length - 1;
        if (strncmp(kind, "listed", 6) == 0)
                return sscanf(value, "%lu(%lu)%n", &number, &part, &used) == 2 && used &&
                       (size_t)used == length - 1;
        check(strcmp(kind, "nodes") == 0);
        if (sscanf(value, "%lu%n", &number, &used) != 1)
                return false;
        if (!number)
                return length == 2;
        return sscanf(value + used, " N0=%lu%n", &part, &used) == 1 && part == number;
}

static void every_row_has_its_format(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("rows", 64, 0, 0, NULL);
        void *object = kmem_cache_alloc(cache, 0);

        for (size_t i = 0; i < array_size(rows); i++) {
                const char *value = value_of("rows", rows[i].name);

                if (!has_format(rows[i].kind, value)) {
                        print_error("%s reads as \"%s\"\n", rows[i].name, value);
                        fail();
                }
        }
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
}

/* S9.1: an attribute that is not listed as writable gives EIO, and nothing has changed. */
static void what_can_be_written(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("writes", 64, 0, 0, NULL);

        for (size_t i = 0; i < array_size(rows); i++) {
                bool writable = strchr(rows[i].kind, 'w') && strcmp(rows[i].kind, "word") != 0;
                char before[KMEM_ATTR_BYTES];

                strcpy(before, value_of("writes", rows[i].name));
                errno = 0;
                assert_int_equal(kmem_attr_write("writes", rows[i].name, "nonsense"), -1);
                assert_int_equal(errno, writable ? EINVAL : EIO);
                assert_string_equal(value_of("writes", rows[i].name), before);
        }
        kmem_cache_destroy(cache);
}

static void unknown_names(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("known", 64, 0, 0, NULL);
        char text[KMEM_ATTR_BYTES] = "as it was";

        /* alloc_traces and free_traces exist with flag U only (S9.1). */
        static const char *const names[][2] = {{"known", "colour"},       {"known", ""},
                                               {"known", "alloc_traces"}, {"known", "free_traces"},
                                               {"unknown", "slab_size"},  {"", "slab_size"},
                                               {"known", NULL},           {NULL, "slab_size"},
                                               {":0000064", "slab_size"}, {"known", "slab_size "}};

        for (size_t i = 0; i < array_size(names); i++) {
                errno = 0;
                assert_int_equal(kmem_attr_read(names[i][0], names[i][1], text, sizeof(text)), -1);
                assert_int_equal(errno, ENOENT);
                errno = 0;
                assert_int_equal(kmem_attr_write(names[i][0], names[i][1], "1"), -1);
                assert_int_equal(errno, ENOENT);
        }
        for (size_t bytes = 0; bytes < 4; bytes++) {
                errno = 0;
                assert_int_equal(kmem_attr_read("known", "slab_size", text, bytes),
                                 bytes < 4 ? -1 : 3);
                assert_int_equal(errno, ENOBUFS);
        }
        assert_string_equal(text, "as it was");
        assert_int_equal(kmem_attr_read("known", "slab_size", text, 4), 3);
        assert_string_equal(text, "64\n");
        kmem_cache_destroy(cache);
        assert_int_equal(kmem_attr_read("known", "slab_size", text, sizeof(text)), -1);
}

static const struct refused {
        const char *name;
        const char *value;
        int error;
} refusals[] = {
        {"min_partial", "", EINVAL},
        {"min_partial", "\n", EINVAL},
        {"min_partial", "-1", EINVAL},
        {"min_partial", " 1", EINVAL},
        {"min_partial", "1 ", EINVAL},
        {"min_partial", "1\n\n", EINVAL},
        {"min_partial", "++1", EINVAL},
        {"min_partial", "0x10", EINVAL},
        {"min_partial", "1e3", EINVAL},
        {"min_partial", "18446744073709551616", ERANGE},
        {"min_partial", "99999999999999999999999", ERANGE},
        {"min_partial", NULL, EINVAL},
        {"cpu_partial", "", EINVAL},
        {"cpu_partial", "many", EINVAL},
        {"cpu_partial", "4294967296", ERANGE},
        {"validate", "", EINVAL},
        {"validate", "0", EINVAL},
        {"validate", "1", EINVAL}, /* no cache has debugging */
        {"validate", "2", EINVAL},
        {"shrink", "", EINVAL},
        {"shrink", "0", EINVAL},
        {"shrink", "2", EINVAL},
        {"shrink", "11", EINVAL},
        {"shrink", "yes", EINVAL},
        {"failslab", "2", EINVAL},
        {"failslab", "", EINVAL},
        {"failslab", "01", EINVAL},
        {"remote_node_defrag_ratio", "101", ERANGE},
        {"remote_node_defrag_ratio", "4294967296", ERANGE},
        {"remote_node_defrag_ratio", "-1", EINVAL},
        {"remote_node_defrag_ratio", "1%", EINVAL},
        {"skip_kfence", "2", EINVAL},
        {"skip_kfence", "on", EINVAL},
        {"guard_sampling", "1073741825", ERANGE},
        {"guard_sampling", "1/1000", EINVAL},
};

static void bad_values(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("refuses", 64, 0, 0, NULL);

        for (size_t i = 0; i < array_size(refusals); i++) {
                char before[KMEM_ATTR_BYTES];

                strcpy(before, value_of("refuses", refusals[i].name));
                errno = 0;
                assert_int_equal(kmem_attr_write("refuses", refusals[i].name, refusals[i].value),
                                 -1);
                assert_int_equal(errno, refusals[i].error);
                assert_string_equal(value_of("refuses", refusals[i].name), before);
        }
        kmem_cache_destroy(cache);
}

static void good_values(void **state)
{
        static const char *const good[][3] = {
                {"min_partial", "0", "0\n"},
                {"min_partial", "+7\n", "7\n"},
                {"min_partial", "0012", "12\n"},
                {"min_partial", "18446744073709551615", "18446744073709551615\n"},
                {"cpu_partial", "0\n", "0\n"},
                {"cpu_partial", "4294967295", "4294967295\n"},
                {"cpu_partial", "120", "120\n"},
                {"failslab", "1", "1\n"},
                {"failslab", "0\n", "0\n"},
                {"remote_node_defrag_ratio", "0", "0\n"},
                {"remote_node_defrag_ratio", "100", "100\n"},
                {"remote_node_defrag_ratio", "33\n", "33\n"},
                {"skip_kfence", "1\n", "1\n"},
                {"skip_kfence", "0", "0\n"},
                {"guard_sampling", "1000\n", "1000\n"},
                {"guard_sampling", "0", "0\n"},
                {"shrink", "1", ""},
                {"shrink", "1\n", ""},
        };
        struct kmem_cache *cache = kmem_cache_create("takes", 64, 0, 0, NULL);

        assert_string_equal(value_of("takes", "remote_node_defrag_ratio"), "100\n");
        for (size_t i = 0; i < array_size(good); i++) {
                assert_int_equal(kmem_attr_write("takes", good[i][0], good[i][1]), 0);
                assert_string_equal(value_of("takes", good[i][0]), good[i][2]);
        }
        kmem_cache_destroy(cache);
}

/* The factor of S2-11 must not overflow with the largest value. */
static void largest_cpu_partial(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("largest", 64, 0, 0, NULL);
        uint64_t slabs = (2ull * UINT32_MAX + cache->objects - 1) / cache->objects;

        assert_int_equal(kmem_attr_write("largest", "cpu_partial", "4294967295"), 0);
        assert_int_equal(cache->cpu_partial_slabs, slabs > UINT32_MAX ? UINT32_MAX : slabs);
        kmem_cache_destroy(cache);
}

static void child_layout(void)
{
        struct kmem_cache_args region = {.useroffset = 8, .usersize = 24};

        kmem_cache_create("plain", 100, 0, 0, NULL);
        EXPECT_NUMBER("plain", "object_size", 100);
        EXPECT_NUMBER("plain", "slab_size", 104);
        EXPECT_NUMBER("plain", "align", 8);
        EXPECT_NUMBER("plain", "order", 0);
        EXPECT_NUMBER("plain", "objs_per_slab", 4096 / 104);
        EXPECT_NUMBER("plain", "usersize", 0);
        EXPECT_NUMBER("plain", "min_partial", 5);
        EXPECT_NUMBER("plain", "cpu_partial", 120);
        EXPECT("plain", "engine", "slub");
        EXPECT_NUMBER("plain", "sheaf_capacity", 0);
        EXPECT_NUMBER("plain", "aliases", 0);

        kmem_cache_create("line", 100, 0, SLAB_HWCACHE_ALIGN | SLAB_RECLAIM_ACCOUNT, NULL);
        EXPECT_NUMBER("line", "slab_size", 128);
        EXPECT_NUMBER("line", "align", 64);
        EXPECT_NUMBER("line", "objs_per_slab", 32);
        kmem_cache_create("large", 9000, 256, SLAB_CACHE_DMA | SLAB_TYPESAFE_BY_RCU, NULL);
        EXPECT_NUMBER("large", "object_size", 9000);
        EXPECT_NUMBER("large", "slab_size", 9216);
        EXPECT_NUMBER("large", "align", 256);
        EXPECT_NUMBER("large", "order", 2);
        EXPECT_NUMBER("large", "objs_per_slab", 1);
        EXPECT_NUMBER("large", "min_partial", 6); /* S1-09 */
        EXPECT_NUMBER("large", "cpu_partial", 6);
        kmem_cache_create("region", 64, &region, 0);
        EXPECT_NUMBER("region", "usersize", 24);
        kmem_cache_create("middle", 1024, 0, 0, NULL);
        EXPECT_NUMBER("middle", "cpu_partial", 24);
        kmem_cache_create("small", 256, 0, 0, NULL);
        EXPECT_NUMBER("small", "cpu_partial", 52);
}

static void child_no_debugging(void)
{
        kmem_cache_create("flagged", 64, 0, SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE, NULL);
        EXPECT("flagged", "sanity_checks", "0");
        EXPECT("flagged", "red_zone", "0");
        check(kmem_attr_write("flagged", "validate", "1") == -1);
        check_equal(errno, EINVAL);
}

static void child_flags(void)
{
        static const struct {
                const char *name;
                slab_flags_t flag;
        } flags[] = {
                {"hwcache_align", SLAB_HWCACHE_ALIGN},
                {"reclaim_account", SLAB_RECLAIM_ACCOUNT},
                {"destroy_by_rcu", SLAB_TYPESAFE_BY_RCU},
                {"cache_dma", SLAB_CACHE_DMA},
        };
        static const slab_flags_t debugging = SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE |
                                              SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE;

        for (size_t i = 0; i < array_size(flags); i++) {
                struct kmem_cache *cache = kmem_cache_create("flagged", 64, 0, flags[i].flag, NULL);

                for (size_t j = 0; j < array_size(flags); j++)
                        EXPECT_NUMBER("flagged", flags[j].name, i == j);
                kmem_cache_destroy(cache);
        }
        for (unsigned int bit = 0; bit < 32; bit++) {
                slab_flags_t flag = debugging & 1u << bit;
                struct kmem_cache *cache;

                if (!flag)
                        continue;
                cache = kmem_cache_create("flagged", 64, 0, flag, NULL);
                EXPECT_NUMBER("flagged", "sanity_checks", flag == SLAB_CONSISTENCY_CHECKS);
                EXPECT_NUMBER("flagged", "red_zone", flag == SLAB_RED_ZONE);
                EXPECT_NUMBER("flagged", "poison", flag == SLAB_POISON);
                EXPECT_NUMBER("flagged", "store_user", flag == SLAB_STORE_USER);
                EXPECT_NUMBER("flagged", "trace", flag == SLAB_TRACE);
                check_equal(kmem_attr_write("flagged", "validate", "1"), 0);
                check(kmem_attr_write("flagged", "validate", "0") == -1);
                check_equal(errno, EINVAL);
                check(kmem_attr_write("flagged", "cpu_partial", "1") == -1);
                check_equal(errno, EINVAL);
                check(kmem_attr_write("flagged", "sheaf_capacity", "1") == -1);
                check_equal(errno, ERANGE);
                kmem_cache_destroy(cache);
        }
        /* Elsewhere nothing checks, so nothing may claim to. */
        child_passes("no_debugging", "engine=slab");
        child_passes("no_debugging", "engine=slob");
}

static unsigned int count_lines(const char *text)
{
        unsigned int lines = 0;

        while ((text = strchr(text, '\n'))) {
                lines++;
                text++;
        }
        return lines;
}

/* S9-01, S10-30, S10.5: additional attributes of a debug cache. */
static void child_debug_cache(void)
{
        struct kmem_cache *cache = kmem_cache_create("traced", 64, 0, 0, NULL);
        struct kmem_cache *plain = kmem_cache_create("plain", 64, 0, SLAB_NO_USER_FLAGS, NULL);
        static char text[1 << 16];
        unsigned char *volatile objects[3];
        unsigned int lines;

        check(cache && plain);
        EXPECT("traced", "debug_errors", "0");
        EXPECT("traced", "alloc_traces", "No data");
        /* All from one place: the compiler must not unroll the loop. */
        for (volatile unsigned int i = 0; i < 3; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        check(kmem_attr_read("traced", "alloc_traces", text, sizeof(text)) > 0);
        check(strncmp(text, "      3 ", 8) == 0 && strstr(text, " age=") && strstr(text, " pid="));
        check(strstr(text, "\n        ") && text[strlen(text) - 1] == '\n');
        check(!strchr(text, '\1'));
        kmem_cache_free(cache, objects[0]);
        objects[0] = kmem_cache_alloc(cache, 0);
        check(kmem_attr_read("traced", "free_traces", text, sizeof(text)) > 0);
        check(strstr(text, "      2 <not-available>") && strstr(text, "      1 "));
        /* In less room there is less, in whole entries. */
        lines = count_lines(text);
        check(kmem_attr_read("traced", "free_traces", text, KMEM_ATTR_BYTES) > 0);
        check(count_lines(text) <= lines && text[strlen(text) - 1] == '\n');
        check(kmem_attr_read("traced", "alloc_traces", text, 10) == -1);
        check_equal(errno, ENOBUFS);
        objects[0][64] = 'x';
        check_equal(kmem_attr_write("traced", "validate", "1\n"), 0);
        EXPECT("traced", "debug_errors", "2");
        check(kmem_attr_read("plain", "debug_errors", text, sizeof(text)) == -1);
        check_equal(errno, ENOENT);
}

static void debug_cache(void **state)
{
        child_prints("debug_cache", "debug=FZPU", "[Right Redzone overwritten]");
}

enum { PER_SLAB = 8 }; /* objects of 512 bytes in a page */
static void *objects[8 * PER_SLAB];

static void take(struct kmem_cache *cache, unsigned int from, unsigned int to)
{
        for (unsigned int i = from; i < to; i++) {
                objects[i] = kmem_cache_alloc(cache, 0);
                check(objects[i] != NULL);
        }
}

static void give(struct kmem_cache *cache, unsigned int from, unsigned int to)
{
        for (unsigned int i = from; i < to; i++)
                kmem_cache_free(cache, objects[i]);
}

struct counts {
        unsigned long slabs, total_objects, objects, partial, objects_partial, cpu_slabs, inuse;
};

static void expect_counts(const char *cache, struct counts counts, int line)
{
        expect_nodes(cache, "slabs", counts.slabs, line);
        expect_nodes(cache, "total_objects", counts.total_objects, line);
        expect_nodes(cache, "objects", counts.objects, line);
        expect_nodes(cache, "partial", counts.partial, line);
        expect_nodes(cache, "objects_partial", counts.objects_partial, line);
        expect_nodes(cache, "cpu_slabs", counts.cpu_slabs, line);
        expect_number(cache, "objects_inuse", counts.inuse, line);
}

#define EXPECT_COUNTS(...) expect_counts("counted", (struct counts){__VA_ARGS__}, __LINE__)

static void write_value(const char *name, const char *value)
{
        check_equal(kmem_attr_write("counted", name, value), 0);
}

/* Without CPU partial lists, slabs are full, node partial, or the single CPU slab. */
static void child_node_counts(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        stay_on_this_cpu();
        EXPECT_NUMBER("counted", "cpu_partial", 0);
        check(kmem_attr_write("counted", "cpu_partial", "5") == -1); /* S2-33 */
        check_equal(errno, EINVAL);
        write_value("cpu_partial", "0");
        EXPECT_COUNTS(0);
        take(cache, 0, 20); /* two full slabs, four objects of the third, which is the CPU slab */
        EXPECT_COUNTS(3, 24, 24, 0, 0, 1, 20);
        give(cache, 0, 1);
        EXPECT_COUNTS(3, 24, 23, 1, 7, 1, 19);
        give(cache, 8, 9);
        EXPECT_COUNTS(3, 24, 22, 2, 14, 1, 18);
        give(cache, 16, 17); /* into the CPU slab: still counts as used */
        EXPECT_COUNTS(3, 24, 22, 2, 14, 1, 17);
        give(cache, 1, 8); /* empty, but min_partial keeps it (S1-35) */
        EXPECT_COUNTS(3, 24, 15, 2, 7, 1, 10);
        write_value("shrink", "1");
        EXPECT_COUNTS(2, 16, 10, 2, 10, 0, 10);
        write_value("min_partial", "0");
        give(cache, 9, 16);
        EXPECT_COUNTS(1, 8, 3, 1, 3, 0, 3);
        give(cache, 17, 20);
        EXPECT_COUNTS(0);
}

static void expect_listed(unsigned int slabs, int line)
{
        char expected[64] = "0(0)\n";
        const char *value = value_of("counted", "slabs_cpu_partial");
        unsigned int cpu = 0;

        sscanf(value, "%*u(%*u) C%u=", &cpu);
        if (slabs)
                snprintf(expected, sizeof(expected), "%u(%u) C%u=%u(%u)\n", slabs * PER_SLAB / 2,
                         slabs, cpu, slabs * PER_SLAB / 2, slabs);
        expect("counted", "slabs_cpu_partial", expected, line);
}

/* S2-11, S2-12, S2-31, S2-33, and the rule of cpu_slabs. */
static void child_cpu_counts(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        stay_on_this_cpu();
        write_value("cpu_partial", "8");
        check_equal(cache->cpu_partial_slabs, 2);
        take(cache, 0, 25); /* three full slabs and a CPU slab */
        EXPECT_COUNTS(4, 32, 32, 0, 0, 1, 25);
        expect_listed(0, __LINE__);
        give(cache, 0, 1);
        expect_listed(1, __LINE__);
        EXPECT_COUNTS(4, 32, 32, 0, 0, 2, 24);
        give(cache, 8, 9);
        expect_listed(2, __LINE__);
        EXPECT_COUNTS(4, 32, 32, 0, 0, 3, 23);
        give(cache, 16, 17); /* the list was at its limit */
        expect_listed(1, __LINE__);
        EXPECT_COUNTS(4, 32, 30, 2, 14, 2, 22);
        /* Objects on CPU partial slabs are half of their capacity, however many are free. */
        give(cache, 17, 22);
        expect_listed(1, __LINE__);
        write_value("cpu_partial", "100");
        check_equal(cache->cpu_partial_slabs, 25);
        expect_listed(0, __LINE__);
        EXPECT_COUNTS(4, 32, 17, 4, 17, 0, 17);
        /* A CPU with a list but without a CPU slab is not seen. */
        take(cache, 26, 27);
        check(cache->node[0].partial.length < 4);
        check(strncmp(value_of("counted", "cpu_slabs"), "0", 1) != 0);
}

/* S2-30, S2-31: by objects, the file shows the objects that were free when a slab joined. */
static void child_cpu_objects(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        unsigned int cpu, again;
        unsigned long counts[4];

        stay_on_this_cpu();
        EXPECT("counted", "slabs_cpu_partial", "0(0)");
        take(cache, 0, 25);
        give(cache, 0, 4);
        give(cache, 8, 9);
        check_equal(sscanf(value_of("counted", "slabs_cpu_partial"), "%lu(%lu) C%u=%lu(%lu)",
                           &counts[0], &counts[1], &cpu, &counts[2], &counts[3]),
                    5);
        check(counts[0] == 2 && counts[1] == 2 && counts[2] == 2 && counts[3] == 2);
        sscanf(value_of("counted", "cpu_slabs"), "%u", &again);
        check_equal(again, 3);
}

/* A descriptor counts 24 bits of free objects: with a limit beyond them the list ends there. */
static void child_most_cpu_objects(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        unsigned long counts[2];

        stay_on_this_cpu();
        write_value("cpu_partial", "4294967295");
        take(cache, 0, 24);
        give(cache, 0, 1);
        slub_slab_of(cache, objects[0])->list_objects = (1 << 24) - 1;
        give(cache, 8, 9);
        check_equal(sscanf(value_of("counted", "slabs_cpu_partial"), "%lu(%lu)", &counts[0],
                           &counts[1]),
                    2);
        check_equal(counts[0], 1);
        check_equal(counts[1], 1);
        EXPECT_NODES("counted", "partial", 1);
}

/* S9.2: "SUM C0=x", 0 clears, and there is nothing to read where nothing is counted. */
static const char *counter_name(unsigned int counter)
{
        for (size_t i = 0; i < attribute_count; i++)
                if (attributes[i].show == show_counter && attributes[i].place == counter)
                        return attributes[i].name;
        check_failed("a counter without an attribute", __FILE__, __LINE__);
        return NULL;
}

static void child_counters(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        unsigned long sum, part;
        unsigned int cpu;
        int used = 0;

        stay_on_this_cpu();
        for (unsigned int i = 0; i < SHEAF_FLUSH; i++)
                EXPECT("counted", counter_name(i), "0");
        take(cache, 0, 20);
        for (unsigned int i = 0; i < SHEAF_FLUSH; i++)
                if (strcmp(value_of("counted", counter_name(i)), "0\n") != 0)
                        check(i == ALLOC_FASTPATH || i == ALLOC_SLOWPATH || i == ALLOC_SLAB ||
                              i == DEACTIVATE_BYPASS);
        check_equal(sscanf(value_of("counted", "alloc_slab"), "%lu C%u=%lu%n", &sum, &cpu, &part,
                           &used),
                    3);
        check(sum == 3 && part == 3 && value_of("counted", "alloc_slab")[used] == '\n');
        check(kmem_attr_write("counted", "alloc_slab", "1") == -1);
        check_equal(errno, EINVAL);
        check(kmem_attr_write("counted", "alloc_slab", "") == -1);
        check_equal(errno, EINVAL);
        check_equal(sscanf(value_of("counted", "alloc_slab"), "%lu", &sum), 1);
        check_equal(sum, 3);
        write_value("alloc_slab", "0\n");
        EXPECT("counted", "alloc_slab", "0");
        check(strcmp(value_of("counted", "alloc_slowpath"), "0\n") != 0);

        kmem_cache_create("uncounted", 512, 0, 0, NULL);
        for (unsigned int i = 0; i < SHEAF_FLUSH; i++) {
                errno = 0;
                check(kmem_attr_read("uncounted", counter_name(i), (char[9]){0}, 9) == -1);
                check_equal(errno, ENOENT);
                check(kmem_attr_write("uncounted", counter_name(i), "0") == -1);
                check_equal(errno, ENOENT);
        }
}

/*
 * With kernel=7.2 names come and go (S13-12), and a hit counts: 28 objects of 512 bytes fill a sheaf.
 */
static void child_sheaf_counters(void)
{
        static const char *const gone[] = {"free_frozen",
                                           "alloc_from_partial",
                                           "alloc_refill",
                                           "cpuslab_flush",
                                           "deactivate_bypass",
                                           "deactivate_full",
                                           "cmpxchg_double_cpu_fail",
                                           "cpu_partial_alloc",
                                           "cpu_partial_drain"};
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        struct kmem_cache *debug = kmem_cache_create("checked", 512, 0, SLAB_RED_ZONE, NULL);
        unsigned long sum;

        stay_on_this_cpu();
        for (size_t i = 0; i < array_size(gone); i++)
                check(kmem_attr_read("counted", gone[i], (char[9]){0}, 9) == -1 &&
                      kmem_attr_read("checked", gone[i], (char[9]){0}, 9) == -1);
        EXPECT("counted", "cpu_partial", "0");
        EXPECT("counted", "slabs_cpu_partial", "0(0)");
        EXPECT("counted", "sheaf_capacity", "28");
        EXPECT("checked", "sheaf_capacity", "0");
        take(cache, 0, 30);
        check_equal(sscanf(value_of("counted", "alloc_fastpath"), "%lu", &sum), 1);
        check_equal(sum, 30);
        EXPECT("counted", "alloc_slowpath", "0");
        check_equal(sscanf(value_of("counted", "sheaf_refill"), "%lu", &sum), 1);
        check_equal(sum, 56);
        give(cache, 0, 30);
        check_equal(sscanf(value_of("counted", "free_fastpath"), "%lu", &sum), 1);
        check_equal(sum, 30);
        EXPECT("counted", "free_slowpath", "0");
        write_value("shrink", "1");
        check_equal(sscanf(value_of("counted", "sheaf_flush"), "%lu", &sum), 1);
        check_equal(sum, 56);
        kmem_cache_free(debug, kmem_cache_alloc(debug, 0));
}

static void child_sheaf_objects(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        stay_on_this_cpu();
        EXPECT_NUMBER("counted", "sheaf_capacity", 4);
        take(cache, 0, 5);
        EXPECT_NUMBER("counted", "objects_inuse", 5);
        give(cache, 0, 3);
        EXPECT_NUMBER("counted", "objects_inuse", 2);
        EXPECT_NODES("counted", "objects", PER_SLAB);
}

/* Capacity of the sheaf that the next free goes to; 0: it goes to its slab. */
static unsigned int capacity_in_use(struct kmem_cache *cache)
{
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        return slot_read_pair(slot_current(), sheaf_offset(cache)).main->capacity;
}

/*
 * Objects that a slow path still has in hand while the capacity changes are used up, then not kept.
 */
static void check_old_sheaf(struct kmem_cache *cache)
{
        struct slot *slot = slot_current();
        struct slot_cache *record = slot_record(&slot, cache);
        struct sheaf *full, *empty;
        uint64_t stocked;

        write_value("sheaf_capacity", "5");
        empty = barn_take_empty(cache);
        full = barn_take_empty(cache);
        check(empty && full && empty->capacity == 5);
        full->size = cache->engine->take(cache, &record->engine, full->object, 5);
        check_equal(full->size, 5);
        write_value("sheaf_capacity", "9");
        barn_put_empty(cache, empty);
        stocked = slot->stock_bytes;
        check(stock_put(cache, slot, record, full));
        check_equal(slot->stock_bytes, stocked + 5 * 512);
        EXPECT_NUMBER("counted", "objects_inuse", 0);
        check(stock_take(cache, slot, record) == full);
        check_equal(slot->stock_bytes, stocked);
        sheaf_give(cache, record, full);
        barn_put_empty(cache, full);
        empty = barn_take_empty(cache);
        check_equal(empty->capacity, 9);
        /* Too late for a sheaf: there are none any more. */
        write_value("sheaf_capacity", "0");
        barn_put_empty(cache, empty);
        check(barn_take_empty(cache) == NULL);
        write_value("sheaf_capacity", "3");
}

static void child_capacity(void)
{
        static const char *const values[] = {"1", "62", "0", "7", "62\n", "3"};
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        stay_on_this_cpu();
        EXPECT_NUMBER("counted", "sheaf_capacity", 4);
        check_equal(capacity_in_use(cache), 4);
        for (size_t i = 0; i < array_size(values); i++) {
                unsigned int capacity = (unsigned int)atoi(values[i]);

                take(cache, 0, 40);
                give(cache, 0, 40);
                check(strcmp(value_of("counted", "objects_inuse"), "0\n") == 0);
                write_value("sheaf_capacity", values[i]);
                EXPECT_NUMBER("counted", "sheaf_capacity", capacity);
                check_equal(capacity_in_use(cache), capacity);
                take(cache, 0, 40);
                EXPECT_NUMBER("counted", "objects_inuse", 40);
                give(cache, 0, 40);
                EXPECT_NUMBER("counted", "objects_inuse", 0);
        }
        /* 62 is the default of the size; the memory of a sheaf has no room for more. */
        check(kmem_attr_write("counted", "sheaf_capacity", "63") == -1);
        check_equal(errno, ERANGE);
        EXPECT_NUMBER("counted", "sheaf_capacity", 3);
        check_equal(capacity_in_use(cache), 3);
        check_old_sheaf(cache);
        write_value("shrink", "1");
        EXPECT_COUNTS(0);
        check_equal(slot_current()->stock_bytes, 0);
}

static void construct(void *object)
{
        memset(object, 0, 8);
}

extern const char __ehdr_start[] __attribute__((visibility("hidden")));

static void child_constructor(void)
{
        void (*in_libc)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "getenv");
        unsigned long offset, size = 0;
        char name[64];

        kmem_cache_create("none", 64, 0, 0, NULL);
        check(*value_of("none", "ctor") == '\0');
        kmem_cache_create("static", 64, 0, 0, construct);
        check_equal(sscanf(value_of("static", "ctor"), "[%63[^]]]+0x%lx", name, &offset), 2);
        check(strcmp(name, program_invocation_short_name) == 0);
        check_equal(offset, (uintptr_t)construct - (uintptr_t)__ehdr_start);
        /* Nothing is taken from this cache. */
        kmem_cache_create("dynamic", 64, 0, 0, in_libc);
        check_equal(sscanf(value_of("dynamic", "ctor"), "getenv+0x%lx/0x%lx", &offset, &size), 2);
        check(offset == 0 && size > 0);
}

static bool opened_late; /* the library of the next name that is asked for: a moment after */

extern __typeof__(dladdr1) __real_dladdr1;
extern __typeof__(dladdr1) __wrap_dladdr1;

int __wrap_dladdr1(const void *address, Dl_info *found, void **more, int flags)
{
        bool known = !opened_late;

        opened_late = false;
        return known ? __real_dladdr1(address, found, more, flags) : 0;
}

/* A text has no more room than the address needs, and its name is longer. */
static void child_constructor_of_late_library(void)
{
        void (*ctor)(void *object);
        char text[100];
        size_t bytes;

        *(void **)&ctor = dlsym(RTLD_DEFAULT, "pthread_attr_setguardsize");
        check(ctor);
        check(kmem_cache_create("late", 64, 0, 0, ctor));
        bytes = (size_t)snprintf(text, sizeof(text), "0x%lx\n", (unsigned long)(uintptr_t)ctor) + 1;
        memset(text, '#', sizeof(text));
        opened_late = true;
        check(kmem_attr_read("late", "ctor", text, bytes) >= 0);
        check(!opened_late);
        for (size_t i = bytes; i < sizeof(text); i++)
                check_equal(text[i], '#');
}

/* S4-43, S4-45 */
static void child_names(void)
{
        struct kmem_cache *base = kmem_cache_create("base", 60, 0, 0, NULL);
        struct kmem_cache *apart;
        struct kmem_cache *again;

        EXPECT("base", "aliases", "0");
        check(kmem_cache_create("alias", 64, 0, 0, NULL) == base);
        check(kmem_cache_create("other", 57, 0, 0, NULL) == base);
        EXPECT("base", "aliases", "2");
        EXPECT("alias", "aliases", "2");
        EXPECT("other", "object_size", "64");
        EXPECT(":0000064", "object_size", "64");
        /* A cache with aliases cannot be marked. */
        check(kmem_attr_write("alias", "failslab", "1") == -1);
        check_equal(errno, EINVAL);
        EXPECT("base", "failslab", "0");
        /* Destroying an alias does not say which: the names stay. */
        kmem_cache_destroy(base);
        EXPECT("other", "aliases", "1");
        EXPECT("alias", "aliases", "1");
        /* A cache of its own takes the name over. */
        apart = kmem_cache_create("other", 64, 0, SLAB_NO_MERGE, NULL);
        check(apart != base);
        EXPECT("other", "object_size", "64");
        EXPECT("other", "aliases", "0");
        check_equal(kmem_attr_write("other", "cpu_partial", "3"), 0);
        check_equal(apart->cpu_partial, 3);
        kmem_cache_destroy(apart);
        check(kmem_attr_read("other", "aliases", (char[9]){0}, 9) == -1);
        /* The name of another cache cannot be an alias: no merge (S4-43). */
        apart = kmem_cache_create("taken", 64, 0, SLAB_NO_MERGE, NULL);
        check(kmem_cache_create("taken", 64, 0, 0, NULL) != base);
        EXPECT("base", "aliases", "1");
        kmem_cache_destroy(apart);

        again = kmem_cache_create("flags", 64, 0, SLAB_RECLAIM_ACCOUNT | SLAB_CACHE_DMA, NULL);
        EXPECT(":da-0000064", "reclaim_account", "1");
        EXPECT(":da-0000064", "cache_dma", "1");
        check(kmem_cache_create("flags too", 64, 0, SLAB_RECLAIM_ACCOUNT | SLAB_CACHE_DMA, NULL) ==
              again);
        /* Sanity checks keep no cache from being merged (S4-44). */
        again = kmem_cache_create("checked", 72, 0, SLAB_CONSISTENCY_CHECKS, NULL);
        check(kmem_cache_create("checked too", 72, 0, SLAB_CONSISTENCY_CHECKS, NULL) == again);
        EXPECT(":F-0000072", "sanity_checks", "1");
        check(kmem_attr_read(":0000072", "aliases", (char[9]){0}, 9) == -1);
        kmem_cache_create("all flags", 72, 0,
                          SLAB_CONSISTENCY_CHECKS | SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, NULL);
        EXPECT(":aFA-0000072", "sanity_checks", "1");
        kmem_cache_create("constructed", 64, 0, SLAB_RECLAIM_ACCOUNT, construct);
        check(kmem_attr_read(":a-0000064", "aliases", (char[9]){0}, 9) == -1);
        /* All names end with the cache. */
        kmem_cache_destroy(base);
        kmem_cache_destroy(base);
        check(kmem_attr_read("alias", "aliases", (char[9]){0}, 9) == -1);
        check(kmem_attr_read("base", "aliases", (char[9]){0}, 9) == -1);
}

/* S4-40: a marked cache is not merged with others. */
static void child_mark(void)
{
        struct kmem_cache *marked = kmem_cache_create("marked", 64, 0, 0, NULL);

        check_equal(kmem_attr_write("marked", "failslab", "1"), 0);
        check(kmem_cache_create("apart", 64, 0, 0, NULL) != marked);
        check_equal(kmem_attr_write("marked", "failslab", "0"), 0);
        check_equal(kmem_attr_write("apart", "failslab", "1"), 0);
        check(kmem_cache_create("together", 64, 0, 0, NULL) == marked);
}

static void child_newest(void)
{
        struct kmem_cache *older = kmem_cache_create("same", 64, 0, 0, NULL);
        struct kmem_cache *newer = kmem_cache_create("same", 128, 0, 0, NULL);

        EXPECT("same", "object_size", "128");
        kmem_cache_destroy(newer);
        EXPECT("same", "object_size", "64");
        kmem_cache_destroy(older);
}

/* An attribute without a meaning in another engine reads as 0 and takes only 0. */
static void check_inapplicable(const char *engine)
{
        static const char *const names[] = {"min_partial", "cpu_partial"};

        for (size_t i = 0; i < array_size(names); i++) {
                EXPECT("counted", names[i], "0");
                check_equal(kmem_attr_write("counted", names[i], "0"), 0);
                errno = 0;
                check(kmem_attr_write("counted", names[i], "5") == -1);
                check_equal(errno, EINVAL);
                EXPECT("counted", names[i], "0");
        }
        EXPECT("counted", "slabs_cpu_partial", "0(0)");
        EXPECT("counted", "cpu_slabs", "0");
        check(strncmp(value_of("counted", "engine"), engine, 4) == 0);
}

/* Objects in arrays count as used (S6-70), objects in free slabs do not. */
static void child_engine_slab(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        unsigned int per_slab = cache->objects;

        stay_on_this_cpu();
        check_inapplicable("slab");
        EXPECT_NUMBER("counted", "sheaf_capacity", 4);
        check(kmem_attr_write("counted", "sheaf_capacity", "3") == -1);
        check_equal(errno, EINVAL);
        EXPECT_NUMBER("counted", "sheaf_capacity", 4);
        check(per_slab >= 7 && per_slab <= PER_SLAB);
        take(cache, 0, 1); /* a batch of two came into the array */
        EXPECT_COUNTS(1, per_slab, 2, 1, 2, 0, 1);
        give(cache, 0, 1);
        EXPECT_COUNTS(1, per_slab, 2, 1, 2, 0, 0);
        write_value("shrink", "1");
        EXPECT_COUNTS(0);
        take(cache, 0, 3 * per_slab);
        EXPECT_NUMBER("counted", "objects_inuse", 3 * per_slab);
        give(cache, 0, 3 * per_slab);
        EXPECT_NUMBER("counted", "objects_inuse", 0);
}

/* Its caches have objects but no slabs (S7): the slabs are all in the cache named slob. */
static void child_engine_slob(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        check_inapplicable("slob");
        EXPECT_NUMBER("counted", "sheaf_capacity", 0);
        check(kmem_attr_write("counted", "sheaf_capacity", "1") == -1);
        check_equal(errno, EINVAL);
        EXPECT_NUMBER("counted", "objs_per_slab", 0);
        EXPECT_NUMBER("counted", "slab_size", 512);
        take(cache, 0, 10);
        EXPECT_COUNTS(0, 10, 10, 0, 0, 0, 10);
        EXPECT_NODES("slob", "slabs", 2);
        give(cache, 0, 10);
        EXPECT_COUNTS(0);
        write_value("shrink", "1");
}

/* Two nodes are shown each by its own number; nodes without slabs are left out. */
static void child_two_nodes(void)
{
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);

        cache->node[1].slabs = 3;
        EXPECT("counted", "slabs", "3 N1=3");
        cache->node[0].slabs = 4;
        EXPECT("counted", "slabs", "7 N0=4 N1=3");
        cache->node[1].objects = 9;
        EXPECT("counted", "objects", "9 N1=9");
}

enum {
        THREADS = 3,
        PART = THREAD_SANITIZER ? 20 : 1, /* it takes so many times as long */
        ROUNDS = 5000 / PART,
        PASSES = 100000 / PART,
};

static bool finished;
static unsigned long passes; /* of all threads */

static void *allocate_and_free(void *cache)
{
        void *mine[100];

        while (!__atomic_load_n(&finished, __ATOMIC_RELAXED)) {
                for (size_t i = 0; i < array_size(mine); i++)
                        mine[i] = kmem_cache_alloc(cache, 0);
                for (size_t i = 0; i < array_size(mine); i++)
                        kmem_cache_free(cache, mine[i]);
                __atomic_add_fetch(&passes, 1, __ATOMIC_RELAXED);
        }
        return NULL;
}

/* Everything is read and written while others use the cache; at rest nothing is lost. */
static void child_busy(void)
{
        static const char *const limits[] = {"0", "1", "8", "120"};
        static const char *const capacities[] = {"0", "62", "2", "1"};
        struct kmem_cache *cache = kmem_cache_create("counted", 512, 0, 0, NULL);
        pthread_t threads[THREADS];

        for (int i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, allocate_and_free, cache) == 0);
        /* Until both sides have done their share, so that they meet. */
        for (unsigned int round = 0;
             round < ROUNDS || __atomic_load_n(&passes, __ATOMIC_RELAXED) < PASSES; round++) {
                write_value("cpu_partial", limits[round % array_size(limits)]);
                write_value("min_partial", limits[round / 4 % array_size(limits)]);
                write_value("sheaf_capacity", capacities[round % array_size(capacities)]);
                if (round % 8 == 0)
                        write_value("shrink", "1");
                for (size_t i = 0; i < array_size(rows); i++)
                        value_of("counted", rows[i].name);
        }
        __atomic_store_n(&finished, true, __ATOMIC_RELAXED);
        for (int i = 0; i < THREADS; i++)
                check(pthread_join(threads[i], NULL) == 0);
        EXPECT("counted", "objects_inuse", "0");
        write_value("shrink", "1");
        EXPECT_COUNTS(0);
}

#define CHILD_TEST(name, options)                                                                  \
        static void name(void **state)                                                             \
        {                                                                                          \
                child_passes(#name, options);                                                      \
        }

CHILD_TEST(layout, COUNTED_OUT)
CHILD_TEST(flags, "")
CHILD_TEST(node_counts, COUNTED_OUT ",cpu_partial=0")
CHILD_TEST(cpu_counts, COUNTED_OUT)
CHILD_TEST(cpu_objects, COUNTED_OUT ",cpu_partial_accounting=objects")
CHILD_TEST(most_cpu_objects, COUNTED_OUT ",cpu_partial_accounting=objects")
CHILD_TEST(counters, COUNTED_OUT ",counted.stats=1")
CHILD_TEST(sheaf_objects, "sheaf_capacity=4,slub_max_order=0")
CHILD_TEST(sheaf_counters, "kernel=7.2,stats=1")
CHILD_TEST(constructor, "")
CHILD_TEST(constructor_of_late_library, "")
CHILD_TEST(capacity, "sheaf_capacity=4,slub_max_order=0")
CHILD_TEST(names, "slab_merge=1")
CHILD_TEST(mark, "slab_merge=1")
CHILD_TEST(newest, "")
CHILD_TEST(engine_slab, "engine=slab,slab_max_order=0,limit=4,batchcount=2,shared=0")
CHILD_TEST(engine_slob, "engine=slob")
CHILD_TEST(two_nodes, "numa_fake=2")

static void busy(void **state)
{
        child_passes("busy", "");
        child_passes("busy", COUNTED_OUT);
        child_passes("busy", "slots=locked");
        child_passes("capacity", "sheaf_capacity=4,slub_max_order=0,slots=locked");
        child_passes("node_counts", COUNTED_OUT ",cpu_partial=0,slots=locked");
        child_passes("cpu_counts", COUNTED_OUT ",slots=locked");
}

/* The counts of a CPU are all on its node, whichever of several this is. */
static void several_nodes(void **state)
{
        child_passes("node_counts", COUNTED_OUT ",cpu_partial=0,numa_fake=2");
        child_passes("cpu_counts", COUNTED_OUT ",numa_fake=4");
        child_passes("engine_slab",
                     "engine=slab,slab_max_order=0,limit=4,batchcount=2,shared=0,numa_fake=2");
        child_passes("busy", "numa_fake=2");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"layout", child_layout},
                {"flags", child_flags},
                {"no_debugging", child_no_debugging},
                {"debug_cache", child_debug_cache},
                {"node_counts", child_node_counts},
                {"cpu_counts", child_cpu_counts},
                {"cpu_objects", child_cpu_objects},
                {"most_cpu_objects", child_most_cpu_objects},
                {"counters", child_counters},
                {"sheaf_objects", child_sheaf_objects},
                {"sheaf_counters", child_sheaf_counters},
                {"constructor", child_constructor},
                {"constructor_of_late_library", child_constructor_of_late_library},
                {"capacity", child_capacity},
                {"names", child_names},
                {"mark", child_mark},
                {"newest", child_newest},
                {"engine_slab", child_engine_slab},
                {"engine_slob", child_engine_slob},
                {"two_nodes", child_two_nodes},
                {"busy", child_busy},
        };
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_row_has_its_format),
                cmocka_unit_test(what_can_be_written),
                cmocka_unit_test(unknown_names),
                cmocka_unit_test(bad_values),
                cmocka_unit_test(good_values),
                cmocka_unit_test(largest_cpu_partial),
                cmocka_unit_test(layout),
                cmocka_unit_test(flags),
                cmocka_unit_test(debug_cache),
                cmocka_unit_test(node_counts),
                cmocka_unit_test(cpu_counts),
                cmocka_unit_test(cpu_objects),
                cmocka_unit_test(most_cpu_objects),
                cmocka_unit_test(counters),
                cmocka_unit_test(sheaf_objects),
                cmocka_unit_test(sheaf_counters),
                cmocka_unit_test(constructor),
                cmocka_unit_test(constructor_of_late_library),
                cmocka_unit_test(capacity),
                cmocka_unit_test(names),
                cmocka_unit_test(mark),
                cmocka_unit_test(newest),
                cmocka_unit_test(engine_slab),
                cmocka_unit_test(engine_slob),
                cmocka_unit_test(two_nodes),
                cmocka_unit_test(busy),
                cmocka_unit_test(several_nodes),
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("attributes", tests, NULL, NULL);
}
