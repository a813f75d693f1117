/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples of a heap profile: their places in the region, their stacks, and the figures of each
 * stack in the registry. sample.h has the invariants.
 */
#include "profile/sample.h"

#include "base/depot.h"
#include "machine/probe.h"
#include "profile/draw.h"
#include "profile/live.h"
#include "profile/python.h"

#include <errno.h>

enum {
        PLACES = LIVE_ENTRIES,
        PLACE_BYTES = SAMPLE_BYTES_MAX, /* address space; only an object's own pages are touched */
        COMMIT_PLACES = 64,
        KEPT_PLACES = 16,
};

struct sample {
        uintptr_t address; /* 0: free; written under sample_lock, which sample_bytes does without */
        const struct stack *stack;
        uint64_t birth;  /* of the cache; 0: a block of pages */
        uint64_t weight; /* objects that it stands for, in 1/1024 */
        uint64_t weight_bytes;
        size_t bytes;
        uint64_t interval;   /* between samples when it became a sample */
        struct live live;    /* where others see it, if it is counted */
        uint32_t index;      /* of the cache */
        uint32_t generation; /* registry_generation when it was counted */
        uint32_t next;       /* in the free list or a bucket; under sample_lock */
        bool counted;
        bool wide; /* more than a page of the place may have been touched; belongs to the
                      sample's owner */
        bool kept; /* a free and wide entry, counted in kept_places; under sample_lock */
};

uint64_t profile_interval;
uint64_t profile_since_ms;
uint64_t profile_slices;
bool profile_in_slice;
uint64_t profile_lease_ends_ms;
void (*profile_end_lease)(void);
struct lock sample_lock;
uintptr_t sample_base;
size_t sample_region_bytes;
uint64_t sample_large_blocks;

static struct stack unknown_stack; /* no frames: walked within a walk, or no memory for it */
static struct sample *samples;     /* entry 0 is none */
static uint32_t free_entries;      /* under sample_lock, as the next variables */
static uint32_t used_entries = 1;
static uint32_t committed_entries;
static uint32_t kept_places;
KMEM_SPARSE uint32_t sample_buckets[SAMPLE_BUCKETS];

/*
 * Whether the range can be told from the heap by heap.outside. Bulk calls use that single mask to
 * tell whether all of their pointers are objects of the heap, and it covers the reservation rounded
 * up to a power of two.
 */
static bool lies_outside(uintptr_t start, size_t bytes)
{
        uintptr_t outside = load_relaxed(&heap.outside);

        return ((start - heap.base) & outside) && ((start + bytes - 1 - heap.base) & outside);
}

void *samples_reserve(size_t bytes)
{
        void *region = system_reserve(bytes);

        if (region && !lies_outside((uintptr_t)region, bytes)) {
                system_unmap(region, bytes);
                region = system_reserve_at(heap.base + ~load_relaxed(&heap.outside) + 1, bytes);
        }
        if (region && !lies_outside((uintptr_t)region, bytes)) {
                system_unmap(region, bytes);
                return NULL;
        }
        return region;
}

bool samples_init(void)
{
        char *region;

        if (samples)
                return true;
        samples = system_map((size_t)PLACES * sizeof(*samples));
        region = samples ? samples_reserve((size_t)PLACES * PLACE_BYTES) : NULL;
        if (!region) {
                if (samples)
                        system_unmap(samples, (size_t)PLACES * sizeof(*samples));
                samples = NULL;
                return false;
        }
        system_keep_pages_small(region, (size_t)PLACES * PLACE_BYTES);
        system_keep_pages_small(samples, (size_t)PLACES * sizeof(*samples));
        sample_base = (uintptr_t)region;
        /* Release: pairs with in_sample_region. */
        store_release(&sample_region_bytes, (size_t)PLACES * PLACE_BYTES);
        return true;
}

static uintptr_t place_of(uint32_t entry)
{
        return sample_base + (uintptr_t)entry * PLACE_BYTES;
}

static uint32_t take_entry_locked(void)
{
        uint32_t entry = free_entries;

        if (entry) {
                free_entries = samples[entry].next;
                kept_places -= samples[entry].kept;
                samples[entry].kept = false;
                return entry;
        }
        if (used_entries == PLACES)
                return 0;
        if (used_entries >= committed_entries) {
                uint32_t start = committed_entries;

                if (!system_commit((void *)place_of(start), (size_t)COMMIT_PLACES * PLACE_BYTES))
                        return 0;
                committed_entries = start + COMMIT_PLACES;
        }
        return used_entries++;
}

static uint32_t take_entry(void)
{
        uint32_t entry;

        lock_take(&sample_lock);
        entry = take_entry_locked();
        lock_drop(&sample_lock);
        if (!entry)
                add_relaxed(&registry_head()->samples_missed, 1);
        return entry;
}

static void give_entry(uint32_t entry)
{
        lock_take(&sample_lock);
        samples[entry].next = free_entries;
        free_entries = entry;
        lock_drop(&sample_lock);
}

/*
 * The stack's record; NULL if there is no registry, or no room in it. A child without a registry of
 * its own yet has its parent's record there, but counts in it are lost when the child makes its
 * own.
 */
static struct registry_stack *figures_of(const struct stack *stack)
{
        size_t bytes = registry_stack_bytes(stack->count);
        struct registry_stack **place = (struct registry_stack **)&stack->figures;
        struct registry_stack *figures = load_acquire(place);

        if (!registry_is_made())
                return NULL;
        if (!figures) {
                struct registry_stack *none = NULL;

                figures = registry_alloc(bytes);
                if (!figures)
                        return NULL;
                if (!compare_swap(place, &none, figures)) {
                        registry_free(figures, bytes);
                        figures = none;
                }
        }
        /* The record is new, or its place is empty in a child's registry. */
        if (load_acquire(&figures->head.kind) != RECORD_STACK) {
                uint64_t *frame = figures->frame;

                for (uint32_t i = 0; i < stack->count; i++) {
                        python_publish(stack->frame[i]);
                        store_relaxed(&frame[i], (uint64_t)stack->frame[i]);
                }
                store_relaxed(&figures->frames, stack->count);
                registry_publish(figures, RECORD_STACK, bytes);
        }
        return figures;
}

static void count_alloc(struct sample *sample)
{
        struct registry_stack *figures = figures_of(sample->stack);

        sample->generation = load_relaxed(&registry_generation);
        sample->counted = figures != NULL;
        if (!figures) {
                add_relaxed(&registry_head()->samples_missed, 1);
                return;
        }
        /* Readers read frees first, so that the difference is never below 0. */
        add_relaxed(&figures->samples, 1);
        add_relaxed(&figures->objects, sample->weight);
        add_relaxed(&figures->bytes, sample->weight_bytes);
        live_show((uint32_t)(sample - samples), &sample->live, figures, sample->weight,
                  sample->weight_bytes);
        if (load_relaxed(&profile_in_slice)) {
                add_relaxed(&figures->slice_samples, 1);
                add_relaxed(&figures->slice_objects, sample->weight);
                add_relaxed(&figures->slice_bytes, sample->weight_bytes);
        }
}

static void count_free(const struct sample *sample)
{
        struct registry_stack *figures = sample->counted ? figures_of(sample->stack) : NULL;

        /* SAMPLE-2 */
        if (!figures || sample->generation != load_relaxed(&registry_generation))
                return;
        live_hide((uint32_t)(sample - samples), &sample->live);
        if (system_time_ms() - sample->live.time_ms >= REGISTRY_OLD_MS) {
                add_relaxed(&figures->old_freed_samples, 1);
                add_relaxed(&figures->old_freed_bytes, sample->weight_bytes);
        }
        add_relaxed(&figures->freed_samples, 1);
        add_relaxed(&figures->freed_objects, sample->weight);
        add_relaxed(&figures->freed_bytes, sample->weight_bytes);
}

/* Notes the caller's stack and the weight of the sample, and counts both. */
static void describe(struct sample *sample, size_t bytes)
{
        uint64_t wanted = load_relaxed(&profile_interval);
        /* The profile may have been switched off meanwhile. */
        uint64_t interval = max_of(wanted, (uint64_t)1);
        double p = sample_probability(bytes, interval);
        uintptr_t frames[STACK_FRAMES_SAMPLE + 1 + PYTHON_FRAMES];
        unsigned int count;

        stack_prepare();
        count = stack_capture(frames, STACK_FRAMES_SAMPLE + 1);
        if (count > STACK_FRAMES_SAMPLE)
                frames[STACK_FRAMES_SAMPLE] = REGISTRY_CUT;
        if (count)
                count += python_frames(frames + count, PYTHON_FRAMES);
        sample->stack = depot_keep(frames, count);
        if (!sample->stack)
                sample->stack = &unknown_stack;
        sample->bytes = bytes;
        sample->interval = wanted;
        sample->weight = (uint64_t)(1024 / p + 0.5);
        sample->weight_bytes = (uint64_t)((double)bytes / p + 0.5);
        count_alloc(sample);
}

/*
 * The object's address in its place: not always at the start of a page, which would crowd a few
 * lines of the processor's cache.
 */
static uintptr_t object_place(const struct kmem_cache *cache, uint32_t entry)
{
        uintptr_t step = max_of((uintptr_t)cache->align, (uintptr_t)CACHE_LINE);
        uintptr_t room = PLACE_BYTES - cache->size;

        room = min_of(room, (uintptr_t)PAGE_SIZE - (cache->size & (PAGE_SIZE - 1)));
        return place_of(entry) + round_down(entry * step % (room + 1), step);
}

void *sample_alloc(struct kmem_cache *cache)
{
        int saved_errno = errno;
        uint32_t entry = take_entry();
        struct sample *sample = &samples[entry];
        uintptr_t address;

        if (!entry)
                return NULL;
        address = object_place(cache, entry);
        sample->wide |= cache->size >= PAGE_SIZE;
        sample->birth = cache->birth;
        sample->index = cache_index(cache);
        describe(sample, cache->object_size);
        lock_take(&sample_lock);
        store_relaxed(&sample->address, address);
        lock_drop(&sample_lock);
        if (cache->ctor)
                cache->ctor((void *)address);
        PROBE_OTEL3(alloc, address, sample->bytes, sample->weight_bytes);
        errno = saved_errno;
        return (void *)address;
}

static uint32_t entry_of(const void *address)
{
        return (uint32_t)(((uintptr_t)address - sample_base) / PLACE_BYTES);
}

size_t sample_bytes(const void *address)
{
        const struct sample *sample;

        if (in_guard_region(address))
                return guard_bytes(address);
        sample = &samples[entry_of(address)];
        return load_relaxed(&sample->address) == (uintptr_t)address ? sample->bytes : 0;
}

struct kmem_cache *sample_cache(const void *address)
{
        const struct sample *sample;
        struct kmem_cache *cache = NULL;

        if (in_guard_region(address))
                return guard_cache(address);
        sample = &samples[entry_of(address)];
        /* A program may ask for an object that another thread frees. */
        lock_take(&sample_lock);
        if (sample->address == (uintptr_t)address)
                cache = cache_born(sample->index, sample->birth);
        lock_drop(&sample_lock);
        return cache;
}

/*
 * Whether the place keeps its pages. The next sample takes the place that was freed last, so a few
 * places keep theirs.
 */
static bool keep_pages(struct sample *sample)
{
        bool keep;

        lock_take(&sample_lock);
        keep = kept_places < KEPT_PLACES;
        kept_places += keep;
        sample->kept = keep;
        lock_drop(&sample_lock);
        return keep;
}

/* Gives back the pages of a place, unless a system page is larger than a place. */
static void give_pages(uint32_t entry)
{
        if (system_page_bytes() <= PLACE_BYTES)
                samples[entry].wide = !system_purge((void *)place_of(entry), PLACE_BYTES);
}

/* Ends the entry's claim to an address; false if another thread has done so already. */
static bool claim(struct sample *sample, const void *address)
{
        bool ours;

        lock_take(&sample_lock);
        ours = sample->address == (uintptr_t)address;
        if (ours)
                store_relaxed(&sample->address, 0);
        lock_drop(&sample_lock);
        return ours;
}

bool sample_free(void *address, struct kmem_cache **cache)
{
        struct sample *sample;
        uint32_t entry;

        if (in_guard_region(address))
                return guard_free(address, cache);
        entry = entry_of(address);
        sample = &samples[entry];
        if (!claim(sample, address))
                return false;
        PROBE_OTEL3(free, address, sample->bytes, sample->weight_bytes);
        count_free(sample);
        *cache = sample->interval == load_relaxed(&profile_interval)
                         ? cache_born(sample->index, sample->birth)
                         : NULL;
        if (sample->wide && !keep_pages(sample))
                give_pages(entry);
        give_entry(entry);
        return true;
}

static void put_in_bucket(uint32_t entry, const void *block)
{
        lock_take(&sample_lock);
        store_relaxed(&samples[entry].address, (uintptr_t)block);
        samples[entry].next = *sample_bucket(block);
        /* Relaxed: partner is may_be_sample. The thread that frees the block has it from this one. */
        store_relaxed(sample_bucket(block), entry);
        lock_drop(&sample_lock);
        add_relaxed(&sample_large_blocks, 1);
}

bool sample_throw(const void *block, size_t bytes)
{
        uint64_t interval = load_relaxed(&profile_interval);
        struct sample *sample;
        uint32_t entry;
        int saved_errno;

        bytes = round_up(bytes, PAGE_SIZE);
        if (likely(!interval || !draw_falls(bytes, interval)))
                return false;
        saved_errno = errno;
        entry = take_entry();
        if (!entry)
                return true;
        sample = &samples[entry];
        /*
         * The sample lies elsewhere, and the pages of its place would be kept as long as it lives.
         */
        if (sample->wide)
                give_pages(entry);
        sample->birth = 0;
        sample->index = 0;
        describe(sample, bytes);
        PROBE_OTEL3(alloc, block, sample->bytes, sample->weight_bytes);
        put_in_bucket(entry, block);
        errno = saved_errno;
        return true;
}

uint32_t sample_large_take(const void *block)
{
        uint32_t *link;
        uint32_t entry;

        lock_take(&sample_lock);
        link = sample_bucket(block);
        while (*link && samples[*link].address != (uintptr_t)block)
                link = &samples[*link].next;
        entry = *link;
        if (entry) {
                store_relaxed(link, samples[entry].next);
                store_relaxed(&samples[entry].address, 0);
                sub_relaxed(&sample_large_blocks, 1);
        }
        lock_drop(&sample_lock);
        return entry;
}

void sample_large_end(uint32_t entry, const void *block, bool freed)
{
        if (!freed) {
                put_in_bucket(entry, block);
                return;
        }
        PROBE_OTEL3(free, block, samples[entry].bytes, samples[entry].weight_bytes);
        count_free(&samples[entry]);
        give_entry(entry);
}
