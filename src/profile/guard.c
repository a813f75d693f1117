/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Places of sampled guards: their pages, their objects, and what a fault in them means (guard.h). */
#include "profile/guard.h"

#include "machine/fault.h"
#include "machine/message.h"
#include "machine/system.h"
#include "profile/draw.h"
#include "profile/sample.h"

#include <errno.h>
#include <string.h>

enum {
        PLACES_MOST = 4096,
        PLACES_LEAST = 64, /* fewer would find nothing */
        COMMIT_PLACES = 64,
        QUARANTINE_LEAST = 1024,
        GUARD_SHARE = 64,
        GUARD_PAGES_LEAST = 128,
        STACK_LEAST = 16, /* guards that every call stack may have */
        STACKS = 1024,    /* counts of live guards, by the hash of their stack */
        SLACK_BYTES = 64,
        AT_START = 4, /* one object in so many begins where its pages begin */
        FILL = 0xa7,
        MARKS_LOST = 4, /* frees of which one leaves no mark */
};

struct guard_figures guard_figures;
struct lock guard_lock;
uint32_t guard_rate_of_new;
uint32_t guard_gate_rate;
uintptr_t guard_base;
size_t guard_region_bytes;

static struct guard *guards;  /* entry 0 is none */
static size_t place_bytes;    /* constant once there is a region, as the next */
static uint32_t places;       /* entries with a place */
static bool are_mapped;       /* new places have guards that are mappings; under guard_lock */
static uint32_t used = 1;     /* under guard_lock, as the next variables */
static uint32_t committed;    /* places whose pages may be touched where there is no guard */
static uint32_t oldest_freed; /* freed places, in the order of their frees */
static uint32_t newest_freed;
static uint32_t freed_count;
static uint64_t live_pages; /* of the system */
static uint64_t pages_most; /* live_pages that vm.max_map_count lets have */
static uint16_t live_of_stack[STACKS];

static size_t bytes_of_place(void)
{
        size_t page = system_page_bytes();

        return round_up((size_t)SAMPLE_BYTES_MAX, page) + 2 * page;
}

static uintptr_t place_of(uint32_t entry)
{
        return guard_base + (uintptr_t)entry * place_bytes;
}

/* The first of the pages that an object of the place may have. */
static uintptr_t pages_of(uint32_t entry)
{
        return place_of(entry) + system_page_bytes();
}

static uint32_t entry_of(uintptr_t address)
{
        return (uint32_t)((address - guard_base) / place_bytes);
}

void guards_show(void)
{
        registry_show(&registry_head()->guards_made, &guard_figures.made);
        registry_show(&registry_head()->guards_live, &guard_figures.live);
        registry_show(&registry_head()->guards_missed, &guard_figures.missed);
        registry_show(&registry_head()->guard_faults, &guard_figures.faults);
}

static void show_figures(void)
{
        fence_behind_change();
        if (registry_head_shown())
                guards_show();
}

void guard_note_rate(uint32_t rate)
{
        uint32_t lowest = load_relaxed(&guard_gate_rate);

        if (rate && (!lowest || rate < lowest))
                store_relaxed(&guard_gate_rate, rate);
}

/* The child's figures are its own; the guards that it has inherited are live in it. */
void guards_fork_child(void)
{
        store_relaxed(&guard_figures.made, (uint64_t)0);
        store_relaxed(&guard_figures.missed, (uint64_t)0);
        store_relaxed(&guard_figures.faults, (uint64_t)0);
        guard_report_fork_child();
}

/* ---- What a fault means -------------------------------------------------------------------------- */

static void judge(uint32_t entry, const struct fault *fault, struct guard_event *event)
{
        const struct guard *guard = &guards[entry];
        uint32_t state = load_acquire(&guard->state);

        if (!entry || state == GUARD_UNUSED)
                return;
        event->guard = guard;
        if (state == GUARD_FREED) {
                event->fault = GUARD_USE_AFTER_FREE;
                event->distance = fault->address - guard->address;
        } else if (fault->address < guard->address) {
                event->fault = GUARD_UNDERFLOW;
                event->distance = guard->address - fault->address;
        } else {
                event->fault = GUARD_OVERFLOW;
                event->distance = fault->address - guard->address - guard->bytes + 1;
        }
}

static void look(const struct fault *fault)
{
        static const char *const names[] = {
                [FAULT_ACCESS] = "an access",
                [FAULT_READ] = "a read",
                [FAULT_WRITE] = "a write",
        };
        struct guard_event event = {
                .fault = GUARD_NO_OBJECT,
                .address = fault->address,
                .access = names[fault->access],
                .instruction = fault->instruction,
        };

        if (!in_guard_region((void *)fault->address))
                return;
        judge(entry_of(fault->address), fault, &event);
        /* An instruction that the program's handler lets fault again is reported once. */
        if (event.guard) {
                if (__atomic_exchange_n(&guards[entry_of(fault->address)].told, true,
                                        __ATOMIC_RELAXED))
                        return;
        }
        guard_report(&event);
        show_figures();
}

/* ---- The region ---------------------------------------------------------------------------------- */

bool guards_init(void)
{
        uint32_t count = PLACES_MOST;
        void *region = NULL;

        if (guards)
                return true;
        if (system_sandbox_was_told())
                return false;
        /* A program with little address space gets fewer places. */
        while (!region && count >= PLACES_LEAST) {
                region = samples_reserve(count * bytes_of_place());
                count = region ? count : count / 4;
        }
        guards = region ? system_map(count * sizeof(*guards)) : NULL;
        if (!guards) {
                if (region)
                        system_unmap(region, (size_t)count * bytes_of_place());
                return false;
        }
        place_bytes = bytes_of_place();
        places = count;
        /* A guard with mappings needs two; the program keeps fifteen of sixteen. */
        pages_most = system_mappings_most() / 32;
        system_keep_pages_small(region, count * place_bytes);
        guard_base = (uintptr_t)region;
        /* Release: pairs with in_guard_region. */
        store_release(&guard_region_bytes, count * place_bytes);
        if (!fault_watch(look))
                message("guard_sampling: the kernel refuses a handler of SIGSEGV; faults end the "
                        "process without a report");
        return true;
}

/* Makes more places with guards in them, unless guards have to be mappings. */
static void commit_locked(void)
{
        uint32_t count = min_of(places - committed, (uint32_t)COMMIT_PLACES);
        void *start = (void *)place_of(committed);

        if (are_mapped)
                return;
        store_relaxed(&are_mapped, !system_commit(start, count * place_bytes));
        if (!are_mapped && !system_guard(start, count * place_bytes)) {
                store_relaxed(&are_mapped, true);
                system_close(start, count * place_bytes);
        }
        committed += count;
}

/* Pages that live guards may have (GUARD-4). */
static uint64_t pages_allowed(void)
{
        uint64_t pages = load_relaxed(&heap.accessible_bytes) / system_page_bytes() / GUARD_SHARE;

        pages = max_of(pages, (uint64_t)GUARD_PAGES_LEAST);
        return load_relaxed(&are_mapped) ? min_of(pages, pages_most) : pages;
}

/* Without guard_lock it is a hint, which saves the walk of a stack. */
static bool has_pages(size_t page_bytes)
{
        return load_relaxed(&live_pages) + page_bytes / system_page_bytes() <= pages_allowed();
}

static bool stack_has_room_locked(const struct stack *stack)
{
        uint64_t most = max_of(pages_allowed() / 8, (uint64_t)STACK_LEAST);

        return !stack || live_of_stack[stack->hash % STACKS] < most;
}

static uint32_t take_freed_locked(void)
{
        uint32_t entry = oldest_freed;

        oldest_freed = guards[entry].next;
        freed_count--;
        return entry;
}

/* A place that its caller owns; 0 if there is none. */
static uint32_t take_place_locked(void)
{
        /* GUARD-3 */
        if (freed_count < QUARANTINE_LEAST && used < places) {
                if (used >= committed)
                        commit_locked();
                guards[used].mapped = are_mapped;
                return used++;
        }
        return freed_count ? take_freed_locked() : 0;
}

static void put_freed_locked(uint32_t entry)
{
        if (freed_count++)
                guards[newest_freed].next = entry;
        else
                oldest_freed = entry;
        newest_freed = entry;
}

static uint32_t take_place(size_t page_bytes, const struct stack *stack)
{
        uint32_t entry = 0;

        lock_take(&guard_lock);
        if (has_pages(page_bytes) && stack_has_room_locked(stack))
                entry = take_place_locked();
        if (entry) {
                add_owned(&live_pages, page_bytes / system_page_bytes());
                if (stack)
                        live_of_stack[stack->hash % STACKS]++;
        }
        lock_drop(&guard_lock);
        return entry;
}

/* The place becomes one of the freed. */
static void give_place(uint32_t entry)
{
        struct guard *guard = &guards[entry];
        const struct stack *stack = guard->allocated.stack;

        lock_take(&guard_lock);
        store_release(&guard->state, (uint32_t)GUARD_FREED);
        add_owned(&live_pages, -(guard->page_bytes / system_page_bytes()));
        if (stack)
                live_of_stack[stack->hash % STACKS]--;
        put_freed_locked(entry);
        lock_drop(&guard_lock);
}

/*
 * A place that got mappings when its object was freed in locked memory has the guards of its first use behind that
 * object's pages. Where the kernel knows no guards, there are none to take away.
 */
static bool open_pages(uint32_t entry)
{
        struct guard *guard = &guards[entry];
        void *pages = (void *)pages_of(entry);

        if (!guard->mapped)
                return system_unguard(pages, guard->page_bytes);
        if (!system_commit(pages, guard->page_bytes))
                return false;
        system_unguard(pages, guard->page_bytes);
        return true;
}

/*
 * Locked memory takes no guards (mlockall), so such a place gets mappings. In a sandbox that the
 * program has entered the pages stay as they are: its free is still known, its use is not seen.
 */
static void close_pages(uint32_t entry)
{
        struct guard *guard = &guards[entry];
        void *pages = (void *)pages_of(entry);

        if (system_sandbox_was_told() || (!guard->mapped && system_guard(pages, guard->page_bytes)))
                return;
        guard->mapped = system_close(pages, guard->page_bytes) || guard->mapped;
}

/* ---- The object ---------------------------------------------------------------------------------- */

/* The filled bytes in front of the object and behind it. */
static uint8_t *front_of(const struct guard *guard, uint32_t entry, size_t *bytes)
{
        *bytes = min_of((size_t)(guard->address - pages_of(entry)), (size_t)SLACK_BYTES);
        return (uint8_t *)guard->address - *bytes;
}

static uint8_t *behind(const struct guard *guard, uint32_t entry, size_t *bytes)
{
        uintptr_t end = guard->address + guard->bytes;

        *bytes = min_of((size_t)(pages_of(entry) + guard->page_bytes - end), (size_t)SLACK_BYTES);
        return (uint8_t *)end;
}

static void fill(const struct guard *guard, uint32_t entry)
{
        size_t bytes;
        uint8_t *start = front_of(guard, entry, &bytes);

        memset(start, FILL, bytes);
        start = behind(guard, entry, &bytes);
        memset(start, FILL, bytes);
}

/* The object's address for a request. An alignment above a page is met by no place. */
static uintptr_t address_for(uint32_t entry, size_t bytes, size_t align, bool at_start)
{
        uintptr_t end = pages_of(entry) + guards[entry].page_bytes;

        return at_start ? pages_of(entry) : round_down(end - bytes, align);
}

static bool is_at_start(const struct guard *guard, uint32_t entry)
{
        return guard->address == pages_of(entry);
}

/* Natural alignment, as slabs give it: an object of 96 bytes lies at a multiple of 32. */
static size_t align_of(const struct kmem_cache *cache)
{
        size_t natural = cache->size & -cache->size;

        return min_of(max_of((size_t)cache->align, natural), PAGE_SIZE);
}

static void step(struct guard_step *step, const struct stack *stack)
{
        step->thread = system_thread_id_known();
        step->stack = stack;
}

static const struct stack *walk(void)
{
        uintptr_t frames[STACK_FRAMES];

        stack_prepare();
        return depot_keep(frames, stack_capture(frames, STACK_FRAMES));
}

static void describe(struct guard *guard, const struct kmem_cache *cache, const struct stack *stack)
{
        guard->bytes = cache->object_size;
        guard->birth = cache->birth;
        guard->index = cache_index(cache);
        guard->told = false;
        memcpy(guard->cache, cache->name, sizeof(guard->cache));
        step(&guard->allocated, stack);
        guard->freed = (struct guard_step){0};
}

static void *missed(void)
{
        add_relaxed(&guard_figures.missed, 1);
        show_figures();
        return NULL;
}

/* Nothing was handed out, and the place goes to the end of the freed ones. */
static void *give_up(uint32_t entry)
{
        give_place(entry);
        return missed();
}

void *guard_alloc(struct kmem_cache *cache)
{
        size_t page_bytes = round_up((size_t)max_of(cache->object_size, 1u), system_page_bytes());
        int saved_errno = errno;
        const struct stack *stack;
        struct guard *guard;
        uint32_t entry;

        if (!load_acquire(&guard_region_bytes) || system_sandbox_was_told())
                return NULL;
        if (!has_pages(page_bytes))
                return missed();
        stack = walk();
        entry = take_place(page_bytes, stack);
        if (!entry)
                return missed();
        guard = &guards[entry];
        guard->page_bytes = page_bytes;
        describe(guard, cache, stack);
        guard->address = pages_of(entry);
        if (!open_pages(entry))
                return give_up(entry);
        guard->address = address_for(entry, guard->bytes, align_of(cache),
                                     add_relaxed(&guard_figures.made, 1) % AT_START == 0);
        fill(guard, entry);
        lock_take(&guard_lock);
        store_release(&guard->state, (uint32_t)GUARD_LIVE);
        lock_drop(&guard_lock);
        add_relaxed(&guard_figures.live, 1);
        show_figures();
        if (cache->ctor)
                cache->ctor((void *)guard->address);
        errno = saved_errno;
        return (void *)guard->address;
}

void *guard_fit(void *object, size_t bytes, size_t align)
{
        uint32_t entry = entry_of((uintptr_t)object);
        struct guard *guard = &guards[entry];

        guard->bytes = bytes;
        guard->address = address_for(entry, bytes, align, is_at_start(guard, entry));
        fill(guard, entry);
        return (void *)guard->address;
}

/* The guard of a live object that begins there, or NULL. */
static const struct guard *guard_at(const void *address)
{
        uint32_t entry = entry_of((uintptr_t)address);
        const struct guard *guard = &guards[entry];

        /* Acquire, with the release when it became live. */
        return entry && load_acquire(&guard->state) == GUARD_LIVE &&
                               guard->address == (uintptr_t)address
                       ? guard
                       : NULL;
}

size_t guard_bytes(const void *address)
{
        const struct guard *guard = guard_at(address);

        return guard ? guard->bytes : 0;
}

struct kmem_cache *guard_cache(const void *address)
{
        const struct guard *guard = guard_at(address);

        return guard ? cache_born(guard->index, guard->birth) : NULL;
}

/* Whether the free is right; then the caller owns the place (GUARD-1). */
static bool claim(struct guard *guard, uintptr_t address)
{
        bool ours;

        lock_take(&guard_lock);
        ours = guard->state == GUARD_LIVE && guard->address == address;
        if (ours)
                store_release(&guard->state, (uint32_t)GUARD_ENDING);
        lock_drop(&guard_lock);
        return ours;
}

static void report_wrong_free(uint32_t entry, uintptr_t address)
{
        const struct guard *guard = &guards[entry];
        uint32_t state = load_acquire(&guard->state);
        struct guard_event event = {
                .fault = GUARD_NO_OBJECT, .address = address, .access = "a free"};

        if (entry && state != GUARD_UNUSED) {
                event.guard = guard;
                event.fault = guard->address == address ? GUARD_FREED_TWICE : GUARD_FREED_INSIDE;
                event.distance = address - guard->address;
        }
        guard_report(&event);
        show_figures();
}

static void report_written(const struct guard *guard, enum guard_fault fault, uintptr_t address,
                           size_t distance)
{
        const struct guard_event event = {
                .fault = fault,
                .guard = guard,
                .address = address,
                .access = "an earlier write, found by the free,",
                .distance = distance,
        };

        guard_report(&event);
        show_figures();
}

/* Looks at the filled bytes; the farthest that was written gives the distance. */
static void check_slack(const struct guard *guard, uint32_t entry)
{
        size_t bytes;
        const uint8_t *start = behind(guard, entry, &bytes);

        for (size_t i = bytes; i > 0; i--)
                if (start[i - 1] != FILL) {
                        report_written(guard, GUARD_OVERFLOW, (uintptr_t)&start[i - 1], i);
                        break;
                }
        start = front_of(guard, entry, &bytes);
        for (size_t i = 0; i < bytes; i++)
                if (start[i] != FILL) {
                        report_written(guard, GUARD_UNDERFLOW, (uintptr_t)&start[i], bytes - i);
                        break;
                }
}

bool guard_free(void *address, struct kmem_cache **cache)
{
        uint32_t entry = entry_of((uintptr_t)address);
        struct guard *guard = &guards[entry];

        *cache = NULL;
        if (!entry || !claim(guard, (uintptr_t)address)) {
                report_wrong_free(entry, (uintptr_t)address);
                return false;
        }
        step(&guard->freed, walk());
        check_slack(guard, entry);
        close_pages(entry);
        /*
         * The mark goes where an object would go, as that of a sample; but not always, because a loop
         * of malloc and free would have a guard at each turn.
         */
        if (draw_gap(1, 1 << 20) % MARKS_LOST)
                *cache = cache_born(guard->index, guard->birth);
        give_place(entry);
        sub_relaxed(&guard_figures.live, 1);
        show_figures();
        return true;
}
