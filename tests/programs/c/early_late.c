/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Allocates and frees in every stage of a program's life: preinit, constructors, main, a thread's
 * destructors of thread-specific data, atexit handlers and destructors. Late stages free objects of
 * early stages.
 */
#include <pthread.h>

#include "early_late.h"

static struct stage from_preinit, from_constructor, from_main;
static pthread_key_t key;

static void preinit(int argc, char **argv, char **environment)
{
        (void)argc;
        (void)argv;
        (void)environment;
        stage_run(&from_preinit);
        stage_report("preinit\n");
}

__attribute__((section(".preinit_array"),
               used)) static void (*const preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor(101))) static void constructor(void)
{
        stage_run(&from_constructor);
        stage_report("constructor\n");
}

__attribute__((destructor(101))) static void destructor(void)
{
        stage_free(&from_constructor);
        stage_report("destructor\n");
}

static void at_exit(void)
{
        struct stage own;

        stage_allocate(&own);
        stage_free(&from_preinit);
        stage_free(&from_main);
        stage_free(&own);
        stage_report("atexit\n");
}

static void thread_data_destructor(void *data)
{
        struct stage *stage = data;
        struct stage own;

        stage_allocate(&own);
        stage_free(stage);
        stage_free(&own);
        free(stage);
        stage_report("thread-specific destructor\n");
}

static void *thread(void *unused)
{
        struct stage *stage = malloc(sizeof(*stage));

        (void)unused;
        check(stage != NULL);
        stage_allocate(stage);
        check(pthread_setspecific(key, stage) == 0);
        return NULL;
}

int main(void)
{
        pthread_t other;

        watchdog(60);
        check(atexit(at_exit) == 0);
        check(pthread_key_create(&key, thread_data_destructor) == 0);
        check(pthread_create(&other, NULL, thread, NULL) == 0);
        check(pthread_join(other, NULL) == 0);
        stage_run(&from_main);
        /* The library's objects survive until its destructor: replace them from here. */
        stage_free(library_stage());
        stage_allocate(library_stage());
        stage_report("main\n");
        return 0;
}
