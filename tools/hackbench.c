/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A load like hackbench's on the simulated machine with 64 KiB pages, for `kmem lab order`. One
 * JSON document on standard output; the same arguments give the same document, byte for byte.
 *
 *   hackbench CACHES [NAME=VALUE]...
 *
 * CACHES: the table of caches and objects, python/kmem/hackbench_caches.csv. Names, with defaults:
 *   order_cpus=online   CPUs that slab orders count: online (the mail's patch) or possible
 *   order_rule=5.10     or 6.12
 *   possible=64         CPUs that the machine could have
 *   boot_cpus=16        CPUs at boot; caches made `boot` see one of them online
 *   load_cpus=16        CPUs during the load; those beyond boot_cpus are hot-plugged in between
 *   groups=200 pairs=25 loops=200   hackbench's -g, -f and -l
 *
 * What is modelled, on a kernel without sheaves that counts CPU partial objects (5.10):
 *  - start: the table's objects of a boot and of each CPU, dealt out to the CPUs in turn;
 *  - fork: each group has `pairs` socket pairs, `pairs` senders and as many receivers; one CPU a
 *    group makes the sockets and all processes;
 *  - messages: every sender sends `loops` messages to each receiver of its group. Groups take
 *    turns: a sender runs for SENDER_RUN messages or up to a full socket, then RECEIVER_RUNS
 *    receivers empty their sockets. Run lengths are those of a recorded hackbench run (103 and 38
 *    messages on the average). Half of the receivers run on the sender's CPU, the others and all
 *    senders on any: there 26% of the frees were on the other one of two CPUs;
 *  - a socket holds SOCKET_MESSAGES: wmem_default, 212,992 bytes, by 2,304 that a message takes;
 *  - exit: each process's objects are freed on the CPU that it ran on last; then sockets;
 *  - shrink: all caches.
 * Left out: the page cache and its inodes and dentries, memory groups, interrupts, RCU's delay.
 */
#define _GNU_SOURCE
#include "kmem.h"
#include "simulator/simulator.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        CACHES_MOST = 128,
        SENDER_RUN = 100,
        RECEIVER_RUNS = 3,
        SOCKET_MESSAGES = 212992 / 2304,
        MESSAGE_OBJECTS_MOST = 4,
        NAME_BYTES = 32,
};

enum stage { BOOT, CPU, PROCESS, SOCKET, MESSAGE, STAGES };

static struct kind {
        char name[NAME_BYTES];
        unsigned int size;
        bool later;
        unsigned int counts[STAGES];
        struct kmem_cache *cache;
} kinds[CACHES_MOST];
static unsigned int kind_count;

/* All objects that one process, socket or message has, in the order of the table. */
static struct recipe {
        struct kmem_cache **caches;
        unsigned int count;
} recipes[STAGES];

struct message {
        void *objects[MESSAGE_OBJECTS_MOST];
};

struct receiver {
        struct message queue[SOCKET_MESSAGES];
        unsigned int first; /* oldest message */
        unsigned int count;
};

struct sender {
        unsigned int next; /* message to send: this one by number of receivers is the receiver */
        bool blocked;
};

struct group {
        struct receiver *receivers;
        struct sender *senders;
        unsigned int *cpus; /* of senders, then receivers: where each ran last */
        void **objects;     /* of the processes, then of the sockets */
        unsigned long unread;
        unsigned int unsent; /* senders that have messages left */
};

static struct {
        unsigned int possible;
        unsigned int boot_cpus;
        unsigned int load_cpus;
        unsigned int groups;
        unsigned int pairs;
        unsigned int loops;
} load = {
        .possible = 64,
        .boot_cpus = 16,
        .load_cpus = 16,
        .groups = 200,
        .pairs = 25,
        .loops = 200,
};

static const struct {
        const char *name;
        unsigned int *value;
        unsigned int most;
} parameters[] = {
        {"possible", &load.possible, 1024},   {"boot_cpus", &load.boot_cpus, 1024},
        {"load_cpus", &load.load_cpus, 1024}, {"groups", &load.groups, 1000},
        {"pairs", &load.pairs, 100},          {"loops", &load.loops, 10000},
};

static const char *order_cpus = "online";
static const char *order_rule = "5.10";
static struct group *groups;
static uint64_t random_state = 88172645463325252u;

static void die(const char *what, const char *value)
{
        fprintf(stderr, "hackbench: %s%s\n", what, value);
        exit(1);
}

static void *need(void *memory)
{
        if (!memory)
                die("out of memory", "");
        return memory;
}

/* A number below @limit, the same ones in every run. */
static unsigned int pick(unsigned int limit)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return (unsigned int)(((random_state >> 32) * limit) >> 32);
}

static void read_arguments(int argc, char **argv)
{
        for (int i = 2; i < argc; i++) {
                char *value = strchr(argv[i], '=');
                size_t length = value ? (size_t)(value++ - argv[i]) : 0;
                bool found = false;

                if (!strcmp(argv[i], "order_cpus=online") ||
                    !strcmp(argv[i], "order_cpus=possible")) {
                        order_cpus = value;
                        continue;
                }
                if (!strcmp(argv[i], "order_rule=5.10") || !strcmp(argv[i], "order_rule=6.12")) {
                        order_rule = value;
                        continue;
                }
                for (size_t p = 0; p < sizeof(parameters) / sizeof(parameters[0]); p++) {
                        char *end;
                        unsigned long number;

                        if (strlen(parameters[p].name) != length ||
                            strncmp(argv[i], parameters[p].name, length))
                                continue;
                        number = strtoul(value, &end, 10);
                        found = *value >= '1' && *value <= '9' && !*end &&
                                number <= parameters[p].most;
                        *parameters[p].value = (unsigned int)number;
                }
                if (!found)
                        die("expected order_cpus=online or possible, order_rule=5.10 or 6.12, or "
                            "possible, "
                            "boot_cpus, load_cpus (1 to 1024), groups (1000), pairs (100), loops "
                            "(10000) and a number, not ",
                            argv[i]);
        }
        if (load.boot_cpus > load.load_cpus || load.load_cpus > load.possible)
                die("expected boot_cpus <= load_cpus <= possible", "");
}

static void read_caches(const char *path)
{
        char line[256];
        bool heading = true;
        FILE *file = fopen(path, "r");

        if (!file)
                die("cannot read ", path);
        while (fgets(line, sizeof(line), file)) {
                struct kind *kind = &kinds[kind_count];
                unsigned int *counts = kind->counts;
                char made[8];

                if (*line == '#')
                        continue;
                if (heading) {
                        heading = false;
                        continue;
                }
                if (kind_count == CACHES_MOST ||
                    sscanf(line, "%31[^,],%u,%7[^,],%u,%u,%u,%u,%u", kind->name, &kind->size, made,
                           &counts[BOOT], &counts[CPU], &counts[PROCESS], &counts[SOCKET],
                           &counts[MESSAGE]) != 3 + STAGES ||
                    (strcmp(made, "boot") && strcmp(made, "later")))
                        die("expected cache,size,made,boot,cpu,process,socket,message, not ", line);
                kind->later = !strcmp(made, "later");
                kind_count++;
        }
        fclose(file);
}

static void make_caches(bool later)
{
        for (unsigned int i = 0; i < kind_count; i++)
                if (kinds[i].later == later)
                        kinds[i].cache =
                                need(kmem_cache_create(kinds[i].name, kinds[i].size, 0, 0, NULL));
}

static void make_recipes(void)
{
        for (int stage = CPU; stage < STAGES; stage++) {
                struct recipe *recipe = &recipes[stage];

                for (unsigned int i = 0; i < kind_count; i++)
                        recipe->count += kinds[i].counts[stage];
                recipe->caches = need(calloc(recipe->count + 1, sizeof(*recipe->caches)));
                recipe->count = 0;
                for (unsigned int i = 0; i < kind_count; i++)
                        for (unsigned int n = 0; n < kinds[i].counts[stage]; n++)
                                recipe->caches[recipe->count++] = kinds[i].cache;
        }
        if (recipes[MESSAGE].count > MESSAGE_OBJECTS_MOST)
                die("a message has more than 4 objects", "");
}

static void take(enum stage stage, void **objects)
{
        for (unsigned int i = 0; i < recipes[stage].count; i++)
                objects[i] = need(kmem_cache_alloc(recipes[stage].caches[i], GFP_KERNEL));
}

static void give(enum stage stage, void **objects)
{
        for (unsigned int i = 0; i < recipes[stage].count; i++)
                kmem_cache_free(recipes[stage].caches[i], objects[i]);
}

static void bring_cpus(unsigned int from, unsigned int to)
{
        for (unsigned int cpu = from; cpu < to; cpu++)
                if (sim_cpu_online(cpu, true))
                        exit(1);
}

/* What the kernel makes for each CPU stays. */
static void populate_cpus(unsigned int from, unsigned int to)
{
        void **objects = need(calloc(recipes[CPU].count + 1, sizeof(*objects)));

        for (unsigned int cpu = from; cpu < to; cpu++) {
                sim_set_cpu(cpu);
                take(CPU, objects);
        }
        free(objects);
}

static void populate_boot(void)
{
        unsigned int turn = 0;

        for (unsigned int i = 0; i < kind_count; i++)
                for (unsigned int n = 0; n < kinds[i].counts[BOOT]; n++) {
                        sim_set_cpu(turn++ % load.boot_cpus);
                        need(kmem_cache_alloc(kinds[i].cache, GFP_KERNEL));
                }
}

static void fork_group(struct group *group)
{
        unsigned int processes = 2 * load.pairs;
        unsigned int sockets = 2 * load.pairs;
        unsigned int stride = recipes[PROCESS].count;

        group->receivers = need(calloc(load.pairs, sizeof(*group->receivers)));
        group->senders = need(calloc(load.pairs, sizeof(*group->senders)));
        group->cpus = need(calloc(processes, sizeof(*group->cpus)));
        group->objects = need(
                calloc((size_t)processes * stride + (size_t)sockets * recipes[SOCKET].count + 1,
                       sizeof(*group->objects)));
        group->unsent = load.pairs;
        sim_set_cpu(pick(load.load_cpus));
        for (unsigned int i = 0; i < sockets; i++)
                take(SOCKET, group->objects + (size_t)processes * stride +
                                     (size_t)i * recipes[SOCKET].count);
        for (unsigned int i = 0; i < processes; i++) {
                take(PROCESS, group->objects + (size_t)i * stride);
                group->cpus[i] = pick(load.load_cpus);
        }
}

static void run_sender(struct group *group, unsigned int number)
{
        struct sender *sender = &group->senders[number];
        unsigned int all = load.loops * load.pairs;

        for (unsigned int run = 0; run < SENDER_RUN && sender->next < all; run++) {
                struct receiver *receiver = &group->receivers[sender->next % load.pairs];
                unsigned int place = receiver->first + receiver->count;

                if (receiver->count == SOCKET_MESSAGES)
                        break;
                take(MESSAGE, receiver->queue[place % SOCKET_MESSAGES].objects);
                receiver->count++;
                group->unread++;
                if (++sender->next == all)
                        group->unsent--;
        }
}

static void run_receiver(struct group *group, struct receiver *receiver)
{
        for (; receiver->count; receiver->count--) {
                give(MESSAGE, receiver->queue[receiver->first].objects);
                receiver->first = (receiver->first + 1) % SOCKET_MESSAGES;
                group->unread--;
        }
}

static bool may_send(const struct group *group, unsigned int number)
{
        const struct sender *sender = &group->senders[number];

        return sender->next < load.loops * load.pairs &&
               group->receivers[sender->next % load.pairs].count < SOCKET_MESSAGES;
}

static bool may_receive(const struct group *group, unsigned int number)
{
        return group->receivers[number].count != 0;
}

/* The first sender or receiver from a random one on that has something to do; false for none. */
static bool choose(const struct group *group, bool (*may)(const struct group *, unsigned int),
                   unsigned int *number)
{
        unsigned int from = pick(load.pairs);

        for (unsigned int i = 0; i < load.pairs; i++) {
                *number = (from + i) % load.pairs;
                if (may(group, *number))
                        return true;
        }
        return false;
}

static void run_group(struct group *group)
{
        unsigned int number;
        unsigned int cpu = pick(load.load_cpus);

        if (choose(group, may_send, &number)) {
                sim_set_cpu(cpu);
                group->cpus[number] = cpu;
                run_sender(group, number);
        }
        for (int run = 0; run < RECEIVER_RUNS && choose(group, may_receive, &number); run++) {
                if (pick(2))
                        cpu = pick(load.load_cpus);
                sim_set_cpu(cpu);
                group->cpus[load.pairs + number] = cpu;
                run_receiver(group, &group->receivers[number]);
        }
}

/* Groups in turn until @until messages were sent; with 0, until all were read. */
static void exchange_messages(unsigned long until)
{
        for (bool busy = true; busy;) {
                unsigned long sent = 0;

                busy = false;
                for (unsigned int i = 0; i < load.groups; i++) {
                        struct group *group = &groups[i];

                        if (group->unsent || group->unread) {
                                run_group(group);
                                sim_time_advance(1000);
                        }
                        busy |= group->unsent || group->unread;
                        for (unsigned int s = 0; s < load.pairs; s++)
                                sent += group->senders[s].next;
                }
                if (sent >= until && until)
                        return;
        }
}

static void exit_group(struct group *group)
{
        unsigned int processes = 2 * load.pairs;
        unsigned int stride = recipes[PROCESS].count;

        for (unsigned int i = 0; i < processes; i++) {
                sim_set_cpu(group->cpus[i]);
                give(PROCESS, group->objects + (size_t)i * stride);
        }
        for (unsigned int i = 0; i < 2 * load.pairs; i++)
                give(SOCKET, group->objects + (size_t)processes * stride +
                                     (size_t)i * recipes[SOCKET].count);
}

/* Pages of the slabs of all caches, from slabinfo. */
static unsigned long slab_kib(void)
{
        unsigned long pages = 0;
        char line[512];
        int memory = memfd_create("slabinfo", 0);
        FILE *file;

        if (memory < 0)
                die("memfd_create failed", "");
        sim_slabinfo(memory);
        file = need(fdopen(memory, "r"));
        rewind(file);
        while (fgets(line, sizeof(line), file)) {
                unsigned long per_slab;
                unsigned long slabs;
                char *data = strstr(line, ": slabdata");

                if (data && sscanf(line, "%*s %*u %*u %*u %*u %lu", &per_slab) == 1 &&
                    sscanf(data, ": slabdata %*u %lu", &slabs) == 1)
                        pages += per_slab * slabs;
        }
        fclose(file);
        return pages * sim_page_bytes() / 1024;
}

static unsigned long attribute(const struct kind *kind, const char *name)
{
        char text[KMEM_ATTR_BYTES];

        if (kmem_attr_read(kind->name, name, text, sizeof(text)) < 0)
                die("no attribute ", name);
        return strtoul(text, NULL, 10);
}

/* Objects and pages of a slab, for each cache. */
static void print_slabs(void)
{
        printf(" \"slabs\": {");
        for (unsigned int i = 0; i < kind_count; i++)
                printf("%s\"%s\": [%lu, %lu]", i ? ", " : "", kinds[i].name,
                       attribute(&kinds[i], "objs_per_slab"), 1ul << attribute(&kinds[i], "order"));
        printf("},\n");
}

static void print_memory(const char *name)
{
        printf(" \"%s_kib\": %lu,\n", name, slab_kib());
}

static void print_counts(const char *name, unsigned long calls, const char *separator)
{
        static const char *locks[SIM_LOCK_KINDS] = {
                [SIM_LOCK_SLOT] = "slot",         [SIM_LOCK_LIST] = "list",
                [SIM_LOCK_BARN] = "barn",         [SIM_LOCK_ALIEN] = "alien",
                [SIM_LOCK_SLOB] = "slob",         [SIM_LOCK_PAGE] = "page",
                [SIM_LOCK_METADATA] = "metadata", [SIM_LOCK_OTHER] = "other",
        };
        struct sim_counts counts;

        sim_counts(&counts);
        printf(" \"%s\": {\"calls\": %lu, \"slow_paths\": %lu, \"compare_swaps\": %lu, "
               "\"atomic_adds\": %lu, \"exchanges\": %lu, \"remote_words\": %lu",
               name, calls, counts.slow_paths, counts.compare_swaps, counts.atomic_adds,
               counts.exchanges, counts.remote_words);
        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++)
                printf(", \"%s_locks\": %lu, \"%s_handed_over\": %lu", locks[kind],
                       counts.locks[kind].taken, locks[kind], counts.locks[kind].handed_over);
        printf("}%s\n", separator);
        sim_reset();
}

static void run_load(void)
{
        unsigned long messages = (unsigned long)load.groups * load.pairs * load.pairs * load.loops;
        unsigned long processes = 2ul * load.groups * load.pairs;

        groups = need(calloc(load.groups, sizeof(*groups)));
        for (unsigned int i = 0; i < load.groups; i++)
                fork_group(&groups[i]);
        print_memory("forked");
        sim_reset();
        exchange_messages(messages / 2);
        print_memory("during");
        exchange_messages(0);
        printf(" \"messages\": %lu,\n", messages);
        print_counts("message_counts", 2 * messages * recipes[MESSAGE].count, ",");
        for (unsigned int i = 0; i < load.groups; i++)
                exit_group(&groups[i]);
        print_counts("exit_counts", processes * (recipes[PROCESS].count + recipes[SOCKET].count),
                     ",");
        print_memory("after");
        for (unsigned int i = 0; i < kind_count; i++)
                kmem_cache_shrink(kinds[i].cache);
}

int main(int argc, char **argv)
{
        char options[200];
        struct sim_machine machine = {.cpus_online = 1, .options = options};

        if (argc < 2)
                die("usage: hackbench CACHES [NAME=VALUE]...", "");
        read_arguments(argc, argv);
        read_caches(argv[1]);
        snprintf(options, sizeof(options),
                 "sheaf_capacity=0,slab_merge=0,freeze=eager,cpu_partial_accounting=objects,"
                 "cpu_partial_defaults=seed,order_rule=%s,order_cpus=%s",
                 order_rule, order_cpus);
        machine.cpus_present = load.possible;
        machine.cpus_possible = load.possible;
        if (sim_start(&machine))
                return 1;
        make_caches(false);
        bring_cpus(1, load.boot_cpus);
        make_caches(true);
        make_recipes();
        populate_boot();
        populate_cpus(0, load.boot_cpus);
        printf("{\"order_cpus\": \"%s\", \"order_rule\": \"%s\", \"possible\": %u, \"boot_cpus\": "
               "%u, \"load_cpus\": %u, "
               "\"groups\": %u, \"pairs\": %u, \"loops\": %u, \"page_bytes\": %zu,\n",
               order_cpus, order_rule, load.possible, load.boot_cpus, load.load_cpus, load.groups,
               load.pairs, load.loops, sim_page_bytes());
        print_slabs();
        print_memory("start");
        bring_cpus(load.boot_cpus, load.load_cpus);
        populate_cpus(load.boot_cpus, load.load_cpus);
        print_memory("hotplug");
        run_load();
        printf(" \"shrunk_kib\": %lu\n}\n", slab_kib());
        return 0;
}
