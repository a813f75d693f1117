/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program in C that loads a plug-in in C++ (argv[1], plugin.cpp) as python3 does its modules. */
#include <dlfcn.h>

#include "check.h"

int main(int argc, char **argv)
{
        void (*run_out_of_memory)(void);
        void *plugin;

        check(argc == 2);
        watchdog(60);
        plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        check(plugin != NULL);
        run_out_of_memory = (void (*)(void))dlsym(plugin, "plugin_runs_out_of_memory");
        check(run_out_of_memory != NULL);
        run_out_of_memory();
        check(dlclose(plugin) == 0);
        puts("ok");
        return 0;
}
