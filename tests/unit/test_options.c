/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parser of KMEM_OPTIONS: every option, bad values, unknown names, caches, files. Each case is
 * a process of its own, since options are read once.
 */
#define _GNU_SOURCE
#include "child.h"

#include "heap/heap.h"
#include "base/kernels.h"
#include "base/options.h"
#include "process/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints the settings as read, a line each. */
static void child_show(void)
{
        static const char *const caches[] = {"kmalloc-64", "kmalloc-128", "kmalloc.dotted", "other",
                                             "#hash"};
        static const char *const names[] = {"sheaf_capacity",
                                            "min_partial",
                                            "cpu_partial",
                                            "cpu_partial_accounting",
                                            "cpu_partial_defaults",
                                            "freeze",
                                            "cpu_slabs",
                                            "sheaf_rule",
                                            "barn_full",
                                            "barn_empty",
                                            "remote_frees",
                                            "free_pointer",
                                            "stats",
                                            "debug"};
        static const enum cache_option numbers[] = {
                OPTION_SHEAF_CAPACITY,
                OPTION_MIN_PARTIAL,
                OPTION_CPU_PARTIAL,
                OPTION_CPU_PARTIAL_ACCOUNTING,
                OPTION_CPU_PARTIAL_DEFAULTS,
                OPTION_FREEZE,
                OPTION_CPU_SLABS,
                OPTION_SHEAF_RULE,
                OPTION_BARN_FULL,
                OPTION_BARN_EMPTY,
                OPTION_REMOTE_FREES,
                OPTION_FREE_POINTER,
                OPTION_STATS,
                OPTION_DEBUG,
        };

        printf("slots=%lu classes=%lu slab_merge=%lu order_cpus=%lu order_rule=%lu min_order=%lu "
               "max_order=%lu "
               "min_objects=%lu slot_cache_max=%lu reserve=%lu purge_delay=%lu "
               "huge_cache_max=%lu bad_free=%lu check=%lu slabinfo=<%s> slabinfo_pid=%lu "
               "attrs=<%s> attrs_pid=%lu numa=%lu numa_fake=%lu node_limit=%lu "
               "thp=%lu reclaim_thread=%lu debug_abort=%lu\n",
               options.slots, options.classes, options.slab_merge, options.order_cpus,
               options.order_rule, options.slub_min_order, options.slub_max_order,
               options.slub_min_objects, options.slot_cache_max, options.reserve,
               options.purge_delay, options.huge_cache_max, options.bad_free, options.check,
               options.slabinfo, options.slabinfo_pid, options.attrs, options.attrs_pid,
               options.numa, options.numa_fake, options.node_limit, options.thp,
               options.reclaim_thread, options.debug_abort);
        for (size_t i = 0; i < array_size(caches); i++)
                for (size_t j = 0; j < array_size(numbers); j++) {
                        uint64_t value;

                        if (options_for_cache(caches[i], numbers[j], &value))
                                printf("%s.%s=%lu\n", caches[i], names[j], value);
                }
        fflush(stdout);
        _exit(0);
}

static char *shown(const char *text)
{
        static struct child_result result;

        child_run("show", text, &result);
        if (result.status)
                fprintf(stderr, "%s\n", result.output);
        assert_int_equal(result.status, 0);
        return result.output;
}

static void shows(const char *text, const char *expected)
{
        char *output = shown(text);

        if (strstr(output, expected))
                return;
        fprintf(stderr, "KMEM_OPTIONS=%s gave:\n%s\nexpected: %s\n", text, output, expected);
        fail();
}

static void shows_not(const char *text, const char *unexpected)
{
        char *output = shown(text);

        if (!strstr(output, unexpected))
                return;
        fprintf(stderr, "KMEM_OPTIONS=%s gave:\n%s\nnot expected: %s\n", text, output, unexpected);
        fail();
}

#define DEFAULTS                                                                                   \
        "classes=0 slab_merge=0 order_cpus=0 order_rule=0 min_order=0 max_order=3 min_objects=0 "  \
        "slot_cache_max=1048576 reserve=0 purge_delay=100 huge_cache_max=67108864 bad_free=0 "     \
        "check=0 slabinfo=<> slabinfo_pid=0 attrs=<> attrs_pid=0 "                                 \
        "numa=0 numa_fake=1 node_limit=0 thp=0 reclaim_thread=0 debug_abort=0\n"

static void defaults(void **state)
{
        shows("", DEFAULTS);
        shows_not("", "kmem:");
        shows_not("", ".sheaf_capacity");
        shows(",,", DEFAULTS);
        shows_not(",,", "kmem:");
}

static void every_option(void **state)
{
        shows("slots=auto", "slots=0");
        shows("slots=rseq", "slots=1");
        shows("slots=locked", "slots=2");
        shows("classes=fine", "classes=1");
        shows("classes=kernel", "classes=2");
        shows("slab_merge=1", "slab_merge=1");
        shows("order_cpus=usable", "order_cpus=0");
        shows("order_cpus=online", "order_cpus=1");
        shows("order_cpus=present", "order_cpus=2");
        shows("order_cpus=possible", "order_cpus=3");
        shows("order_rule=6.12", "order_rule=0");
        shows("order_rule=5.10", "order_rule=1");
        shows("slub_min_order=2", "min_order=2 max_order=3");
        shows("slub_min_order=7", "min_order=7 max_order=7"); /* S3-02 */
        shows("slub_min_order=7,slub_max_order=2", "min_order=2 max_order=2");
        shows("slub_max_order=2,slub_min_order=7", "min_order=7 max_order=7");
        shows("slub_max_order=10", "max_order=10");
        shows("slub_min_objects=77", "min_objects=77");
        shows("slot_cache_max=12345", "slot_cache_max=12345");
        shows("reserve=64M", "reserve=67108864");
        shows("purge_delay=0", "purge_delay=0");
        shows("thp=auto", "thp=0");
        shows("thp=always", "thp=1");
        shows("thp=never", "thp=2");
        shows("reclaim_thread=auto", "reclaim_thread=0");
        shows("reclaim_thread=on", "reclaim_thread=1");
        shows("reclaim_thread=off", "reclaim_thread=2");
        shows("numa_fake=8", "numa_fake=8");
        shows("numa=off", "numa=1");
        shows("numa=auto", "numa=0");
        shows("node_limit=64M", "node_limit=67108864");
        shows("huge_cache_max=1g", "huge_cache_max=1073741824");
        shows("bad_free=abort", "bad_free=0");
        shows("bad_free=ignore", "bad_free=1");
        shows("bad_free=libc", "bad_free=2");
        shows("check=drain", "check=0");
        shows("check=sheaf", "check=1");
        shows("slabinfo=/dev/null", "slabinfo=</dev/null>");
        shows("slabinfo_pid=42", "slabinfo_pid=42");
        shows("attrs=/no/such/tree,attrs_pid=43", "attrs=</no/such/tree> attrs_pid=43");
        shows("sheaf_capacity=9", "other.sheaf_capacity=9");
        shows("min_partial=0", "other.min_partial=0");
        shows("cpu_partial=7", "other.cpu_partial=7");
        shows("cpu_partial_accounting=objects", "other.cpu_partial_accounting=1");
        shows("cpu_partial_accounting=slabs", "other.cpu_partial_accounting=0");
        shows("cpu_partial_defaults=seed", "other.cpu_partial_defaults=1");
        shows("cpu_partial_defaults=later", "other.cpu_partial_defaults=0");
        shows("kmalloc-64.freeze=eager", "kmalloc-64.freeze=1");
        shows("freeze=delayed", "other.freeze=0");
        shows("stats=1", "other.stats=1");
        shows("debug=F", "other.debug=1");
        shows("debug=fzPu", "other.debug=15");
        shows("debug=", "other.debug=15");
        shows("debug=FZ-T", "other.debug=16");
        shows("debug=-", "other.debug=0");
        shows("debug=FZ,kmalloc-*.debug=TAO,kmalloc-64.debug=P", "other.debug=3");
        shows("debug=FZ,kmalloc-*.debug=TAO,kmalloc-64.debug=P", "kmalloc-64.debug=4");
        shows("debug=FZ,kmalloc-*.debug=TAO,kmalloc-64.debug=P", "kmalloc-128.debug=112");
        shows("debug_abort=1", "debug_abort=1");
        shows("classes=kernel,check=sheaf", "check=1");
        shows("classes=kernel,check=sheaf", "classes=2");
        shows_not("slots=locked,classes=kernel,engine=slub,slub_max_order=0", "kmem:");
        /* Of equals the last counts. */
        shows("purge_delay=5,purge_delay=6", "purge_delay=6");
}

static void units(void **state)
{
        shows("slot_cache_max=3K", "slot_cache_max=3072");
        shows("slot_cache_max=3k", "slot_cache_max=3072");
        shows("slot_cache_max=3M", "slot_cache_max=3145728");
        shows("slot_cache_max=3G", "slot_cache_max=3221225472");
        shows("slot_cache_max=3T", "slot_cache_max=3298534883328");
        shows("slot_cache_max=18446744073709551615", "slot_cache_max=18446744073709551615");
}

/* A bad value: a line with the name, the value and the expected values; the default stays. */
static void bad_values(void **state)
{
        static const char *const rows[][2] = {
                {"slots=fast", "option slots=fast: expected one of: auto rseq locked"},
                {"slots=", "option slots=: expected one of"},
                {"classes=Kernel", "option classes=Kernel: expected one of: auto fine kernel"},
                {"slab_merge=2", "option slab_merge=2: expected a number from 0 to 1"},
                {"slab_merge=yes", "option slab_merge=yes: expected a number"},
                {"slub_min_order=11", "option slub_min_order=11: expected a number from 0 to 10"},
                {"slub_max_order=-1", "option slub_max_order=-1: expected a number from 0 to 10"},
                {"slub_min_objects=32768", "expected a number from 0 to 32767"},
                {"slub_min_objects= 7", "expected a number"},
                {"numa_fake=0", "option numa_fake=0: expected a number from 1 to 8"},
                {"numa_fake=9", "expected a number from 1 to 8"},
                {"numa=on", "option numa=on: expected one of: auto off"},
                {"node_limit=half", "option node_limit=half: expected 0 to "},
                {"purge_delay=1.5", "option purge_delay=1.5: expected a number"},
                {"purge_delay=0x10", "expected a number"},
                {"purge_delay=99999999999999999999999", "expected a number"},
                {"slot_cache_max=1Q", "option slot_cache_max=1Q: expected 0 to "},
                {"slot_cache_max=1MB", " bytes, with K, M, G or T if wanted"},
                {"slot_cache_max=99999999T", "expected 0 to 18446744073709551615 bytes"},
                {"reserve=", "option reserve=: expected 0 to "},
                {"bad_free=maybe", "expected one of: abort ignore libc"},
                {"check=all", "expected one of: drain sheaf"},
                {"slabinfo_pid=4294967296", "expected a number"},
                {"profile_interval=1", "option profile_interval=1: expected 0, or 1024 to "},
                {"profile_interval=1023", "expected 0, or 1024 to 1099511627776 bytes"},
                {"profile_interval=2T", "expected 0, or 1024 to "},
                {"profile_interval=often", "expected 0, or 1024 to "},
                {"attrs_pid=-1", "expected a number from 0 to 4294967295"},
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                shows(rows[i][0], rows[i][1]);
                shows(rows[i][0], DEFAULTS);
        }
        shows("sheaf_capacity=1023", "expected a number from 0 to 1022");
        shows_not("sheaf_capacity=1023", "other.sheaf_capacity");
        shows("other.cpu_partial=65536",
              "option other.cpu_partial=65536: expected a number from 0 to 65535");
        shows("oth*.debug=q", "option oth*.debug=q: expected letters of FZPUTAO");
        shows("other.engine=", "option other.engine=: expected one of: slub slob slab");
        shows("freeze=late",
              "option freeze=late: expected one of: delayed eager; the default stays");
        shows("cpu_partial_accounting=pages", "expected one of: slabs objects");
        shows("stats=2", "expected a number from 0 to 1");
        shows("debug=FX", "option debug=FX: expected letters of FZPUTAO, or - for none");
        shows_not("debug=FX", "other.debug");
        shows_not("profile_interval=0,profile_interval=1K,profile_interval=1T", "kmem:");
        shows("debug_abort=2", "option debug_abort=2: expected a number from 0 to 1");
        /* A bad pair does not spoil its neighbours. */
        shows("purge_delay=7,slots=fast,bad_free=ignore", "purge_delay=7");
        shows("purge_delay=7,slots=fast,bad_free=ignore", "bad_free=1");
}

/* A kernel sets all policies that differ between kernels, and single options win wherever they stand. */
static void kernels(void **state)
{
        shows("kernel=none", DEFAULTS);
        shows("kernel=2.6.24", "classes=2 slab_merge=0");
        shows("kernel=5.15", "classes=2 slab_merge=1 order_cpus=2 order_rule=1");
        shows("kernel=5.15", "other.cpu_partial_accounting=1\n");
        shows("kernel=5.15", "other.cpu_partial_defaults=1\n");
        shows("kernel=5.15", "other.freeze=1\n");
        shows("kernel=5.15", "other.sheaf_capacity=0\n");
        shows("kernel=5.16", "other.cpu_partial_accounting=0\n");
        shows("kernel=6.1", "order_rule=1");
        shows("kernel=6.7", "order_rule=0");
        shows("kernel=6.7", "other.freeze=1\n");
        shows("kernel=6.8", "other.freeze=0\n");
        shows("kernel=6.18", "other.cpu_slabs=1\n");
        shows("kernel=6.18", "other.sheaf_capacity=0\n");
        shows("kernel=7.2", "other.cpu_slabs=0\n");
        shows("kernel=7.2", "other.sheaf_rule=1\n");
        shows("kernel=7.2", "other.free_pointer=1\n");
        shows("cpu_slabs=1,kernel=7.2", "other.cpu_slabs=1\n");
        shows("barn_full=0,other.barn_full=40,barn_empty=1000", "other.barn_full=40\n");
        shows("barn_full=0,other.barn_full=40,barn_empty=1000", "other.barn_empty=1000\n");
        shows("remote_frees=sheaf,other.remote_frees=slab", "kmalloc-64.remote_frees=0\n");
        shows("remote_frees=sheaf,other.remote_frees=slab", "other.remote_frees=1\n");
        shows("freeze=eager,kernel=6.8", "other.freeze=1\n");
        shows("kernel=6.8,freeze=eager", "other.freeze=1\n");
        shows("order_cpus=online,kernel=6.8", "order_cpus=1");
        shows("other.freeze=eager,kernel=6.8", "other.freeze=1\n");
        shows("kernel=6.8,kernel=5.15", "order_rule=1");
        shows("*.freeze=eager,kernel=6.8", "other.freeze=1\n");
        /* A bad value is none, so the kernel's stays. */
        shows("order_rule=4.4,kernel=5.15", "order_rule=1");
        shows("freeze=late,kernel=5.15", "other.freeze=1\n");
        shows("kernel=6.9", "option kernel=6.9: expected one of: none 2.6.24");
        shows("kernel=6.9", DEFAULTS);
}

/* Every row is made of options that exist, with values that they take. */
static void kernels_are_options(void **state)
{
        char versions[] = KERNEL_VERSIONS;
        unsigned int count = 0;

        for (char *version = strtok(versions, " "); version; version = strtok(NULL, " ")) {
                char text[40];

                snprintf(text, sizeof(text), "kernel=%s", version);
                shows_not(text, "kmem:");
                count++;
        }
        assert_int_equal(count, 12);
}

/* An unknown name: a line with the name and the names that exist. */
static void unknown_names(void **state)
{
        static const char *const known[] = {
                "kernel",
                "slots",
                "classes",
                "slab_merge",
                "order_cpus",
                "order_rule",
                "slub_min_order",
                "slub_max_order",
                "slub_min_objects",
                "slot_cache_max",
                "reserve",
                "purge_delay",
                "thp",
                "numa_fake",
                "reclaim_thread",
                "numa",
                "node_limit",
                "huge_cache_max",
                "soft_limit",
                "bad_free",
                "check",
                "protect",
                "bulk_null",
                "slabinfo",
                "slabinfo_pid",
                "attrs",
                "attrs_pid",
                "[CACHE.]sheaf_capacity",
                "[CACHE.]min_partial",
                "[CACHE.]cpu_partial",
                "[CACHE.]cpu_partial_accounting",
                "[CACHE.]cpu_partial_defaults",
                "[CACHE.]freeze",
                "[CACHE.]stats",
                "[CACHE.]debug",
                "debug_abort",
        };

        shows("colour=red", "unknown option \"colour\"; there are: ");
        for (size_t i = 0; i < array_size(known); i++)
                shows("colour=red", known[i]);
        shows("colour=red", DEFAULTS);
        shows("slot=rseq", "unknown option \"slot\"");
        shows("kmalloc-64.colour=1", "unknown option \"kmalloc-64.colour\"");
        shows("slots", "option \"slots\": expected name=value");
        shows("=5", "unknown option \"\"");
}

/* A full name wins over a prefix, a prefix over all caches, wherever they stand. */
static void caches(void **state)
{
        const char *all = "kmalloc-64.sheaf_capacity=1,kmalloc-*.sheaf_capacity=2,sheaf_capacity=3";
        const char *reversed =
                "sheaf_capacity=3,kmalloc-*.sheaf_capacity=2,kmalloc-64.sheaf_capacity=1";

        for (unsigned int i = 0; i < 2; i++) {
                shows(i ? all : reversed, "kmalloc-64.sheaf_capacity=1\n");
                shows(i ? all : reversed, "kmalloc-128.sheaf_capacity=2\n");
                shows(i ? all : reversed, "other.sheaf_capacity=3\n");
        }
        shows("*.min_partial=4", "other.min_partial=4");
        /* Text behind a * would be left out, and the value would be for more caches than named. */
        shows("kmalloc-*4.cpu_partial=8", "option kmalloc-*4.cpu_partial: expected * at the end");
        shows("*her.min_partial=4", "expected * at the end of the caches' names only, as in "
                                    "kmalloc-*.min_partial");
        shows("**.min_partial=4", "option **.min_partial: expected * at the end");
        shows_not("*her.freeze=eager", "other.freeze=");
        shows(".freeze=eager", "unknown option \".freeze\"; there are: ");
        shows_not(".freeze=eager", "other.freeze=");
        shows("kmalloc-64.min_partial=4,kmalloc-64.min_partial=5", "kmalloc-64.min_partial=5");
        shows("kmalloc.dotted.cpu_partial=8", "kmalloc.dotted.cpu_partial=8");
        /* Only lines of files are comments: this cache, and the text behind it, counts. */
        shows("#hash.cpu_partial=8,purge_delay=9", "#hash.cpu_partial=8");
        shows("#hash.cpu_partial=8,purge_delay=9", "purge_delay=9");
        shows("stats=1,#off,purge_delay=9", "option \"#off\": expected name=value");
        shows("stats=1,#off,purge_delay=9", "purge_delay=9");
        shows_not("kmalloc-64.cpu_partial=8", "other.cpu_partial");
        shows_not("kmalloc-6.cpu_partial=8", "kmalloc-64.cpu_partial");
}

static void limits(void **state)
{
        char text[6000];
        size_t used = 0;

        for (unsigned int i = 0; i < 64; i++)
                used += (size_t)sprintf(text + used, "c%u.min_partial=%u,", i, i);
        strcpy(text + used, "other.min_partial=9");
        shows(text, "expected at most 64 settings of caches");
        shows_not(text, "other.min_partial=9\n");
        text[used - 1] = '\0';
        shows_not(text, "kmem:");
        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        shows(text, "KMEM_OPTIONS: expected at most 4095 characters; ignored");
        memset(text, 'x', 60);
        strcpy(text + 60, ".min_partial=3");
        shows(text, "names under 48 characters; ignored");
        strcpy(text, "slabinfo=");
        memset(text + 9, 'y', 300);
        text[309] = '\0';
        shows(text, "option slabinfo: expected at most 255 characters");
}

static void write_file(const char *path, const char *content)
{
        FILE *file = fopen(path, "w");

        assert_non_null(file);
        fputs(content, file);
        fclose(file);
}

/* KMEM_OPTIONS=@FILE: entries on lines of their own, comments. */
static void files(void **state)
{
        char path[] = "/tmp/kmem-options-XXXXXX";
        char variable[64] = "@";
        char long_text[4097];
        int file = mkstemp(path);

        assert_true(file >= 0);
        close(file);
        strcat(variable, path);
        write_file(path, "# a comment, with=commas\npurge_delay=9\n\nclasses=kernel,check=sheaf\n"
                         "# the end");
        shows(variable, "purge_delay=9");
        shows(variable, "classes=2");
        shows(variable, "check=1");
        shows_not(variable, "kmem:");
        write_file(path,
                   "purge_delay=9,#hash.cpu_partial=8,check=sheaf\n#classes=kernel,check=x\n");
        shows(variable, "#hash.cpu_partial=8");
        shows(variable, "check=1");
        shows(variable, "classes=0");
        shows_not(variable, "kmem:");
        write_file(path, "purge_delay=9\nclasses=kernel,check=sheaf\n");
        /* With other settings beside it, as commands add theirs: the last setting counts. */
        strcat(variable, ",slots=locked,purge_delay=8");
        shows(variable, "slots=2");
        shows(variable, "purge_delay=8");
        shows(variable, "classes=2");
        shows_not(variable, "kmem:");
        *strchr(variable, ',') = '\0';
        write_file(path, variable); /* files name no files */
        shows(variable, "expected name=value");
        write_file(path, "");
        shows(variable, DEFAULTS);
        write_file(path, "purge_delay=3");
        shows(variable, "purge_delay=3");
        memset(long_text, '#', sizeof(long_text));
        memcpy(long_text, "purge_delay=4\n", 14);
        long_text[4095] = '\0';
        write_file(path, long_text);
        shows(variable, "purge_delay=4");
        shows_not(variable, "kmem:");
        /* A further character, and nothing of the file counts. */
        long_text[4095] = '#';
        long_text[4096] = '\0';
        write_file(path, long_text);
        shows(variable, "expected at most 4095 characters in this file; ignored");
        shows(variable, DEFAULTS);
        unlink(path);
        shows(variable, "cannot read this file: No such file or directory");
        shows(variable, DEFAULTS);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {{"show", child_show}};
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults),      cmocka_unit_test(every_option),
                cmocka_unit_test(units),         cmocka_unit_test(bad_values),
                cmocka_unit_test(kernels),       cmocka_unit_test(kernels_are_options),
                cmocka_unit_test(unknown_names), cmocka_unit_test(caches),
                cmocka_unit_test(limits),        cmocka_unit_test(files),
        };

        if (!heap_ready())
                return 1;
        child_main(argc, argv, children, array_size(children));
        unsetenv("KMEM_OPTIONS"); /* each case has its own options, and no others */
        return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
