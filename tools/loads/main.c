/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 *   loads LOAD CACHES [NAME=VALUE]...
 *
 * LOAD: messages, exchange, packets, rings, mesh, forks, or one of patterns.c. CACHES: the table of caches and
 * objects (caches.c).
 * NAME is a field of struct settings, or an entry of the cost table: NAME=NS. Defaults are in
 * `parameters`.
 *
 * The output is a JSON document with the shape, slab memory at each stage, and the time, the counts
 * and the memory in use while messages are measured: from skip percent of them on, up to the last
 * skip/2 percent. With window=1 the run ends there, and the document. The time includes waiting for the locks of lists and barns. Equal arguments give equal documents.
 */
#include "tools/loads/loads.h"

#include "lang/number.h"
#include "page/zone.h"
#include "simulator/machine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct settings settings = {
        .possible = 0,
        .boot_cpus = 2,
        .load_cpus = 0,
        .nodes = 1,
        .groups = 1,
        .pairs = 20,
        .loops = 100,
        .capacity = 277, /* wmem_default, 212,992 bytes, by the 768 of a small message */
        .bulk = 16,
        .send_ns = 600,
        .receive_ns = 850,
        .wake_ns = 400,
        .switch_ns = 2000,
        .latency_ns = 24000000, /* Linux 5.14 with eight CPUs or more */
        .slice_ns = 3000000,
        .granule_ns = 4000000,
        .runs = 1,
        .fork_ns = 150000,
        .exit_ns = 100000,
        .grace_ns = 30000000, /* three ticks of a kernel with 100 Hz */
        .task = "",
        .message = "message",
        .options = "",
};
struct load_costs load_costs;

enum { COST_MOST_NS = 1000000 };

static const struct {
        const char *name;
        unsigned int *value;
        unsigned int least;
        unsigned int most;
} parameters[] = {
        {"possible", &settings.possible, 1, SIM_CPUS_MAX},
        {"present", &settings.present, 1, SIM_CPUS_MAX},
        {"boot_cpus", &settings.boot_cpus, 1, SIM_CPUS_MAX},
        {"load_cpus", &settings.load_cpus, 1, SIM_CPUS_MAX},
        {"nodes", &settings.nodes, 1, SIM_NODES_MAX},
        {"groups", &settings.groups, 1, 10000},
        {"pairs", &settings.pairs, 1, 100},
        {"loops", &settings.loops, 1, 100000000},
        {"capacity", &settings.capacity, 1, 65536},
        {"filled", &settings.filled, 0, 100},
        {"bulk", &settings.bulk, 1, 1024},
        {"pinned", &settings.pinned, 0, 1},
        {"remote", &settings.remote, 0, 100},
        {"skip", &settings.skip, 0, 66}, /* one and a half times this percentage is left out */
        {"seed", &settings.seed, 0, 1000000},
        {"defaults", &settings.defaults, 0, 1},
        {"charged", &settings.charged, 0, 1},
        {"window", &settings.window, 0, 1},
        {"send_ns", &settings.send_ns, 0, COST_MOST_NS},
        {"receive_ns", &settings.receive_ns, 0, COST_MOST_NS},
        {"wake_ns", &settings.wake_ns, 0, COST_MOST_NS},
        {"switch_ns", &settings.switch_ns, 0, COST_MOST_NS},
        {"latency_ns", &settings.latency_ns, 1, 1000000000},
        {"slice_ns", &settings.slice_ns, 1, 1000000000},
        {"granule_ns", &settings.granule_ns, 0, 1000000000},
        {"cache_cpus", &settings.cache_cpus, 1, SIM_CPUS_MAX},
        {"lives", &settings.lives, 0, 1},
        {"runs", &settings.runs, 1, 100},
        {"boot_tasks", &settings.boot_tasks, 0, 1000000},
        {"fork_ns", &settings.fork_ns, 0, COST_MOST_NS},
        {"exit_ns", &settings.exit_ns, 0, COST_MOST_NS},
        {"grace_ns", &settings.grace_ns, 0, 1000000000},
};

static const struct {
        const char *name;
        const char **value;
} texts[] = {
        {"task", &settings.task},
        {"message", &settings.message},
        {"options", &settings.options},
        {"trace", &settings.trace},
};

static struct sim_costs sim_costs_ps;

/* The names of python/kmem/replay/assumed_costs.csv. */
static const struct {
        const char *name;
        uint32_t *value;
} costs[] = {
        {"calls", &load_costs.call},
        {"slow_paths", &load_costs.slow_path},
        {"remote_objects", &load_costs.remote_object},
        {"remote_objects_node", &load_costs.remote_object_node},
        {"received_objects", &load_costs.received_object},
        {"received_objects_node", &load_costs.received_object_node},
        {"compare_swaps", &sim_costs_ps.compare_swap},
        {"atomic_adds", &sim_costs_ps.atomic_add},
        {"exchanges", &sim_costs_ps.exchange},
        {"remote_words", &sim_costs_ps.remote_word},
        {"remote_words_node", &sim_costs_ps.remote_word_node},
        {"list_moves", &sim_costs_ps.list_move},
};

static const char *const lock_names[SIM_LOCK_KINDS] = {
        [SIM_LOCK_SLOT] = "slot",         [SIM_LOCK_LIST] = "list",   [SIM_LOCK_BARN] = "barn",
        [SIM_LOCK_ALIEN] = "alien",       [SIM_LOCK_SLOB] = "slob",   [SIM_LOCK_PAGE] = "page",
        [SIM_LOCK_METADATA] = "metadata", [SIM_LOCK_OTHER] = "other",
};

static const struct load *const loads[] = {
        &messages_load, &exchange_load, &packets_load, &rings_load,  &mesh_load,  &forks_load,
        &pairs_load,    &bursts_load,   &handed_load,  &random_load, &births_load};
static const struct load *load;

/* Messages that came through, and the numbers of messages at which something is done. */
static struct {
        uint64_t all;
        uint64_t done;
        uint64_t begin; /* from here on to `end` is measured */
        uint64_t end;
        uint64_t next_sample;
        uint64_t begin_ps; /* 0: not there yet */
        uint64_t end_ps;
        uint64_t begin_busy_ps;
        uint64_t end_busy_ps;
        unsigned int samples;
        uint64_t slab_pages; /* added up over samples */
        uint64_t slab_pages_most;
        uint64_t live_bytes;
        uint64_t charged_bytes;
        struct kept kept;
        struct sim_counts counts;
        struct object_counts objects_before;
        struct object_counts objects;
        bool half; /* stop at half of the messages, where memory is looked at */
} progress;

static struct kmem_group *group;

void die(const char *what, const char *value)
{
        fprintf(stderr, "loads: %s%s\n", what, value);
        exit(1);
}

/* Ends the program because of a wrong argument. */
__attribute__((noreturn)) static void refuse(const char *what, const char *value)
{
        fprintf(stderr, "loads: %s%s\n", what, value);
        exit(2);
}

void *need(void *memory)
{
        if (!memory)
                die("out of memory", "");
        return memory;
}

/* ---- Arguments --------------------------------------------------------------------------- */

static bool read_parameter(const char *name, size_t length, const char *value)
{
        for (size_t i = 0; i < array_size(parameters); i++) {
                uint64_t number;
                char range[80];

                if (strlen(parameters[i].name) != length ||
                    strncmp(name, parameters[i].name, length) != 0)
                        continue;
                if (!number_whole(value, &number) || number < parameters[i].least ||
                    number > parameters[i].most) {
                        snprintf(range, sizeof(range), "expected %s from %u to %u, not ",
                                 parameters[i].name, parameters[i].least, parameters[i].most);
                        refuse(range, value);
                }
                *parameters[i].value = (unsigned int)number;
                return true;
        }
        return false;
}

static bool read_text(const char *name, size_t length, const char *value)
{
        for (size_t i = 0; i < array_size(texts); i++)
                if (strlen(texts[i].name) == length && !strncmp(name, texts[i].name, length)) {
                        *texts[i].value = value;
                        return true;
                }
        return false;
}

static uint32_t picoseconds(const char *argument, const char *value)
{
        char *end;
        double ns = strtod(value, &end);

        if (end == value || *end || !(ns >= 0 && ns <= COST_MOST_NS))
                refuse("expected a cost from 0 to 1000000 ns, not ", argument);
        return (uint32_t)(ns * 1000 + 0.5);
}

static uint32_t *cost_of_lock(const char *name, size_t length)
{
        static const char *const ends[] = {"_locks", "_handed_over", "_handed_over_node", "_waits",
                                           "_waits_node"};
        uint32_t *values[] = {sim_costs_ps.lock, sim_costs_ps.handed_over,
                              sim_costs_ps.handed_over_node, sim_costs_ps.waited,
                              sim_costs_ps.waited_node};

        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++)
                for (size_t i = 0; i < array_size(ends); i++) {
                        char text[64];

                        snprintf(text, sizeof(text), "%s%s", lock_names[kind], ends[i]);
                        if (strlen(text) == length && !strncmp(name, text, length))
                                return &values[i][kind];
                }
        return NULL;
}

static bool read_cost(const char *name, size_t length, const char *value)
{
        uint32_t *place = cost_of_lock(name, length);

        for (size_t i = 0; i < array_size(costs) && !place; i++)
                if (strlen(costs[i].name) == length && !strncmp(name, costs[i].name, length))
                        place = costs[i].value;
        if (place)
                *place = picoseconds(name, value);
        return place;
}

static void read_arguments(int argc, char **argv)
{
        if (argc < 3)
                refuse("usage: loads LOAD CACHES [NAME=VALUE]...", "");
        for (size_t i = 0; i < array_size(loads); i++)
                if (!strcmp(argv[1], loads[i]->name))
                        load = loads[i];
        if (!load)
                refuse("expected messages, exchange, packets, rings, mesh, forks, pairs, bursts, "
                       "handed, random or births, not ",
                       argv[1]);
        for (int i = 3; i < argc; i++) {
                const char *value = strchr(argv[i], '=');
                size_t length = value ? (size_t)(value++ - argv[i]) : 0;

                if (!value ||
                    (!read_parameter(argv[i], length, value) &&
                     !read_text(argv[i], length, value) && !read_cost(argv[i], length, value)))
                        refuse("expected a setting or a cost and its value, not ", argv[i]);
        }
        if (!settings.load_cpus)
                settings.load_cpus = settings.boot_cpus;
        if (!settings.possible)
                settings.possible = settings.load_cpus;
        if (!settings.present)
                settings.present = settings.possible;
        if (!settings.cache_cpus)
                settings.cache_cpus = (settings.load_cpus + settings.nodes - 1) / settings.nodes;
        if (settings.boot_cpus > settings.load_cpus || settings.load_cpus > settings.possible)
                refuse("expected boot_cpus <= load_cpus <= possible", "");
        if (settings.boot_cpus > settings.present || settings.present > settings.possible)
                refuse("expected boot_cpus <= present <= possible", "");
        if (settings.runs > 1 && !settings.lives)
                refuse("expected lives=1 with runs above 1", "");
        if (settings.window && (settings.lives || settings.trace))
                refuse("expected window=0 with lives=1 or trace", "");
}

/* ---- The run ----------------------------------------------------------------------------- */

/* Pages in use, as in tools/replay/run.c; no block here is larger than a slab. */
static uint64_t slab_pages(void)
{
        uint64_t pages = frontier.pages - (frontier.pages != 0);

        for (unsigned int node = 0; node < settings.nodes; node++)
                pages -= zones[node].free_pages + zones[node].limbo_pages;
        return pages;
}

uint64_t load_slab_kib(void)
{
        return slab_pages() * sim_page_bytes() / 1024;
}

static void take_sample(void)
{
        uint64_t pages = slab_pages();
        struct kmem_group_stats stats;

        progress.samples++;
        progress.slab_pages += pages;
        if (pages > progress.slab_pages_most)
                progress.slab_pages_most = pages;
        progress.live_bytes += object_counts.live_bytes;
        kept_add(&progress.kept);
        if (group && !kmem_group_stats(group, &stats))
                progress.charged_bytes += stats.bytes;
        progress.next_sample += (progress.end - progress.begin) / SAMPLES + 1;
}

static void pass_marks(void)
{
        if (!progress.begin_ps && progress.done >= progress.begin) {
                /* A bulk may reach beyond a mark, so the messages until then are noted. */
                progress.begin = progress.done;
                progress.begin_ps = max_of(sim.clock, (uint64_t)1);
                sim_reset();
                progress.objects_before = object_counts;
                progress.begin_busy_ps = machine_busy();
        }
        if (progress.done >= progress.next_sample && progress.done <= progress.end)
                take_sample();
        if (!progress.end_ps && progress.done >= progress.end) {
                progress.end = progress.done;
                progress.end_ps = sim.clock;
                progress.end_busy_ps = machine_busy();
                sim_counts(&progress.counts);
                progress.objects = object_counts;
                sim_reset();
                if (settings.window)
                        machine_stop();
        }
        if (!progress.half && progress.done >= progress.all / 2) {
                progress.half = true;
                machine_stop();
        }
}

void load_count(unsigned int messages)
{
        progress.done += messages;
        if (progress.done >= progress.next_sample ||
            (!progress.end_ps && progress.done >= progress.end) ||
            (!progress.half && progress.done >= progress.all / 2))
                pass_marks();
}

static void prepare_progress(void)
{
        progress.all = load->messages();
        progress.begin = progress.all * settings.skip / 100;
        progress.end = progress.all - progress.all * settings.skip / 200;
        if (!progress.end)
                die("nothing to do", "");
        progress.next_sample = progress.begin;
        if (!progress.begin)
                pass_marks();
}

static void bring_cpus(unsigned int from, unsigned int to)
{
        for (unsigned int cpu = from; cpu < to; cpu++)
                if (sim_cpu_online(cpu, true))
                        exit(1);
}

static void start_machine(void)
{
        char options[512];
        struct sim_machine machine = {
                .cpus_online = 1,
                .cpus_present = settings.present,
                .cpus_possible = settings.possible,
                .nodes = settings.nodes,
                .memory_bytes = (uint64_t)256 << 30,
                .options = options,
        };

        /* Without option kernel or setting defaults: as kernels were until 6.17. */
        if (snprintf(options, sizeof(options), "%sslab_merge=0%s%s",
                     settings.defaults || strstr(settings.options, "kernel=") ? ""
                                                                              : "sheaf_capacity=0,",
                     *settings.options ? "," : "", settings.options) >= (int)sizeof(options))
                refuse("expected at most 470 characters of options, not ", settings.options);
        if (sim_start(&machine))
                exit(1);
        if (settings.charged) {
                group = need(kmem_group_create("load", NULL, 0));
                kmem_group_set(group);
        }
}

/* ---- The document ------------------------------------------------------------------------ */

static void print_waits(const char *lock, const struct sim_lock_counts *counts)
{
        printf(",\n  \"%s_waits\": %lu, \"%s_waits_node\": %lu, \"%s_wait_ns\": %lu,"
               " \"%s_hold_ns\": %lu",
               lock, (unsigned long)counts->waits, lock, (unsigned long)counts->waits_node, lock,
               (unsigned long)(counts->wait_ps / 1000), lock,
               (unsigned long)(counts->hold_ps / 1000));
}

static void print_counts(const char *name, const struct sim_counts *counts,
                         const struct object_counts *from, const struct object_counts *to)
{
        printf(" \"%s\": {\"calls\": %lu, \"remote_objects\": %lu, \"remote_objects_node\": %lu,"
               " \"slow_paths\": %lu, \"compare_swaps\": %lu, \"atomic_adds\": %lu,"
               " \"exchanges\": %lu, \"remote_words\": %lu, \"remote_words_node\": %lu,"
               " \"list_moves\": %lu",
               name, (unsigned long)(to->calls - from->calls),
               (unsigned long)(to->remote_objects - from->remote_objects),
               (unsigned long)(to->remote_objects_node - from->remote_objects_node),
               (unsigned long)counts->slow_paths, (unsigned long)counts->compare_swaps,
               (unsigned long)counts->atomic_adds, (unsigned long)counts->exchanges,
               (unsigned long)counts->remote_words, (unsigned long)counts->remote_words_node,
               (unsigned long)counts->list_moves);
        for (int kind = 0; kind < SIM_LOCK_KINDS; kind++)
                printf(",\n  \"%s_locks\": %lu, \"%s_handed_over\": %lu, "
                       "\"%s_handed_over_node\": %lu",
                       lock_names[kind], (unsigned long)counts->locks[kind].taken, lock_names[kind],
                       (unsigned long)counts->locks[kind].handed_over, lock_names[kind],
                       (unsigned long)counts->locks[kind].handed_over_node);
        print_waits("list", &counts->locks[SIM_LOCK_LIST]);
        print_waits("barn", &counts->locks[SIM_LOCK_BARN]);
        printf("},\n");
}

static unsigned long attribute(const struct kind *kind, const char *name)
{
        char text[KMEM_ATTR_BYTES];
        const char *at = text;

        if (kmem_attr_read(kind->name, name, text, sizeof(text)) < 0)
                die("no attribute ", name);
        return (unsigned long)number_next(&at);
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

static void print_settings(void)
{
        printf("{\"load\": \"%s\", \"page_bytes\": %zu", load->name, sim_page_bytes());
        for (size_t i = 0; i < array_size(parameters); i++)
                printf(", \"%s\": %u", parameters[i].name, *parameters[i].value);
        printf(",\n");
}

static void print_memory(const char *name)
{
        printf(" \"%s_kib\": %lu,\n", name, (unsigned long)load_slab_kib());
}

static void print_measured(void)
{
        uint64_t samples = max_of((uint64_t)progress.samples, (uint64_t)1);
        uint64_t kib = sim_page_bytes() / 1024;

        printf(" \"messages\": %lu, \"measured_messages\": %lu, \"measured_ns\": %lu,"
               " \"busy_ns\": %lu, \"all_ns\": %lu,\n",
               (unsigned long)progress.all, (unsigned long)(progress.end - progress.begin),
               (unsigned long)((progress.end_ps - progress.begin_ps) / 1000),
               (unsigned long)((progress.end_busy_ps - progress.begin_busy_ps) / 1000),
               (unsigned long)((machine_time() - progress.begin_ps) / 1000));
        printf(" \"mean_slab_kib\": %lu, \"most_slab_kib\": %lu, \"mean_live_kib\": %lu,"
               " \"mean_charged_kib\": %lu,\n",
               (unsigned long)(progress.slab_pages * kib / samples),
               (unsigned long)(progress.slab_pages_most * kib),
               (unsigned long)(progress.live_bytes / samples / 1024),
               (unsigned long)(progress.charged_bytes / samples / 1024));
        print_counts("counts", &progress.counts, &progress.objects_before, &progress.objects);
        kept_print(&progress.kept, samples);
        printf(" \"distant_objects\": %lu,\n",
               (unsigned long)(progress.objects.distant_objects -
                               progress.objects_before.distant_objects));
        printf(" \"received\": {\"objects\": %lu, \"objects_node\": %lu},\n",
               (unsigned long)(progress.objects.received_objects -
                               progress.objects_before.received_objects),
               (unsigned long)(progress.objects.received_objects_node -
                               progress.objects_before.received_objects_node));
}

/* Gives back the objects that the tasks still hold: counted with what came after the last mark. */
static void finish_load(void)
{
        struct sim_counts counts;

        load->finish();
        record_close();
        sim_counts(&counts);
        print_counts("exit_counts", &counts, &progress.objects, &object_counts);
}

int main(int argc, char **argv)
{
        read_arguments(argc, argv);
        caches_read(argv[2]);
        start_machine();
        caches_make(false);
        bring_cpus(1, settings.boot_cpus);
        caches_make(true);
        caches_populate(settings.boot_cpus);
        caches_populate_cpus(0, settings.boot_cpus);
        lives_boot();
        print_settings();
        print_slabs();
        print_memory("start");
        bring_cpus(settings.boot_cpus, settings.load_cpus);
        caches_populate_cpus(settings.boot_cpus, settings.load_cpus);
        print_memory("hotplug");

        sim_set_costs(&sim_costs_ps);
        machine_start();
        if (settings.trace)
                record_open();
        load->start();
        print_memory("forked");
        prepare_progress();
        machine_run();
        print_memory("during");
        machine_run();
        if (progress.done != (settings.window ? progress.end : progress.all))
                die("internal error: not all messages came through", "");
        print_measured();
        /* The objects of messages that nobody received are left, as the program ends. */
        if (settings.window) {
                printf(" \"window_kib\": %lu\n}\n", (unsigned long)load_slab_kib());
                return fflush(stdout) || ferror(stdout);
        }
        finish_load();
        if (settings.lives)
                lives_print();
        print_memory("after");
        caches_shrink();
        printf(" \"shrunk_kib\": %lu\n}\n", (unsigned long)load_slab_kib());
        return fflush(stdout) || ferror(stdout);
}
