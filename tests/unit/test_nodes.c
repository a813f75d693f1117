/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Several NUMA nodes: wishes for a node (S8-20, S12-05, S12-06, S6-33), the search of others
 * (S12-04, S12-07), nodes that are full, threads and fork on fake nodes (option numa_fake); and the
 * machine's own nodes, as far as it has some. Each case is a child with its own options, most on a
 * single CPU.
 */
#define _GNU_SOURCE
#include "child.h"
#include "forked.h"

#include "kmem.h"

#include "machine/nodes.h"
#include "page/zone.h"
#include "percpu/barn.h"
#include "percpu/percpu.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY = 600 };

static void *objects[MANY];
static struct kmem_cache *cache;
static int here;  /* node of this CPU */
static int there; /* another node */

/* While set there are no pages for new slabs. */
static bool no_pages;

struct page *__real_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero);

struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero)
{
        return no_pages ? NULL : __real_pages_alloc(order, node, zero);
}

struct page *__real_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);
struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);

struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object)
{
        return no_pages ? NULL : __real_pages_alloc_many(pages, align, node, count, one_object);
}

/*
 * With this variable the machine has two nodes, which the kernel calls 0 and 5: the heap may start
 * before main.
 */
static const char two_nodes[] = "KMEM_TEST_TWO_NODES";

void __real_nodes_read(struct nodes *nodes);
void __wrap_nodes_read(struct nodes *nodes);

void __wrap_nodes_read(struct nodes *nodes)
{
        if (getenv(two_nodes))
                *nodes = (struct nodes){
                        .count = 2,
                        .number = {0, 5},
                        .cpus = {system_cpus(CPUS_ONLINE), 0},
                        .near = {{0, 1}, {1, 0}},
                        .of = {[5] = 1},
                };
        else
                __real_nodes_read(nodes);
}

static void run_on(unsigned int cpu)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        check(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void begin(void)
{
        run_on((unsigned int)sched_getcpu());
        here = (int)system_current_node();
        there = (here + 1) % (int)system_nodes();
        check(here != there);
        cache = kmem_cache_create("nodes", 256, 0, 0, NULL);
        check(cache != NULL);
}

static void end(void)
{
        check(kmem_cache_shrink(cache) == 0);
        kmem_cache_destroy(cache);
}

static int node_of(const void *object)
{
        const struct kmem_cache *own =
                caches_by_index[heap.map[address_page(object)] >> PAIR_SHIFT];

        return own->engine->node_of(own, object);
}

/*
 * Every wish is granted, from new slabs, lists and sheaves alike, also for objects that other
 * threads freed.
 */
static void child_wishes(void)
{
        begin();
        for (unsigned int round = 0; round < 20; round++) {
                for (unsigned int i = 0; i < MANY; i++) {
                        int node = (int)((i + round) % system_nodes());

                        objects[i] = i % 5 ? kmem_cache_alloc_node(cache, __GFP_ZERO, node)
                                           : kmalloc_node(200, __GFP_ZERO, node);
                        check(objects[i] && node_of(objects[i]) == node);
                        for (unsigned int byte = 0; byte < 200; byte++)
                                check_equal(((unsigned char *)objects[i])[byte], 0);
                        memset(objects[i], 0xee, 200);
                }
                for (unsigned int i = 0; i < MANY; i++)
                        for (unsigned int j = 0; j < i && round == 0; j++)
                                check(objects[i] != objects[j]);
                for (unsigned int i = 0; i < MANY; i++)
                        kfree(objects[(i * 7 + round) % MANY]);
        }
        end();
}

/* S12-06, and NUMA_NO_NODE: as without a wish, which is the own node while nothing is listed. */
static void child_no_wish(void)
{
        volatile size_t too_many = SIZE_MAX / 2;
        static const int nodes[] = {NUMA_NO_NODE, -7, 8, 1 << 30};

        begin();
        for (unsigned int i = 0; i < array_size(nodes); i++) {
                objects[i] = kmem_cache_alloc_node(cache, 0, nodes[i]);
                check(objects[i] && node_of(objects[i]) == here);
                kmem_cache_free(cache, objects[i]);
                objects[i] = kmalloc_node(256, __GFP_THISNODE, nodes[i]);
                check(objects[i] && node_of(objects[i]) == here);
                kfree(objects[i]);
        }
        /* A size without a class has no wish for a node, but it is served. */
        objects[0] = kmalloc_node(1 << 20, 0, there);
        check(objects[0] != NULL);
        kfree(objects[0]);
        check(kmalloc_node(0, 0, there) == ZERO_SIZE_PTR);
        check(!kmalloc_array_node(too_many, 16, __GFP_NOWARN, there) && errno == ENOMEM);
        end();
}

/* S12-05: without memory on the node another node serves, except for __GFP_THISNODE. */
static void child_this_node_only(void)
{
        unsigned int count = 0;
        void *object;

        begin();
        object = kmem_cache_alloc_node(cache, 0, here); /* there is more where it comes from */
        no_pages = true;
        errno = 0;
        check(kmem_cache_alloc_node(cache, __GFP_THISNODE | __GFP_NOWARN, there) == NULL);
        check_equal(errno, ENOMEM);
        objects[count] = kmem_cache_alloc_node(cache, 0, there);
        check(objects[count] && node_of(objects[count]) == here);
        count++;
        while ((objects[count] = kmem_cache_alloc_node(cache, __GFP_THISNODE | __GFP_NOWARN, here)))
                check(node_of(objects[count++]) == here);
        no_pages = false;
        /* The sheaf is empty, so the wish is no matter of luck. */
        objects[count] = kmem_cache_alloc_node(cache, __GFP_THISNODE, there);
        check(objects[count] && node_of(objects[count]) == there);
        count++;
        while (count)
                kmem_cache_free(cache, objects[--count]);
        kmem_cache_free(cache, object);
        end();
}

/* A wish that cannot be granted is none with engine slob (its pages are nobody's). */
static void child_ignored(void)
{
        begin();
        objects[0] = kmem_cache_alloc_node(cache, 0, there);
        objects[1] = kmalloc_node(100, 0, there);
        check(objects[0] && objects[1]);
        kmem_cache_free(cache, objects[0]);
        kfree(objects[1]);
        end();
}

/* Slabs with a single free object, on the list of another node. */
static void list_there(unsigned int slabs)
{
        for (unsigned int i = 0; i < slabs * cache->objects; i++) {
                objects[i] = kmem_cache_alloc_node(cache, 0, there);
                check(objects[i] && node_of(objects[i]) == there);
        }
        for (unsigned int slab = 0; slab < slabs; slab++)
                kmem_cache_free(cache, objects[slab * cache->objects]);
        kmem_cache_shrink(cache); /* drains CPU slab and CPU partial list */
        check_equal(cache->node[there].partial.length, slabs);
}

/* A request without a wish, when this node has nothing; whether it took the other node's slab. */
static bool goes_there(void)
{
        void *object = kmem_cache_alloc(cache, 0);
        bool went = node_of(object) == there;

        kmem_cache_free(cache, object);
        kmem_cache_shrink(cache);
        return went;
}

enum { RATIO_ROUNDS = 3000 };

/*
 * S12-07: never with 0, at 1001 of 1024 with 100, and as often as the ratio says in between. The
 * random numbers are equal in every run; the bounds, six standard deviations, are for other
 * generators.
 */
static void child_ratio(void)
{
        static const struct {
                const char *percent;
                unsigned int least, most;
        } rows[] = {{"0", 0, 0},
                    {"1", 1, 100},
                    {"50", RATIO_ROUNDS * 501 / 1024 - 165, RATIO_ROUNDS * 501 / 1024 + 165},
                    {"100", RATIO_ROUNDS * 1001 / 1024 - 50, RATIO_ROUNDS - 1}};

        begin();
        cache->min_partial = 2;
        list_there(5);
        for (unsigned int row = 0; row < array_size(rows); row++) {
                unsigned int went = 0;

                check_equal(kmem_attr_write("nodes", "remote_node_defrag_ratio", rows[row].percent),
                            0);
                for (unsigned int round = 0; round < RATIO_ROUNDS; round++)
                        went += goes_there();
                check(went >= rows[row].least && went <= rows[row].most);
        }
        for (unsigned int i = 0; i < 5 * cache->objects; i++)
                if (i % cache->objects)
                        kmem_cache_free(cache, objects[i]);
        end();
}

/* S12-07: a node keeps min_partial slabs to itself, unless there is no memory for a new slab. */
static void child_kept(void)
{
        void *object;

        begin();
        cache->min_partial = 5;
        list_there(5);
        for (unsigned int round = 0; round < 100; round++)
                check(!goes_there());
        no_pages = true;
        check(goes_there());
        check_equal(kmem_attr_write("nodes", "remote_node_defrag_ratio", "0"), 0);
        object = kmem_cache_alloc(cache, 0);
        check(object && node_of(object) == there);
        no_pages = false;
        kmem_cache_free(cache, object);
        for (unsigned int i = 0; i < 5 * cache->objects; i++)
                if (i % cache->objects)
                        kmem_cache_free(cache, objects[i]);
        end();
}

static void other_nodes_are_searched(void **state)
{
        child_passes("ratio", "numa_fake=2,sheaf_capacity=0,slub_max_order=0");
        child_passes("kept", "numa_fake=2,sheaf_capacity=0,slub_max_order=0");
        child_passes("kept", "numa_fake=4,slub_max_order=0,freeze=eager");
}

/*
 * S13-02: sheaves that a slot has too many of go to the barn of its CPU's node, no other node's CPU
 * takes them, and a flush finds them all.
 */
static void child_barns(void)
{
        unsigned int count = 20 * 4;
        unsigned int other;
        cpu_set_t set;

        check(sched_getaffinity(0, sizeof(set), &set) == 0);
        begin();
        for (other = 0; other < CPU_SETSIZE; other++)
                if (CPU_ISSET(other, &set) && (int)(other % system_nodes()) != here)
                        break;
        if (other == CPU_SETSIZE) {
                puts("# skipped: all usable CPUs are of one fake node");
                fflush(stdout);
                _exit(CHILD_SKIP);
        }
        for (unsigned int i = 0; i < count; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        check(cache->barn[here].full_size > 0);
        check_equal(cache->barn[here].full_size, barn_full_max(&cache->barn[here]));
        run_on(other);
        there = (int)system_current_node();
        check(there != here);
        for (unsigned int i = 0; i < count; i++)
                objects[i] = kmem_cache_alloc(cache, 0);
        check_equal(cache->barn[here].full_size, barn_full_max(&cache->barn[here]));
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(cache->barn[there].full_size, barn_full_max(&cache->barn[there]));
        kmem_cache_shrink(cache);
        for (unsigned int node = 0; node < system_nodes(); node++)
                check(!cache->barn[node].full && !cache->barn[node].empty);
        end();
}

static void barns(void **state)
{
        child_passes("barns", "numa_fake=2,sheaf_capacity=4,slot_cache_max=0");
}

/* ---- Zones -------------------------------------------------------------------------------- */

static size_t used_pages(int node)
{
        struct page_counts counts;

        pages_count_node((unsigned int)node, &counts);
        return counts.used_pages;
}

enum { FILL_MAX = 1 << 16 };

/*
 * node_limit: a full node refuses its own requests, other requests go to other nodes, and pages
 * that come back to it serve it again.
 */
static void child_full_node(void)
{
        static void *fill[FILL_MAX];
        size_t count = 0;
        size_t before;
        void *object;

        begin();
        before = used_pages(here);
        while ((fill[count] = kmem_cache_alloc_node(cache, __GFP_THISNODE | __GFP_NOWARN, there))) {
                check_equal(node_of(fill[count]), there);
                check(++count < FILL_MAX);
        }
        check_equal(errno, ENOMEM);
        /*
         * A chunk has 16,384 objects, less the rest that is too small for a slab; a node may have
         * two.
         */
        check(count > 32000 && count <= 32768);
        check(used_pages(here) <= before + 1);
        object = kmem_cache_alloc_node(cache, 0, there);
        check(object && node_of(object) == here);
        kmem_cache_free(cache, object);
        check(!kmem_cache_alloc_node(cache, __GFP_THISNODE | __GFP_NOWARN, there));
        while (count)
                kmem_cache_free(cache, fill[--count]);
        kmem_cache_shrink(cache);
        check(used_pages(there) <= 1);
        object = kmem_cache_alloc_node(cache, __GFP_THISNODE, there);
        check(object && node_of(object) == there);
        kmem_cache_free(cache, object);
        kmem_cache_shrink(cache);

        /* Without a wish: first the own node's objects, then the other node's, then nothing. */
        while ((fill[count] = kmem_cache_alloc(cache, __GFP_NOWARN)))
                check(++count < FILL_MAX);
        check(count > 64000);
        for (size_t i = 0; i < 1000; i++)
                check_equal(node_of(fill[i]), here);
        check_equal(node_of(fill[count - 1]), there);
        while (count)
                kmem_cache_free(cache, fill[--count]);
        end();
        check(used_pages(there) <= 1);
}

enum { SHARED = 512, THREAD_STEPS = 60000 };

static void *shared[SHARED];
static bool nodes_stop;

/* Puts objects of a node where the other thread finds and frees them. */
static void *wishing_thread(void *argument)
{
        unsigned int number = (unsigned int)(uintptr_t)argument;
        uint64_t state = number + 1;
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(number, &set);
        sched_setaffinity(0, sizeof(set), &set); /* if that CPU exists */
        for (unsigned int step = 0; step < THREAD_STEPS && !load_relaxed(&nodes_stop); step++) {
                int node = (int)(random_step(&state) % (system_nodes() + 1)) - 1;
                void *object = kmem_cache_alloc_node(cache, node < 0 ? 0 : __GFP_THISNODE, node);

                check(object != NULL);
                check(node < 0 || node_of(object) == node);
                memset(object, (int)number, 256);
                object = __atomic_exchange_n(&shared[random_step(&state) % SHARED], object,
                                             __ATOMIC_ACQ_REL);
                if (object)
                        kmem_cache_free(cache, object);
        }
        return NULL;
}

static void wish_in_threads(pthread_t threads[2])
{
        for (uintptr_t i = 0; i < 2; i++)
                check(pthread_create(&threads[i], NULL, wishing_thread, (void *)i) == 0);
}

static void wishes_end(pthread_t threads[2])
{
        for (int i = 0; i < 2; i++)
                pthread_join(threads[i], NULL);
        for (int i = 0; i < SHARED; i++)
                kmem_cache_free(cache, shared[i]);
        kmem_cache_shrink(cache);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                check_equal(cache->node[node].slabs, 0);
                check_equal(cache->node[node].objects, 0);
        }
}

static void child_two_threads(void)
{
        pthread_t threads[2];

        begin();
        wish_in_threads(threads);
        wishes_end(threads);
        end();
}

/* Forks in the middle of it: the child has pages of every node, and its counts are whole. */
static void child_fork(void)
{
        pthread_t threads[2];

        begin();
        wish_in_threads(threads);
        for (unsigned int round = 0; round < 40; round++) {
                pid_t pid = fork();

                check(pid >= 0);
                if (pid == 0) {
                        struct page_counts counts;

                        forked_child_starts_no_thread_under_qemu();
                        for (unsigned int i = 0; i < MANY; i++) {
                                int node = (int)(i % system_nodes());

                                objects[i] = kmem_cache_alloc_node(cache, __GFP_THISNODE, node);
                                check(objects[i] && node_of(objects[i]) == node);
                        }
                        for (unsigned int i = 0; i < MANY; i++)
                                kmem_cache_free(cache, objects[i]);
                        pages_count(&counts);
                        check_equal(counts.accessible_pages, frontier.pages);
                        check(heap.accessible_bytes == (size_t)frontier.pages << PAGE_SHIFT);
                        _exit(0);
                }
                child_wait(pid);
        }
        store_relaxed(&nodes_stop, true);
        wishes_end(threads);
        end();
}

static void full_node(void **state)
{
        child_passes("full_node", "numa_fake=2,node_limit=8M");
        child_passes("full_node", "numa_fake=2,node_limit=8M,sheaf_capacity=0,freeze=eager");
        child_passes("full_node", "numa_fake=2,node_limit=8M,engine=slab");
}

static void threads_on_nodes(void **state)
{
        child_passes("two_threads", "numa_fake=2");
        child_passes("two_threads", "numa_fake=8,sheaf_capacity=0,cpu_partial=0,min_partial=0");
        child_passes("two_threads", "numa_fake=2,engine=slab,limit=2");
        child_passes("fork", "numa_fake=2,sheaf_capacity=0,cpu_partial=0,min_partial=0");
        child_passes("fork", "numa_fake=8,purge_delay=0");
}

/* ---- Real nodes --------------------------------------------------------------------------- */

/* Nodes have the numbers that the kernel gives them, in wishes and in figures. */
static void child_numbers(void)
{
        char text[256];

        run_on((unsigned int)sched_getcpu());
        cache = kmem_cache_create("nodes", 256, 0, 0, NULL);
        check(cache != NULL);
        check_equal(system_nodes(), 2);
        objects[2] = kmem_cache_alloc_node(cache, 0, 1); /* the node does not exist */
        check(objects[2] && node_of(objects[2]) == (int)system_current_node());
        objects[0] = kmem_cache_alloc_node(cache, __GFP_THISNODE, 5);
        objects[1] = kmem_cache_alloc_node(cache, __GFP_THISNODE, 5);
        check(objects[0] && node_of(objects[0]) == 1 && node_of(objects[1]) == 1);
        check(kmem_attr_read("nodes", "slabs", text, sizeof(text)) > 0);
        check(strstr(text, " N0=") && strstr(text, " N5=1\n") && !strstr(text, "N1="));
        for (int i = 0; i < 3; i++)
                kmem_cache_free(cache, objects[i]);
        end();
}

/* Without a wish nobody is told that memory could not be bound. */
static void child_no_numbers(void)
{
        cache = kmem_cache_create("nodes", 256, 0, 0, NULL);
        check(cache != NULL);
        objects[0] = kmem_cache_alloc(cache, 0);
        check(objects[0] && zones[0].bind_error == EPERM);
        kmem_cache_free(cache, objects[0]);
        end();
}

/* Nobody tells which memory is ours. */
static void child_starts(void)
{
        check(system_nodes() >= 1);
        cache = kmem_cache_create("nodes", 256, 0, 0, NULL);
        objects[0] = kmem_cache_alloc_node(cache, __GFP_THISNODE, 0);
        check(objects[0] != NULL);
        kmem_cache_free(cache, objects[0]);
        end();
}

static void child_off(void)
{
        cache = kmem_cache_create("nodes", 256, 0, 0, NULL);
        check(cache != NULL);
        check_equal(system_nodes(), 1);
        objects[0] = kmem_cache_alloc_node(cache, __GFP_THISNODE, 5);
        check(objects[0] && node_of(objects[0]) == 0);
        kmem_cache_free(cache, objects[0]);
        end();
}

static unsigned int lines_with(const char *text, const char *part)
{
        unsigned int count = 0;

        for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
                count++;
        return count;
}

/* The kernel refuses to bind to a node 5 that it does not have, and a sandbox to bind at all. */
static void nodes_of_the_machine(void **state)
{
        static struct child_result result;
        const char *message = "memory of NUMA node 5 is not bound to it (mbind: ";

        setenv(two_nodes, "", 1);
        child_run("numbers", "numa=auto", &result);
        check_equal(result.status, 0);
        check_equal(lines_with(result.output, message), 1);
        child_refuse_system_call(SYS_mbind);
        child_prints("numbers", "numa=auto", "mbind: Operation not permitted, error 1)");
        child_run("no_numbers", "numa=auto", &result);
        check_equal(result.status, 0);
        check_equal(lines_with(result.output, "mbind"), 0);
        child_refuse_system_call(-1);
        child_passes("off", "numa=off");
        unsetenv(two_nodes);
        child_refuse_system_call(SYS_get_mempolicy);
        child_passes("starts", "numa=auto");
}

/* Also when the case was skipped halfway. */
static int machine_as_it_is(void **state)
{
        child_refuse_system_call(-1);
        return unsetenv(two_nodes);
}

/* The kernel's number of the node that has the memory behind an address. */
static int place_of(const void *address)
{
        int node = -1;

        check(syscall(SYS_get_mempolicy, &node, NULL, 0, address, MPOL_F_NODE | MPOL_F_ADDR) == 0);
        return node;
}

/* Objects lie where their slab says, from whatever CPU they are touched first. */
static void child_real(void)
{
        static void *page[MANY];
        cpu_set_t set;

        check(sched_getaffinity(0, sizeof(set), &set) == 0);
        cache = kmem_cache_create("nodes", 4096, 4096, 0, NULL);
        check(cache != NULL);
        if (system_nodes() == 1) {
                puts("# skipped: this machine has one NUMA node");
                fflush(stdout);
                _exit(CHILD_SKIP);
        }
        if (zones[0].bind_error) {
                printf("# skipped: mbind is refused with error %d\n", zones[0].bind_error);
                fflush(stdout);
                _exit(CHILD_SKIP);
        }
        for (unsigned int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, &set))
                        continue;
                run_on(cpu);
                for (unsigned int i = 0; i < MANY; i++) {
                        unsigned int node = i % system_nodes();
                        int number = (int)system_node_number(node);

                        page[i] = kmem_cache_alloc_node(cache, __GFP_THISNODE, number);
                        check(page[i] && node_of(page[i]) == (int)node);
                        memset(page[i], 1, 4096);
                        check_equal(place_of(page[i]), number);
                }
                for (unsigned int i = 0; i < MANY; i++)
                        kmem_cache_free(cache, page[i]);
                /*
                 * Without a wish it is the node of this CPU, once the cached objects are used up.
                 */
                kmem_cache_shrink(cache);
                page[0] = kmem_cache_alloc(cache, 0);
                memset(page[0], 1, 4096);
                check_equal(place_of(page[0]), system_node_number(system_current_node()));
                kmem_cache_free(cache, page[0]);
                kmem_cache_shrink(cache);
        }
        kmem_cache_destroy(cache);
}

static void real_nodes(void **state)
{
        child_passes("real", "numa=auto");
        child_passes("real", "engine=slab");
}

static void wishes(void **state)
{
        child_passes("wishes", "numa_fake=2");
        child_passes("wishes", "numa_fake=4,sheaf_capacity=0");
        child_passes("wishes", "numa_fake=8,slots=locked,freeze=eager");
        child_passes("wishes", "numa_fake=4,memory_limit=1G");
        child_passes("wishes", "numa_fake=2,engine=slab");
        child_passes("wishes", "numa_fake=4,engine=slab,limit=4,noaliencache=1");
}

static void no_wish(void **state)
{
        child_passes("no_wish", "numa_fake=2");
        child_passes("no_wish", "numa_fake=4,engine=slab");
}

static void this_node_only(void **state)
{
        child_passes("this_node_only", "numa_fake=2");
        child_passes("this_node_only", "numa_fake=4,sheaf_capacity=0");
        child_passes("this_node_only", "numa_fake=2,engine=slab");
}

static void slob_ignores(void **state)
{
        child_passes("ignored", "numa_fake=4,engine=slob");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"wishes", child_wishes},
                {"no_wish", child_no_wish},
                {"this_node_only", child_this_node_only},
                {"ignored", child_ignored},
                {"ratio", child_ratio},
                {"kept", child_kept},
                {"barns", child_barns},
                {"full_node", child_full_node},
                {"two_threads", child_two_threads},
                {"fork", child_fork},
                {"numbers", child_numbers},
                {"no_numbers", child_no_numbers},
                {"off", child_off},
                {"starts", child_starts},
                {"real", child_real},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(wishes),
                cmocka_unit_test(no_wish),
                cmocka_unit_test(this_node_only),
                cmocka_unit_test(slob_ignores),
                cmocka_unit_test(other_nodes_are_searched),
                cmocka_unit_test(barns),
                cmocka_unit_test(full_node),
                cmocka_unit_test(threads_on_nodes),
                cmocka_unit_test_teardown(nodes_of_the_machine, machine_as_it_is),
                cmocka_unit_test(real_nodes),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
