/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * server: connections that outlive the threads which serve them. A table of
 * objects goes from thread to thread: each replaces objects at random places,
 * starts its successor and ends. Four frees of five are of objects that a
 * thread now gone has made.
 *
 * delete=sized|unsized  operator delete with or without the object's size
 *
 * There are `threads` tables, each with one thread at a time; run it with few
 * threads and with four times as many as CPUs.
 *
 * Sizes: 16 to 512 bytes, uniform. Lifetimes: geometric, 20,000 replacements on
 * average; a thread makes 10,000. Peak: 20,000 objects, 5 MiB a table.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "workload.h"

#include <new>
#include <semaphore.h>

namespace
{

constexpr size_t LIVE = 20000;
constexpr uint64_t REPLACEMENTS = 25000000;
constexpr uint64_t REPLACEMENTS_A_THREAD = 10000;
constexpr size_t BYTES_MAX = 512;

enum { SIZED, UNSIZED };

workload_choice choices[] = {{"delete", {"sized", "unsized"}, SIZED}};
sem_t tables_done;

/* A thread's while it serves, then its successor's: pthread_create hands it over. */
struct table {
        worker owner;
        uint64_t remaining; /* replacements */
        void *objects[LIVE];
};

void *object_new(table *table)
{
        size_t bytes = BLOCK_BYTES_MIN +
                       random_below(&table->owner.random, BYTES_MAX - BLOCK_BYTES_MIN + 1);

        return block_write(&table->owner, ::operator new(bytes, std::nothrow), bytes);
}

void object_delete(table *table, void *object)
{
        size_t bytes = block_read(&table->owner, object);

        if (choices[0].chosen == SIZED)
                ::operator delete(object, bytes);
        else
                ::operator delete(object);
}

void *serve(void *argument)
{
        table *table = static_cast<struct table *>(argument);
        uint64_t replacements = table->remaining;
        pthread_t successor;

        if (!replacements) {
                sem_post(&tables_done);
                return nullptr;
        }
        if (replacements > REPLACEMENTS_A_THREAD)
                replacements = REPLACEMENTS_A_THREAD;
        table->remaining -= replacements;
        while (replacements--) {
                size_t place = random_below(&table->owner.random, LIVE);

                object_delete(table, table->objects[place]);
                table->objects[place] = object_new(table);
        }
        thread_start(table->owner.workload, &successor, serve, table);
        pthread_detach(successor);
        return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
        workload workload = workload_init("server", argc, argv, choices, 1);
        table *tables =
                static_cast<table *>(table_new(&workload, workload.threads, sizeof(*tables)));
        worker sum;

        workload_refuse_progress(&workload);
        worker_init(&sum, &workload, 0);
        sem_init(&tables_done, 0, 0);
        for (unsigned int i = 0; i < workload.threads; i++) {
                table *table = &tables[i];

                worker_init(&table->owner, &workload, i);
                table->remaining = workload_share(&workload, REPLACEMENTS);
                for (void *&object : table->objects)
                        object = object_new(table);
        }
        for (unsigned int i = 0; i < workload.threads; i++) {
                pthread_t thread;

                thread_start(&workload, &thread, serve, &tables[i]);
                pthread_detach(thread);
        }
        for (unsigned int i = 0; i < workload.threads; i++)
                while (sem_wait(&tables_done))
                        ;
        for (unsigned int i = 0; i < workload.threads; i++) {
                for (void *object : tables[i].objects)
                        object_delete(&tables[i], object);
                worker_add(&sum, &tables[i].owner);
        }
        free(tables);
        return workload_finish(&workload, &sum, choices, 1);
}
