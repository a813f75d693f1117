/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Workloads on the simulated machine, through the library's own code: `kmem lab` runs them.
 *
 *   main.c      arguments, the run, a JSON document on standard output
 *   caches.c    the caches, and the objects of a task, a socket and a message
 *   machine.c   CPUs with clocks and run queues, tasks that run, sleep, wake others and move
 *   messages.c  hackbench: groups of senders and receivers over sockets or pipes
 *   lives.c     processes that one parent forks and reaps, and grace periods
 *   exchange.c  netperf TCP_RR and UDP_RR: a request, then an answer, in pairs of tasks
 *   packets.c   stress-ng rawpkt: packets through the loopback interface to packet sockets
 *   rings.c     rings of receive buffers, filled and freed in bulk
 *   mesh.c      every CPU hands objects to others, a share of them to another node
 *   forks.c     processes that fork, exec and exit
 *   patterns.c  pairs, bursts, hand-over and births with a task for each CPU
 *   kept.c      the free objects that CPUs and nodes keep
 *   record.c    the events of a run, as a trace file
 *
 * Time is modelled. Each CPU has a clock, which advances by the costs of the events that the
 * simulator counts, and by the costs (below) of a real kernel's other work. The CPU with the least
 * clock goes on, by a single object. Locks of lists and barns are waited for (sim_set_costs). Two runs with equal
 * arguments are equal, byte for byte.
 */
#ifndef KMEM_TOOLS_LOADS_LOADS_H
#define KMEM_TOOLS_LOADS_LOADS_H

#include "heap/heap.h"
#include "kmem.h"
#include "simulator/simulator.h"

enum {
        CACHES_MOST = 128,
        OBJECTS_MOST = 4, /* of a message */
        NAME_BYTES = 32,
        SAMPLES = 16, /* of the memory in use, over a run */
};

/* Values of NAME=VALUE arguments; main.c has their limits. */
struct settings {
        unsigned int possible; /* CPUs that the machine could have */
        unsigned int present; /* CPUs that are plugged in at boot; the others come with load_cpus */
        unsigned int boot_cpus; /* at boot; caches made `boot` see that many online */
        unsigned int load_cpus; /* during the load; the CPUs beyond boot_cpus come in between */
        unsigned int nodes;
        unsigned int groups; /* tasks that work together: hackbench's -g, or pairs of tasks */
        unsigned int pairs;  /* senders in a group, and receivers: half of hackbench's fds */
        unsigned int loops;  /* messages from each sender to each receiver; transactions; packets */
        unsigned int capacity; /* messages that a socket, or a ring, holds */
        unsigned int filled;   /* messages: percent of its capacity that a socket begins with */
        unsigned int bulk;     /* rings: objects a call */
        unsigned int pinned;   /* 1, rings: drivers and readers stand fast on CPUs of their own */
        unsigned int
                remote;    /* mesh, and rings that are pinned: percent that goes to another node */
        unsigned int skip; /* percent of the messages that are not measured */
        unsigned int seed;
        unsigned int window;     /* 1: the run ends with its measured part */
        unsigned int defaults;   /* 1: without option kernel the library's own policies hold */
        unsigned int charged;    /* 1: the objects are charged to a memory group */
        unsigned int lives;      /* 1: a parent forks and reaps the tasks of messages */
        unsigned int runs;       /* with lives: how often it does so */
        unsigned int boot_tasks; /* processes that live in the boot, all at once */
        /* Nanoseconds */
        unsigned int send_ns;
        unsigned int receive_ns;
        unsigned int wake_ns;
        unsigned int switch_ns;
        unsigned int latency_ns; /* each task that can run should run once in this time */
        unsigned int slice_ns;   /* a task runs at least that long while others wait */
        unsigned int granule_ns; /* a task that wakes replaces a task that has run longer by this */
        unsigned int cache_cpus; /* neighbours that share a cache; 0: all of a node */
        unsigned int fork_ns;
        unsigned int exit_ns;
        unsigned int grace_ns; /* from call_rcu to its call */
        const char *task;      /* columns of the table of caches; empty: none */
        const char *message;
        const char *options; /* further options, as in KMEM_OPTIONS */
        const char *trace;   /* file to write, or NULL */
};
extern struct settings settings;

/* Costs that the simulator does not count, in picoseconds. */
struct load_costs {
        uint32_t call;
        uint32_t slow_path;
        uint32_t remote_object;      /* an object that another CPU freed: its lines are there */
        uint32_t remote_object_node; /* added if that CPU is of another node */
        /* The program's own work: the receiver reads lines of an object that another CPU wrote. */
        uint32_t received_object;
        uint32_t received_object_node; /* added if that CPU is of another node */
};
extern struct load_costs load_costs;

void die(const char *what, const char *value) __attribute__((noreturn));
void *need(void *memory);

/* ---- Caches ------------------------------------------------------------------------------ */

/* When an object of a process goes back, see lives.c. */
enum freed { FREED_EXIT, FREED_EXIT_RCU, FREED_REAP, FREED_REAP_RCU };

struct kind {
        char name[NAME_BYTES];
        unsigned int size; /* bytes from one object to the next */
        bool later;        /* made after all CPUs of the boot are there */
        unsigned int boot; /* objects in use after the boot */
        enum freed freed;
        struct kmem_cache *cache;
};
extern struct kind kinds[CACHES_MOST];
extern unsigned int kind_count;

/* The objects of a task, socket or message, in the order of the table. */
struct recipe {
        unsigned int count;
        unsigned int *kinds;
};
extern struct recipe task_recipe;
extern struct recipe socket_recipe;
extern struct recipe message_recipe;

void caches_read(const char *path);
void caches_make(bool later);
void caches_shrink(void);
/* Takes the objects that a boot, and the kernel for each CPU, leaves in use. */
void caches_populate(unsigned int cpus);
void caches_populate_cpus(unsigned int from, unsigned int to);

/* Takes or gives an object on the CPU that runs, with its time. */
void *object_take(unsigned int kind);
void object_give(unsigned int kind, void *object);
/* Fetches into the cache of the real machine what giving the object back will read. */
void object_prefetch(const void *object);
/* Whether the object's memory is of another node than the CPU that runs. */
bool object_is_distant(unsigned int kind, const void *object);
/* Takes or gives @count objects in a single call. */
void objects_take_bulk(unsigned int kind, unsigned int count, void **objects);
void objects_give_bulk(unsigned int kind, unsigned int count, void **objects);
void recipe_take(const struct recipe *recipe, void **objects);
void recipe_give(const struct recipe *recipe, void **objects);

struct object_counts {
        uint64_t calls;
        uint64_t remote_objects; /* taken by a CPU after another gave them back */
        uint64_t remote_objects_node;
        uint64_t received_objects; /* given back by another CPU than took them */
        uint64_t received_objects_node;
        uint64_t distant_objects; /* mesh: taken by a CPU of another node than their memory's */
        uint64_t live_bytes;      /* strides of the objects in use */
};
extern struct object_counts object_counts;

/* ---- Machine ----------------------------------------------------------------------------- */

enum task_result {
        TASK_GOES_ON,
        TASK_SLEEPS, /* until machine_wake */
        TASK_YIELDS, /* to the end of the queue */
        TASK_ENDS,
};

struct task {
        struct task *next; /* in a run queue, or in a list of the load's while it sleeps */
        uint64_t ran;      /* for the scheduler: how long it ran, among the tasks of its CPU */
        uint64_t woken_at; /* for the scheduler: clock of the CPU that woke it */
        uint16_t cpu;      /* where it runs, or ran last */
        bool sleeps;
        bool pinned;     /* it runs on its CPU only */
        uint8_t phase;   /* of its work; for the load */
        uint32_t number; /* for the load */
        /* Does the work of a single object on the CPU that is set. */
        enum task_result (*step)(struct task *task);
};

void machine_start(void);
/* A new task on a CPU; it is asleep until it is woken. */
void machine_add(struct task *task, unsigned int cpu);
/* The CPU on which fork starts a task: one with the fewest tasks that started there, by chance. */
unsigned int machine_fork_cpu(void);
/* Wakes a task from the CPU that runs. */
void machine_wake(struct task *task);
/* Adds the time of a real kernel's work. */
void machine_spend(unsigned int nanoseconds);
/* Goes on until all tasks sleep or have ended, or machine_stop was called. */
void machine_run(void);
void machine_stop(void);
/* The latest clock. */
uint64_t machine_time(void);
/* Time that all CPUs ran tasks or switched between them, in picoseconds. */
uint64_t machine_busy(void);
/* A number below @limit; runs with the same seed get the same numbers. */
unsigned int pick(unsigned int limit);

/* ---- Lives ------------------------------------------------------------------------------- */

struct lives_of {
        void (*fork)(unsigned int number);      /* takes the objects of a task, and adds it */
        void **(*objects)(unsigned int number); /* those of task_recipe */
        void (*begin)(void);                    /* wakes all tasks */
        void (*renew)(void);                    /* makes them ready for another run */
};

/* The processes of the boot come and go, on CPUs by chance. */
void lives_boot(void);
/* Forks @count tasks; all of them sleep then. @messages is how many will be passed. */
void lives_start(const struct lives_of *of, unsigned int count, uint64_t messages);
/* Gives back what the CPU that runs had to keep for a grace period. */
void lives_collect(void);
/* A task ends on the CPU that runs. */
void lives_end(const struct task *task);
/* Gives back objects that tasks shared. */
void lives_give(const struct recipe *recipe, void **objects);
/* A message came through. */
void lives_message(void);
/* Ends all grace periods. */
void lives_finish(void);
/* Prints the samples of the memory. */
void lives_print(void);

/* ---- Loads ------------------------------------------------------------------------------- */

struct load {
        const char *name;
        void (*start)(void);
        uint64_t (*messages)(void); /* how many there will be */
        void (*finish)(void);       /* gives back what the tasks hold */
};
extern const struct load messages_load;
extern const struct load exchange_load;
extern const struct load packets_load;
extern const struct load rings_load;
extern const struct load mesh_load;
extern const struct load forks_load;
extern const struct load pairs_load;
extern const struct load bursts_load;
extern const struct load handed_load;
extern const struct load random_load;
extern const struct load births_load;

/* main.c: counts messages that came through. */
void load_count(unsigned int messages);
uint64_t load_slab_kib(void);

/* kept.c: bytes of free objects, added up over samples. */
struct kept {
        uint64_t cpu_sheaves; /* in main and spare sheaves */
        uint64_t barns;
        uint64_t partial; /* in slabs on the lists of nodes */
        uint64_t arrays;  /* the sheaves themselves */
};
void kept_add(struct kept *kept);
/* Prints the mean of @samples. */
void kept_print(const struct kept *kept, uint64_t samples);

/* record.c */
void record_open(void);
void record_event(bool free, unsigned int kind, const void *object);
void record_thread(uint32_t thread);
void record_close(void);

#endif
