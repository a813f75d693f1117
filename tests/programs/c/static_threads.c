/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Linked with -static and libkmem.a: malloc is libkmem's, with threads and fork. kfree takes blocks
 * that libc's own functions allocated, which only works if they call libkmem.
 */
#define _GNU_SOURCE
#include <sys/wait.h>

#include <kmem.h>

#include "churners.h"

#define FORKS 20

/*
 * Lies between variables of the library, and is larger than the room that its own thread has beside
 * each.
 */
static _Thread_local char large[1 << 20];

static void child(struct churn *churn)
{
        struct churners churners;

        watchdog(60);
        churn_run(churn, 500);
        churners_start(&churners, 2);
        churn_run(churn, 500);
        churners_stop(&churners);
        churn_end(churn);
        exit(0);
}

int main(void)
{
        struct churners churners;
        struct churn churn;
        char *line = NULL;
        int status;

        watchdog(120);
        *(char *)opaque(large) = 1;
        churners_start(&churners, 4);
        churn_init(&churn, 21);
        churn_run(&churn, 2000);
        for (int round = 0; round < FORKS; round++) {
                pid_t next = fork();

                check(next >= 0);
                if (next == 0)
                        child(&churn);
                check(waitpid(next, &status, 0) == next && status == 0);
                churn_run(&churn, 200);
        }
        check(asprintf(&line, "%d children", FORKS) > 0);
        check(ksize(line) >= strlen(line) + 1);
        kfree(opaque(line));
        free(opaque(kmalloc(100, GFP_KERNEL)));
        churn_end(&churn);
        churners_stop(&churners);
        puts("ok");
        return 0;
}
