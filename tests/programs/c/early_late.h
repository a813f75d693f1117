/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Objects that live from a stage of a program's life to a later stage. */
#ifndef EARLY_LATE_H
#define EARLY_LATE_H

#include "check.h"

#define STAGE_OBJECTS 40

struct stage {
        unsigned char *objects[STAGE_OBJECTS];
};

static inline size_t stage_bytes(size_t index)
{
        return index * index * 3 + 1;
}

static inline void stage_allocate(struct stage *stage)
{
        for (size_t i = 0; i < STAGE_OBJECTS; i++) {
                stage->objects[i] = (unsigned char *)calloc(1, stage_bytes(i));
                check(stage->objects[i] != NULL);
                check(intact(stage->objects[i], stage_bytes(i), 0));
                fill(stage->objects[i], stage_bytes(i), (unsigned char)i);
        }
}

static inline void stage_free(struct stage *stage)
{
        for (size_t i = 0; i < STAGE_OBJECTS; i++) {
                check(stage->objects[i] != NULL);
                check(intact(stage->objects[i], stage_bytes(i), (unsigned char)i));
                free(stage->objects[i]);
                stage->objects[i] = NULL;
        }
}

/* The work of every stage: objects of its own, and an object kept for a later stage. */
static inline void stage_run(struct stage *kept)
{
        struct stage own;

        stage_allocate(&own);
        stage_allocate(kept);
        stage_free(&own);
}

static inline void stage_report(const char *name)
{
        ssize_t written = write(STDOUT_FILENO, name, strlen(name));

        check(written == (ssize_t)strlen(name));
}

/* In the library: allocated by its first constructor, freed by its last destructor. */
struct stage *library_stage(void);

#endif
