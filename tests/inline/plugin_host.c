/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Opens a library with inlined sequences, runs them and closes it. At the next interrupt of a
 * thread, the kernel looks at the descriptor of its last sequence, so the library must still be
 * there: this program is interrupted a thousand times.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <kmem.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile sig_atomic_t interrupts;

static void count_interrupt(int number)
{
        interrupts++;
}

int main(int argc, char **argv)
{
        const struct itimerval often = {.it_interval = {.tv_usec = 200},
                                        .it_value = {.tv_usec = 200}};
        struct kmem_cache *cache = kmem_cache_create("plugin", 64, 0, 0, NULL);
        void (*run_pairs)(struct kmem_cache * cache, unsigned int count);
        void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

        if (!cache || !plugin) {
                fprintf(stderr, "cannot open: %s\n", argc > 1 ? dlerror() : "no name");
                return 1;
        }
        *(void **)&run_pairs = dlsym(plugin, "run_pairs");
        run_pairs(cache, 1000);
        if (dlclose(plugin)) {
                fprintf(stderr, "cannot close: %s\n", dlerror());
                return 1;
        }
        signal(SIGALRM, count_interrupt);
        setitimer(ITIMER_REAL, &often, NULL);
        while (interrupts < 1000)
                ;
        puts(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? "kept" : "gone");
        return 0;
}
