/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * break_rseq FAULT: breaks one of the rules of restartable sequences that follow_rseq holds programs to, so
 * that a test can tell whether it does. Needs a libc that registers the first thread.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>

#include "check.h"

enum { UNREGISTER = 1, SIGNATURE = 0x53053053, AREA_BYTES = 32, LONGER_BYTES = 64 };
enum { CPU_ID_START, CPU_ID, RSEQ_CS, NODE_ID = 5, MM_CID }; /* in words of an area */

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static volatile uint32_t *area;

static long register_with(size_t bytes, int flags)
{
        return syscall(SYS_rseq, area, bytes, flags, SIGNATURE);
}

static void store(int word)
{
        area[word] = area[word];
}

/* The fault of a child of vfork, if that child is the one to break the rule. */
static __attribute__((noinline)) void run_child(const char *fault)
{
        pid_t child = vfork();

        check(child >= 0);
        if (child == 0) {
                if (strcmp(fault, "child registers") == 0)
                        check(register_with(AREA_BYTES, 0) == 0);
                if (strcmp(fault, "child stores") == 0)
                        store(CPU_ID);
                if (strcmp(fault, "child begins") == 0)
                        store(RSEQ_CS);
                _exit(0);
        }
        wait_for(child);
}

static void unregister(void)
{
        check(register_with(AREA_BYTES, UNREGISTER) == 0);
}

int main(int count, char **arguments)
{
        static const char *const fields[] = {[CPU_ID_START] = "cpu_id_start",
                                             [CPU_ID] = "cpu_id",
                                             [NODE_ID] = "node_id",
                                             [MM_CID] = "mm_cid"};
        const char *fault = count == 2 ? arguments[1] : "";

        if (!&__rseq_size || __rseq_size == 0) {
                puts("libc registers no restartable sequences");
                return 77;
        }
        area = (volatile uint32_t *)((char *)__builtin_thread_pointer() + __rseq_offset);
        for (int word = 0; word <= MM_CID; word++)
                if (fields[word] && strcmp(fault, fields[word]) == 0)
                        store(word);
        run_child(fault);
        if (strcmp(fault, "unregisters longer") == 0)
                check(register_with(LONGER_BYTES, UNREGISTER) != 0);
        if (strcmp(fault, "registers longer") == 0) {
                unregister();
                register_with(LONGER_BYTES, 0);
        }
        if (strcmp(fault, "stays unregistered") == 0)
                unregister();
        /* No fault. */
        store(RSEQ_CS);
        if (strcmp(fault, "registers again") == 0) {
                unregister();
                store(CPU_ID);
                check(register_with(AREA_BYTES, 0) == 0);
        }
        puts("ok");
        return 0;
}
