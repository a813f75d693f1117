/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * mlockall(MCL_CURRENT | MCL_FUTURE): allocation goes on, and the process does not grow by the size
 * of the allocator's reserved address space or of its tables. argv[1]: most resident MiB allowed.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "churners.h"

#define BLOCKS 64
#define BLOCK_BYTES (256u << 10)

/* The VmRSS line of /proc/self/status, in KiB. */
static long resident_kib(void)
{
        char line[256];
        long kib = -1;
        FILE *status = fopen("/proc/self/status", "r");

        check(status != NULL);
        while (fgets(line, sizeof(line), status))
                if (sscanf(line, "VmRSS: %ld kB", &kib) == 1)
                        break;
        fclose(status);
        return kib;
}

int main(int argc, char **argv)
{
        struct churners churners;
        struct churn churn;
        void *blocks[BLOCKS];

        check(argc == 2);
        watchdog(120);
        first_victim();
        churn_init(&churn, 11);
        churn_run(&churn, 2000);
        check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
        churn_run(&churn, 20000);
        for (size_t i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(BLOCK_BYTES);
                check(blocks[i] != NULL);
                fill(blocks[i], BLOCK_BYTES, (unsigned char)i);
        }
        churners_start(&churners, 2);
        churn_run(&churn, 20000);
        churners_stop(&churners);
        for (size_t i = 0; i < BLOCKS; i++) {
                check(intact(blocks[i], BLOCK_BYTES, (unsigned char)i));
                free(blocks[i]);
        }
        churn_end(&churn);
        if (resident_kib() > atol(argv[1]) * 1024)
                dprintf(STDERR_FILENO, "%ld KiB resident\n", resident_kib());
        check(resident_kib() <= atol(argv[1]) * 1024);
        puts("ok");
        return 0;
}
