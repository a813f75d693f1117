/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The allocator's questions to the machine: time, CPU numbers and counts, sizes, mappings.
 * Everything else in the library reaches the operating system through these functions, so that a
 * simulator can stand behind them. None of them changes errno or allocates.
 */
#ifndef KMEM_MACHINE_SYSTEM_H
#define KMEM_MACHINE_SYSTEM_H

#include "lang/compiler.h"

enum {
        NODES_MAX = 8, /* most NUMA nodes; system_nodes() is their number */
        NODE_ANY = -1, /* no wish for a node */
};

/* Reads sizes and CPU counts; called before anything else, single-threaded. */
KMEM_HIDDEN void system_init(void);

/*
 * Data that the kernel gave the process when it began (entry.c). The value of a type of the
 * auxiliary vector, as getauxval(3) returns it; 0 if there is none.
 */
KMEM_HIDDEN unsigned long system_auxv(unsigned long type);
/* Whether the process has more rights than its caller (AT_SECURE), also if that cannot be told. */
KMEM_HIDDEN bool system_is_privileged(void);
/* environ, or its later value if libc has not set it yet; NULL if that cannot be told. */
KMEM_HIDDEN char **system_environment(void);

/* Size of the system's pages (4, 16 or 64 KiB), to which mappings and purging are rounded. */
KMEM_HIDDEN size_t system_page_bytes(void);

/* Physical memory of the machine. */
KMEM_HIDDEN size_t system_memory_bytes(void);

/* Monotonic time; the coarse clock, a few milliseconds fine, costs no system call. */
KMEM_HIDDEN uint64_t system_time_ms(void);
/* Monotonic time to the nanosecond; a dearer call. */
KMEM_HIDDEN uint64_t system_time_ns(void);

/* The time of day, in seconds since 1970. */
KMEM_HIDDEN uint64_t system_clock_seconds(void);

/*
 * Sleeps for that long, or until a signal comes: no cancellation point, unlike libc's functions.
 * Less than a second.
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
 * Reads the counts and the affinity again; true if CPUs left since the last reading: CPUs that the
 * process could run on, or a part of its quota. A single caller at a time.
 */
KMEM_HIDDEN bool system_cpus_reread(void);

/* Whether the process may run on a CPU, by its affinity when that was read last. */
KMEM_HIDDEN bool system_cpu_is_usable(unsigned int cpu);

/* Whether the machine said which CPUs are possible; otherwise the counts above are guesses. */
KMEM_HIDDEN bool system_cpus_known(void);

/* The CPU the calling thread runs on at this moment, a hint. */
KMEM_HIDDEN unsigned int system_current_cpu(void);

/*
 * Finds the machine's NUMA nodes if @real and @fake is 1; else the machine has @fake nodes, from 1
 * to NODES_MAX, and its CPUs are on them in turn. Single-threaded.
 */
KMEM_HIDDEN void system_nodes_init(bool real, unsigned int fake);

/* NUMA nodes, 1 to NODES_MAX, numbered from 0; constant from the start of the heap on. */
KMEM_HIDDEN unsigned int system_nodes(void);

/*
 * The kernel's number of a node, by which the program knows it, and the node with a given number,
 * or NODE_ANY.
 */
KMEM_HIDDEN unsigned int system_node_number(unsigned int node);
KMEM_HIDDEN int system_find_node(int number);

/* Online CPUs of a node; for a real node, as they were at the start. */
KMEM_HIDDEN unsigned int system_node_cpus(unsigned int node);

/*
 * The node that is number @step by the distance from @node: 0 is the node itself, and with all
 * steps below system_nodes() each node comes once.
 */
KMEM_HIDDEN unsigned int system_near_node(unsigned int node, unsigned int step);

/* The node of the CPU that the calling thread runs on at this moment, a hint. */
KMEM_HIDDEN unsigned int system_current_node(void);

/*
 * Starts a detached thread of our own, with all signals blocked; false if refused. Unlike the rest
 * it may allocate, so no lock may be held. This and system_threads are in thread.c.
 */
KMEM_HIDDEN bool system_start_thread(void *(*run)(void *argument));

enum threads {
        THREADS_UNKNOWN, /* libc does not say */
        THREADS_ONE,
        THREADS_MANY, /* there are other threads, or were: libc need not notice their ends */
};

/* The threads of the program, as far as libc knows them; not our threads of raw clone(2). */
KMEM_HIDDEN enum threads system_threads(void);
/* Asks the kernel if libc does not say, which takes some microseconds. */
KMEM_HIDDEN enum threads system_threads_asked(void);

/*
 * write(2) that is no cancellation point, leaves errno alone, and sends no signal if it fails.
 * Returns bytes written, or less than 0.
 */
KMEM_HIDDEN long system_write(int file, const void *text, size_t bytes);

/* Gives the calling thread a name of up to 15 characters, for people who look at the process. */
KMEM_HIDDEN void system_name_thread(const char *name);

/*
 * Sandboxes: filters of system calls (seccomp) that the program enters while it runs. They may end
 * the process for a call that libc's malloc does not make, even for the question whether there is a
 * filter.
 */

/* From now on entered sandboxes count. Called when the heap starts. */
KMEM_HIDDEN void system_watch_sandbox(void);
/*
 * The program is about to enter a sandbox: from now on nothing is asked, also in children of fork.
 */
KMEM_HIDDEN void system_tell_sandbox(void);
/* Whether system_tell_sandbox was called. Makes no system call. */
KMEM_HIDDEN bool system_sandbox_was_told(void);
/*
 * Whether system_tell_sandbox was called, or the calling thread has entered a sandbox by now, as
 * far as the question is safe.
 */
KMEM_HIDDEN bool system_entered_sandbox(void);

/* rseq(2); false if the kernel refuses. */
KMEM_HIDDEN bool system_rseq(void *area, size_t bytes, int flags, uint32_t signature);
/*
 * Lets the calling thread ask for extensions of its time slices (prctl), as far as the kernel has
 * them.
 */
KMEM_HIDDEN void system_extend_slices(void);
/* membarrier(2): 0 or an errno. */
KMEM_HIDDEN int system_membarrier(int command);
enum { SYSTEM_RELEASE_BYTES = 65 };
/* The kernel's release, as "6.12.94-amd64"; empty if it does not say. */
KMEM_HIDDEN void system_release(char release[SYSTEM_RELEASE_BYTES]);

KMEM_HIDDEN uint32_t system_process_id(void);
/*
 * The heap is this process's from now on: when it starts, and in a child of fork (@forked). A heap
 * that a child of vfork starts belongs to its parent, which claims it when the child is gone.
 */
KMEM_HIDDEN void system_claim_process(bool forked);
/* In a child of vfork when it begins, and in its parent when it is gone. */
KMEM_HIDDEN void system_lend_process(bool child);
/* Whether the caller is a child of vfork. */
KMEM_HIDDEN bool system_is_lent(void);
/* Not in a child of vfork, which runs in its parent's memory under another number. */
KMEM_HIDDEN bool system_is_own_process(void);
KMEM_HIDDEN uint32_t system_thread_id(void);
/* That without a call of the system each time. A child that is made by a bare call of the system has its parent's. */
KMEM_HIDDEN uint32_t system_thread_id_known(void);
/*
 * Whether the process still has the thread; false for 0. The word that the kernel clears at a
 * thread's end (CLONE_CHILD_CLEARTID) is cleared before it has left the process.
 */
KMEM_HIDDEN bool system_has_thread(uint32_t id);
enum { SYSTEM_NAME_BYTES = 16 };
/* The calling thread's name. */
KMEM_HIDDEN void system_thread_name(char name[SYSTEM_NAME_BYTES]);

/* Soft limit of the process's address space in bytes, SIZE_MAX if there is none. */
KMEM_HIDDEN size_t system_address_space_limit(void);

/*
 * Memory that the program locks (mlockall). Takes the flags it asked for, MCL_* or 0. If they hold
 * for memory to come, system_commit then locks memory that becomes accessible, and fails beyond the
 * limit (RLIMIT_MEMLOCK). Not in a sandbox, which may kill the process for the call. Children of
 * fork have nothing locked.
 */
KMEM_HIDDEN void system_tell_locked(int flags);
/* Whether mlockall holds for memory to come. */
KMEM_HIDDEN bool system_locks_memory(void);
/* Address space without access is no longer counted as locked. */
KMEM_HIDDEN void system_unlock(void *start, size_t bytes);
/* Soft limit of locked memory in bytes, SIZE_MAX if there is none. */
KMEM_HIDDEN size_t system_lock_limit(void);
/* All address space of the process in bytes; 0 if that cannot be told. */
KMEM_HIDDEN size_t system_mapped_bytes(void);

/* Address space without access and without commit charge; NULL if refused. */
KMEM_HIDDEN void *system_reserve(size_t bytes);
/* As system_reserve, at address @wish if there is room. */
KMEM_HIDDEN void *system_reserve_at(uintptr_t wish, size_t bytes);
/* Readable and writable zeroed memory outside the reservation; NULL if refused. */
KMEM_HIDDEN void *system_map(size_t bytes);
/* As system_map, at address @wish if there is room, and without commit charge. */
KMEM_HIDDEN void *system_map_at(uintptr_t wish, size_t bytes);
/* Whether system_map was ever refused. */
KMEM_HIDDEN bool system_map_was_refused(void);
/*
 * If the process has as many mappings as it may have, only the pages go, and the addresses are
 * lost.
 */
KMEM_HIDDEN void system_unmap(void *start, size_t bytes);
/* Moves a mapping if it must; NULL if refused, then the old mapping is untouched. */
KMEM_HIDDEN void *system_remap(void *start, size_t old_bytes, size_t new_bytes);
/*
 * From now on dumps by debuggers have the heap's reservation whole, and growth takes no call for
 * them.
 */
KMEM_HIDDEN void system_dump_reservation(void);
/*
 * For memory with single touched pages here and there: on a system that makes huge pages wherever
 * it can (transparent_hugepage/enabled is "always"), each touch would take 2 MiB.
 */
KMEM_HIDDEN void system_keep_pages_small(void *start, size_t bytes);
/* Puts address space without access in the place of mappings, whose pages go; false if refused. */
KMEM_HIDDEN bool system_retire(void *start, size_t bytes);
/* Moves pages to another mapping of ours; the old range then reads as zero. False if refused. */
KMEM_HIDDEN bool system_move(void *from, size_t bytes, void *to);
/* Memory of the library itself becomes writable, or read-only; false if refused. */
KMEM_HIDDEN bool system_make_writable(void *start, size_t bytes, bool writable);
/* Random bytes of the kernel's, up to 256. */
KMEM_HIDDEN void system_random(void *to, size_t bytes);
/* Asks for huge pages where the system makes them on request only ("madvise"). */
KMEM_HIDDEN void system_make_pages_huge(void *start, size_t bytes);
/* Makes part of a reservation readable and writable; false if refused. */
KMEM_HIDDEN bool system_commit(void *start, size_t bytes);
/*
 * Pages of the range that are touched from now on come from the node, as long as that has memory.
 * Returns 0, or an error number if the system refuses. Nothing is done on fake nodes.
 */
KMEM_HIDDEN int system_bind(void *start, size_t bytes, unsigned int node);
/* Pages that the process's threads have touched first; 0 in a sandbox. */
KMEM_HIDDEN uint64_t system_faults(void);
/*
 * Whether the eight bytes at an address, a multiple of eight, can be read. The kernel reads a set of
 * signals there before it finds that the call asks for nothing possible. No filter forbids this
 * call, which libc makes all the time; the strict mode does, and is told by prctl. Threads: any, also
 * in handlers of signals.
 */
KMEM_HIDDEN bool system_can_read(const void *address);
/*
 * Bytes of the accessible range that have pages, whole pages of the system; all of them if the system does not say.
 * The range has at most RESIDENT_MOST bytes. Not in a sandbox, which may end the process for the call.
 */
enum { RESIDENT_MOST = 1 << 20 };
KMEM_HIDDEN size_t system_resident(const void *start, size_t bytes);
/* Gives the pages back; they read as zero afterwards. False if refused. */
KMEM_HIDDEN bool system_purge(void *start, size_t bytes);
/*
 * Gives the pages of accessible memory back and makes every touch of the range a fault, without a
 * mapping of its own; false from kernels before 6.13, in a sandbox that the library was told of, and if a
 * part of the range is locked memory: then no page of it is guarded, also none that was before.
 * system_unguard takes the guards away. Both ends lie on pages of the system.
 */
KMEM_HIDDEN bool system_guard(void *start, size_t bytes);
KMEM_HIDDEN bool system_unguard(void *start, size_t bytes);
/*
 * Gives accessible memory its pages at once, which takes less than a fault for each; whatever refuses (a kernel before 5.14,
 * a sandbox that the library was told of, a limit) leaves them to faults.
 */
KMEM_HIDDEN void system_populate(void *start, size_t bytes);
/* As system_guard, with mappings of its own. system_commit makes the range accessible again. */
KMEM_HIDDEN bool system_close(void *start, size_t bytes);
/* How many mappings the process may have (vm.max_map_count). */
KMEM_HIDDEN uint64_t system_mappings_most(void);

#endif
