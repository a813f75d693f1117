/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of caches: a line each, with columns by name. The columns cache, size (bytes from an
 * object to the next) and made (boot or later) are always there. The others are counts of objects:
 * boot and cpu are optional, and settings name the columns of a task and of a message. The column
 * freed says when the objects of a process go back (lives.c).
 */
#include "tools/loads/loads.h"

#include "lang/number.h"
#include "simulator/machine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COLUMNS_MOST = 24, GRAIN_SHIFT = 6, GRAINS = 1 << 30 };

/* The caches in the order of the table, and the recipes by its columns. */
struct kind kinds[CACHES_MOST];
unsigned int kind_count;
static struct recipe cpu_recipe;
struct recipe task_recipe;
struct recipe socket_recipe;
struct recipe message_recipe;
struct object_counts object_counts;

/*
 * For each 64 bytes of the heap, the CPU that last gave back the object that begins there, or took
 * it if receivers pay: both write to it. Address space only.
 */
static uint16_t *last_cpu;

static unsigned int split(char *line, char **words)
{
        unsigned int count = 0;

        for (char *word = strtok(line, ",\n"); word && count < COLUMNS_MOST;
             word = strtok(NULL, ",\n"))
                words[count++] = word;
        return count;
}

/* Number of a column; a missing column counts nothing, unless the user asked for it. */
static int find_column(char **words, unsigned int count, const char *name, bool needed)
{
        for (unsigned int i = 0; i < count; i++)
                if (!strcmp(words[i], name))
                        return (int)i;
        if (needed && *name)
                die("expected a column of the table of caches, not ", name);
        return -1;
}

static unsigned int cell(char **words, int column, const char *line)
{
        uint64_t number;

        if (column < 0)
                return 0;
        if (!number_whole(words[column], &number) || number > 1000000)
                die("expected numbers up to 1000000 in the table of caches, not ", line);
        return (unsigned int)number;
}

/* A table without that column is of a load whose processes neither fork nor exit. */
static enum freed read_freed(char **words, int column, const char *line)
{
        static const char *const names[] = {
                [FREED_EXIT] = "exit",
                [FREED_EXIT_RCU] = "exit-rcu",
                [FREED_REAP] = "reap",
                [FREED_REAP_RCU] = "reap-rcu",
        };

        if (column < 0)
                return FREED_EXIT;
        for (size_t i = 0; i < array_size(names); i++)
                if (!strcmp(words[column], names[i]))
                        return (enum freed)i;
        die("expected exit, exit-rcu, reap or reap-rcu as the last column, not ", line);
}

static void add_to(struct recipe *recipe, unsigned int kind, unsigned int count)
{
        if (!count)
                return;
        recipe->kinds =
                need(realloc(recipe->kinds, (recipe->count + count) * sizeof(*recipe->kinds)));
        while (count--)
                recipe->kinds[recipe->count++] = kind;
}

void caches_read(const char *path)
{
        char line[512];
        char copy[512];
        char *words[COLUMNS_MOST];
        unsigned int columns = 0;
        int name = 0, size = 0, made = 0, boot = 0, cpu = 0, task = 0, socket = 0, message = 0;
        int freed = 0;
        FILE *file = fopen(path, "r");

        if (!file)
                die("cannot read ", path);
        while (fgets(line, sizeof(line), file)) {
                struct kind *kind = &kinds[kind_count];

                strcpy(copy, line);
                if (*line == '#')
                        continue;
                if (!columns) {
                        columns = split(copy, words);
                        name = find_column(words, columns, "cache", true);
                        size = find_column(words, columns, "size", true);
                        made = find_column(words, columns, "made", true);
                        boot = find_column(words, columns, "boot", false);
                        cpu = find_column(words, columns, "cpu", false);
                        socket = find_column(words, columns, "socket", false);
                        task = find_column(words, columns, settings.task, true);
                        message = find_column(words, columns, settings.message, true);
                        freed = find_column(words, columns, "freed", settings.lives);
                        continue;
                }
                if (kind_count == CACHES_MOST || split(copy, words) != columns ||
                    strlen(words[name]) >= NAME_BYTES ||
                    (strcmp(words[made], "boot") != 0 && strcmp(words[made], "later") != 0))
                        die("expected a line with the columns of the heading, and boot or later, "
                            "not ",
                            line);
                strcpy(kind->name, words[name]);
                kind->size = cell(words, size, line);
                kind->later = !strcmp(words[made], "later");
                kind->boot = cell(words, boot, line);
                kind->freed = read_freed(words, freed, line);
                add_to(&cpu_recipe, kind_count, cell(words, cpu, line));
                add_to(&task_recipe, kind_count, cell(words, task, line));
                add_to(&socket_recipe, kind_count, cell(words, socket, line));
                add_to(&message_recipe, kind_count, cell(words, message, line));
                kind_count++;
        }
        fclose(file);
        if (message_recipe.count > OBJECTS_MOST)
                die("a message has more than 4 objects: ", settings.message);
}

void caches_make(bool later)
{
        for (unsigned int i = 0; i < kind_count; i++)
                if (kinds[i].later == later)
                        kinds[i].cache =
                                need(kmem_cache_create(kinds[i].name, kinds[i].size, 0,
                                                       settings.charged ? SLAB_ACCOUNT : 0, NULL));
        if (last_cpu)
                return;
        last_cpu = mmap(NULL, GRAINS * sizeof(*last_cpu), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (last_cpu == MAP_FAILED)
                die("no address space for the CPUs of objects", "");
        madvise(last_cpu, GRAINS * sizeof(*last_cpu), MADV_HUGEPAGE);
}

void caches_shrink(void)
{
        for (unsigned int i = 0; i < kind_count; i++)
                kmem_cache_shrink(kinds[i].cache);
}

/* The place of an object's mark: the CPU that had its lines last. */
static uint16_t *last_cpu_of(const void *object)
{
        uintptr_t grain = ((uintptr_t)object - heap.base) >> GRAIN_SHIFT;

        if (grain >= GRAINS)
                die("the load needs more than 64 GiB of slabs", "");
        return &last_cpu[grain];
}

static void spend_call(uint64_t slow_paths_before)
{
        object_counts.calls++;
        sim.clock += load_costs.call +
                     (sim.counts.slow_paths - slow_paths_before) * load_costs.slow_path;
}

/*
 * Whether a receiver pays for what the taker wrote. If not, marks are the givers' alone: small
 * objects share a mark, which takers would change too.
 */
static bool receivers_pay(void)
{
        return load_costs.received_object || load_costs.received_object_node;
}

/* Counts the lines of an object that come over from the CPU that gave it back. */
static void note_taken(unsigned int kind, const void *object)
{
        uint16_t last = *last_cpu_of(object);

        object_counts.live_bytes += kinds[kind].size;
        if (last && last != sim.mark) {
                bool other_node = sim_other_node(last);

                object_counts.remote_objects++;
                object_counts.remote_objects_node += other_node;
                sim.clock += load_costs.remote_object + other_node * load_costs.remote_object_node;
        }
        if (receivers_pay())
                *last_cpu_of(object) = sim.mark;
        if (settings.trace)
                record_event(false, kind, object);
}

/* The task that gives an object back has read it, so its lines came over from their writer. */
static void note_received(uint16_t writer)
{
        bool other_node;

        if (writer == sim.mark)
                return;
        other_node = sim_other_node(writer);
        object_counts.received_objects++;
        object_counts.received_objects_node += other_node;
        sim.clock += load_costs.received_object + other_node * load_costs.received_object_node;
}

static void note_given(unsigned int kind, const void *object)
{
        if (settings.trace)
                record_event(true, kind, object);
        if (receivers_pay())
                note_received(*last_cpu_of(object));
        *last_cpu_of(object) = sim.mark;
        object_counts.live_bytes -= kinds[kind].size;
}

void object_prefetch(const void *object)
{
        uint32_t page = address_page(object);

        __builtin_prefetch(last_cpu_of(object), 1);
        __builtin_prefetch(&heap.map[page]);
        __builtin_prefetch(page_at(page), 1);
}

bool object_is_distant(unsigned int kind, const void *object)
{
        const struct kmem_cache *cache = kinds[kind].cache;

        return cache->engine->node_of &&
               cache->engine->node_of(cache, object) != (int)sim_node_of(sim.cpu);
}

void *object_take(unsigned int kind)
{
        uint64_t before = sim.counts.slow_paths;
        void *object = need(kmem_cache_alloc(kinds[kind].cache, GFP_KERNEL));

        spend_call(before);
        note_taken(kind, object);
        return object;
}

void object_give(unsigned int kind, void *object)
{
        uint64_t before = sim.counts.slow_paths;

        note_given(kind, object);
        kmem_cache_free(kinds[kind].cache, object);
        spend_call(before);
}

void objects_take_bulk(unsigned int kind, unsigned int count, void **objects)
{
        uint64_t before = sim.counts.slow_paths;

        if (kmem_cache_alloc_bulk(kinds[kind].cache, GFP_KERNEL, count, objects) != (int)count)
                need(NULL);
        spend_call(before);
        for (unsigned int i = 0; i < count; i++)
                note_taken(kind, objects[i]);
}

void objects_give_bulk(unsigned int kind, unsigned int count, void **objects)
{
        uint64_t before = sim.counts.slow_paths;

        for (unsigned int i = 0; i < count; i++)
                note_given(kind, objects[i]);
        kmem_cache_free_bulk(kinds[kind].cache, count, objects);
        spend_call(before);
}

void recipe_take(const struct recipe *recipe, void **objects)
{
        for (unsigned int i = 0; i < recipe->count; i++)
                objects[i] = object_take(recipe->kinds[i]);
}

void recipe_give(const struct recipe *recipe, void **objects)
{
        for (unsigned int i = 0; i < recipe->count; i++)
                object_give(recipe->kinds[i], objects[i]);
}

void caches_populate(unsigned int cpus)
{
        unsigned int turn = 0;

        for (unsigned int i = 0; i < kind_count; i++)
                for (unsigned int n = 0; n < kinds[i].boot; n++) {
                        sim_set_cpu(turn++ % cpus);
                        need(kmem_cache_alloc(kinds[i].cache, GFP_KERNEL));
                }
}

void caches_populate_cpus(unsigned int from, unsigned int to)
{
        void **objects = need(calloc(cpu_recipe.count + 1, sizeof(*objects)));

        for (unsigned int cpu = from; cpu < to; cpu++) {
                sim_set_cpu(cpu);
                recipe_take(&cpu_recipe, objects);
        }
        free(objects);
}
