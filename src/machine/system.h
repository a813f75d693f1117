/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the allocator asks of the machine: time, CPU numbers and counts, sizes, mappings.
 * Everything else in the library reaches the operating system through these functions, so
 * that a simulator can stand behind them. None of them changes errno or allocates.
 */
#ifndef KMEM_MACHINE_SYSTEM_H
#define KMEM_MACHINE_SYSTEM_H

#include "lang/compiler.h"

enum {
        NODES_MAX = 8, /* NUMA nodes that there may be; how many there are says system_nodes() */
        NODE_ANY = -1, /* no wish for a node */
};

/* Reads sizes and CPU counts; called before anything else, single-threaded. */
KMEM_HIDDEN void system_init(void);

/*
 * What the kernel told the process when it began (entry.c). The value of a type of the auxiliary vector, as
 * getauxval(3) has it; 0 if there is none.
 */
KMEM_HIDDEN unsigned long system_auxv(unsigned long type);
/* Whether the process has more rights than its caller (AT_SECURE), also if that cannot be told. */
KMEM_HIDDEN bool system_is_privileged(void);
/* environ, or what it is going to be if libc has not set it yet; NULL if that cannot be told. */
KMEM_HIDDEN char **system_environment(void);

/* Size of the system's pages (4, 16 or 64 KiB): what mappings and purging are rounded to. */
KMEM_HIDDEN size_t system_page_bytes(void);

/* Physical memory of the machine. */
KMEM_HIDDEN size_t system_memory_bytes(void);

/* Monotonic time; the coarse clock, a few milliseconds fine, costs no system call. */
KMEM_HIDDEN uint64_t system_time_ms(void);
/* The same to the nanosecond, and dearer. */
KMEM_HIDDEN uint64_t system_time_ns(void);

/*
 * Sleeps for that long, or until a signal comes: no cancellation point, unlike libc's functions. Less than
 * a second.
 */
KMEM_HIDDEN void system_sleep_ns(long nanoseconds);

enum cpu_count {
        CPUS_USABLE, /* affinity mask and cgroup quota, whichever is less */
        CPUS_ONLINE,
        CPUS_PRESENT,  /* with the rule of S3-12: 1 is not trusted, then possible */
        CPUS_POSSIBLE, /* highest possible CPU number + 1, the kernel's nr_cpu_ids */
};

/* At least 1, as read last. CPUS_POSSIBLE is constant after system_init. */
KMEM_HIDDEN unsigned int system_cpus(enum cpu_count which);

/*
 * Reads the counts and the affinity again; true if CPUs left since they were read last: some that
 * the process could run on, or some of its quota. One caller at a time.
 */
KMEM_HIDDEN bool system_cpus_reread(void);

/* Whether the process may run on a CPU, by its affinity when that was read last. */
KMEM_HIDDEN bool system_cpu_is_usable(unsigned int cpu);

/* Whether the machine said which CPUs are possible; otherwise the counts above are guesses. */
KMEM_HIDDEN bool system_cpus_known(void);

/* The CPU the calling thread runs on at this moment, a hint. */
KMEM_HIDDEN unsigned int system_current_cpu(void);

/*
 * Finds the machine's NUMA nodes if @real and @fake is 1; else the machine has @fake nodes, from 1 to
 * NODES_MAX, and its CPUs are on them in turn. Single-threaded.
 */
KMEM_HIDDEN void system_nodes_init(bool real, unsigned int fake);

/* NUMA nodes, 1 to NODES_MAX, numbered from 0; constant from the start of the heap on. */
KMEM_HIDDEN unsigned int system_nodes(void);

/*
 * The kernel's number of a node, by which the program knows it, and the node with such a number,
 * or NODE_ANY.
 */
KMEM_HIDDEN unsigned int system_node_number(unsigned int node);
KMEM_HIDDEN int system_find_node(int number);

/* Online CPUs of a node, those of the start if it is a real one. */
KMEM_HIDDEN unsigned int system_node_cpus(unsigned int node);

/*
 * The node that is number @step by the distance from @node: 0 is the node itself, and with all
 * steps below system_nodes() each comes once.
 */
KMEM_HIDDEN unsigned int system_near_node(unsigned int node, unsigned int step);

/* The node of the CPU that the calling thread runs on at this moment, a hint. */
KMEM_HIDDEN unsigned int system_current_node(void);

/*
 * Starts a detached thread of our own, with all signals blocked; false if refused. Unlike the rest it
 * may allocate, so no lock may be held. This and system_threads are in thread.c.
 */
KMEM_HIDDEN bool system_start_thread(void *(*run)(void *argument));

enum threads {
        THREADS_UNKNOWN, /* libc does not say */
        THREADS_ONE,
        THREADS_MANY, /* there are, or were: libc need not notice when the others have ended */
};

/* The threads of the program, as far as libc knows them; not ours of raw clone(2). */
KMEM_HIDDEN enum threads system_threads(void);

/*
 * write(2) that is no cancellation point and leaves errno alone. Returns bytes written, or
 * less than 0.
 */
KMEM_HIDDEN long system_write(int file, const void *text, size_t bytes);

/* Gives the calling thread a name of up to 15 characters, for who looks at the process. */
KMEM_HIDDEN void system_name_thread(const char *name);

/*
 * Sandboxes: filters of system calls (seccomp) that the program enters while it runs. They may end the
 * process for a call that libc's malloc does not make, also for the question whether there is one.
 */

/* From now on it counts what is entered. When the heap starts. */
KMEM_HIDDEN void system_watch_sandbox(void);
/* The program is about to enter one: nothing is asked any more. For good, also in children of fork. */
KMEM_HIDDEN void system_tell_sandbox(void);
/* Makes no system call. */
KMEM_HIDDEN bool system_sandbox_was_told(void);
/* Told, or the calling thread is in one by now, as far as one may ask. */
KMEM_HIDDEN bool system_entered_sandbox(void);

/* rseq(2); false if the kernel refuses. */
KMEM_HIDDEN bool system_rseq(void *area, size_t bytes, int flags, uint32_t signature);
/* Lets the calling thread ask for extensions of its time slices (prctl), as far as the kernel has them. */
KMEM_HIDDEN void system_extend_slices(void);
/* membarrier(2): 0 or an errno. */
KMEM_HIDDEN int system_membarrier(int command);
enum { SYSTEM_RELEASE_BYTES = 65 };
/* The kernel's release, as "6.12.94-amd64"; empty if it does not say. */
KMEM_HIDDEN void system_release(char release[SYSTEM_RELEASE_BYTES]);

KMEM_HIDDEN uint32_t system_process_id(void);
/*
 * The heap is this process's from now on: when it starts, and in a child of fork (@forked). One that a
 * child of vfork starts is its parent's, who claims it when the child is gone.
 */
KMEM_HIDDEN void system_claim_process(bool forked);
/* In a child of vfork when it begins, and in its parent when it is gone. */
KMEM_HIDDEN void system_lend_process(bool child);
/* Whether the caller is such a child. */
KMEM_HIDDEN bool system_is_lent(void);
/* Not in a child of vfork, which runs in its parent's memory under another number. */
KMEM_HIDDEN bool system_is_own_process(void);
KMEM_HIDDEN uint32_t system_thread_id(void);
/*
 * Whether the process still has that thread; not if it is 0. The word that the kernel clears at a thread's
 * end (CLONE_CHILD_CLEARTID) is cleared before it has left the process.
 */
KMEM_HIDDEN bool system_has_thread(uint32_t id);
enum { SYSTEM_NAME_BYTES = 16 };
/* The calling thread's name. */
KMEM_HIDDEN void system_thread_name(char name[SYSTEM_NAME_BYTES]);

/* Soft limit of the process's address space in bytes, SIZE_MAX if there is none. */
KMEM_HIDDEN size_t system_address_space_limit(void);

/*
 * Memory that the program locks (mlockall). Tells what it asked for, MCL_* or 0: system_commit then locks
 * what becomes accessible, if that holds for memory to come, and fails beyond the limit (RLIMIT_MEMLOCK).
 * Not in a sandbox, which may kill for it. Children of fork have nothing locked.
 */
KMEM_HIDDEN void system_tell_locked(int flags);
/* Whether that holds for memory to come. */
KMEM_HIDDEN bool system_locks_memory(void);
/* Address space without access is no longer counted as locked. */
KMEM_HIDDEN void system_unlock(void *start, size_t bytes);
/* Soft limit of locked memory in bytes, SIZE_MAX if there is none. */
KMEM_HIDDEN size_t system_lock_limit(void);
/* All address space of the process in bytes; 0 if that cannot be told. */
KMEM_HIDDEN size_t system_mapped_bytes(void);

/* Address space without access and without commit charge; NULL if refused. */
KMEM_HIDDEN void *system_reserve(size_t bytes);
/* The same, at an address if there is room. */
KMEM_HIDDEN void *system_reserve_at(uintptr_t wish, size_t bytes);
/* Readable and writable zeroed memory outside the reservation; NULL if refused. */
KMEM_HIDDEN void *system_map(size_t bytes);
/* Whether that ever happened. */
KMEM_HIDDEN bool system_map_was_refused(void);
/* If the process has as many mappings as it may have, only the pages go, and the addresses are lost. */
KMEM_HIDDEN void system_unmap(void *start, size_t bytes);
/* Moves a mapping if it must; NULL if refused, then the old one is untouched. */
KMEM_HIDDEN void *system_remap(void *start, size_t old_bytes, size_t new_bytes);
/* From now on dumps by debuggers have the heap's reservation whole, and growth takes no call for them. */
KMEM_HIDDEN void system_dump_reservation(void);
/*
 * For memory of which single pages are touched, here and there: where the system makes huge pages of
 * whatever it can (transparent_hugepage/enabled is "always"), each touch would take 2 MiB.
 */
KMEM_HIDDEN void system_keep_pages_small(void *start, size_t bytes);
/* Makes part of a reservation readable and writable; false if refused. */
KMEM_HIDDEN bool system_commit(void *start, size_t bytes);
/*
 * Pages of the range that are touched from now on come from the node, as long as that has memory.
 * Returns 0, or an error number if the system refuses. Nothing is done on fake nodes.
 */
KMEM_HIDDEN int system_bind(void *start, size_t bytes, unsigned int node);
/* Gives the pages back; they read as zero afterwards. False if refused. */
KMEM_HIDDEN bool system_purge(void *start, size_t bytes);

#endif
