/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry's file: made, mapped, grown, left to the parent in children, and removed.
 *
 * It is /dev/shm/kmem-UID/NAMESPACE.PID, or else in /run/user/UID/kmem: a file for each process id,
 * so that a program which follows another by exec replaces its file. It is made once a process has
 * passed some slow paths: a process that ends before pays nothing, nor does a child that only calls
 * exec.
 *
 * Everything is mapped at once and the descriptor closed; pages that are not needed yet are
 * inaccessible holes, which growth fills by madvise. So files are opened once, and never in a
 * sandbox that the program has entered since it began, because a sandbox might end it for opening
 * files.
 *
 * metadata_lock protects the room that records are carved from.
 */
#define _GNU_SOURCE
#include "registry/registry.h"

#include "lang/bits.h"
#include "lang/number.h"
#include "machine/file.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "base/options.h"
#include "registry/registry_layout.h"
#include "machine/shared_file.h"
#include "machine/syscall.h"
#include "lang/text.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
        FIRST_BYTES = 32 << 10,  /* taken from the system at once */
        SLOW_PATHS = 128,        /* before the file is made */
        REGION_BYTES = 16 << 20, /* the most; region_bytes may have become less */
        UNIT = 64,
        SIZES = 16, /* records of up to this many units are used again */
};

KMEM_SPARSE struct registry_head no_registry;
static uint32_t no_seen = 1; /* differs from no_registry.asked, so that the first slow path comes
                                here */
struct registry_head *registry = &no_registry;
uint32_t *registry_seen = &no_seen;
uint32_t registry_generation;
void (*registry_honour)(void);

static char *region;              /* NULL: no registry */
static char *spare;               /* as large; NULL once it has been used (map_own_memory) */
static size_t used;               /* bytes of the region that records have been carved from */
static size_t accessible;         /* bytes that may be touched */
static uint32_t freed[SIZES + 1]; /* offsets of free records by units, linked behind their heads */
static size_t region_bytes = REGION_BYTES;
static uint64_t missing;
static char file_path[80];
static uint32_t owner;      /* process that made the file */
static uint32_t slow_paths; /* so far, until the file is made */

static bool refused(long result)
{
        return system_call_failed(result);
}

/* Number of the process's pid namespace; 0 without /proc. */
static uint64_t read_namespace(void)
{
        char text[64];
        const char *digit = text;
        long length = system_call6(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/ns/pid", (long)text,
                                   sizeof(text) - 1, 0, 0);

        if (refused(length))
                return 0;
        text[length] = '\0';
        while (*digit && (*digit < '0' || *digit > '9'))
                digit++;
        return *digit ? (uint64_t)number_next(&digit) : 0;
}

/* Field 22 of /proc/self/stat; the second field may hold blanks and brackets. */
static uint64_t read_start_time(void)
{
        char text[512];
        const char *at;

        if (!file_read("/proc/self/stat", text, sizeof(text)))
                return 0;
        at = strrchr(text, ')');
        for (int field = 2; at && field < 22; field++) {
                at = strchr(at + 1, ' ');
        }
        if (!at)
                return 0;
        at++;
        return (uint64_t)number_next(&at);
}

/*
 * Any user may make a folder of this name first, and so keep the figures of this user's processes
 * from readers; a message says so. A child does not repeat it.
 */
static void say_taken(const char *path, uint32_t user)
{
        static bool said;
        struct stat status;

        if (said ||
            refused(system_call6(SYS_newfstatat, AT_FDCWD, (long)path, (long)&status,
                                 AT_SYMLINK_NOFOLLOW, 0, 0)) ||
            (S_ISDIR(status.st_mode) && status.st_uid == user && !(status.st_mode & 077)))
                return;
        said = true;
        message("%s belongs to user %u%s; expected a folder of user %u that nobody else may enter, "
                "so "
                "others do not see the figures of this process (registry=off: they never do)",
                path, status.st_uid, S_ISDIR(status.st_mode) ? "" : " and is no folder", user);
}

/* The next number of a table that is filled with blanks; -1 at its end. */
static int64_t table_number(const char **at)
{
        while (**at == ' ' || **at == '\n')
                ++*at;
        return number_next(at);
}

/*
 * Whether user @user has this number in /dev/shm too. A user namespace may have numbers of its own,
 * as that of `unshare -r` has, with the system's /dev/shm. A folder of such a number belongs to
 * somebody else there, and keeps the user whose number it is from having one. A /dev/shm of the
 * namespace's own root goes by its numbers.
 */
static bool has_own_number(uint32_t user)
{
        char text[1024];
        const char *at = text;
        struct stat status;

        if (file_status(-1, "/dev/shm", &status) || status.st_uid == 0)
                return true;
        if (!file_read("/proc/self/uid_map", text, sizeof(text)))
                return false;
        for (;;) {
                int64_t inside = table_number(&at);
                int64_t outside = table_number(&at);
                int64_t count = table_number(&at);

                if (count < 0)
                        return false;
                if (user >= inside && user < inside + count)
                        return inside == outside;
        }
}

/* The user's own directory, which no other user may enter; less than 0 if it cannot be had. */
static long open_directory(const char *path, uint32_t user)
{
        struct stat status;
        long flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        long directory = system_call(SYS_openat, AT_FDCWD, (long)path, flags);

        if (refused(directory)) {
                /* The program's umask must not count: the folder serves all the user's programs. */
                if (!refused(system_call(SYS_mkdirat, AT_FDCWD, (long)path, 0700)))
                        system_call(SYS_fchmodat, AT_FDCWD, (long)path, 0700);
                directory = system_call(SYS_openat, AT_FDCWD, (long)path, flags);
        }
        if (refused(directory))
                return -1;
        if (refused(system_call(SYS_fstat, directory, (long)&status, 0)) || status.st_uid != user ||
            status.st_mode & 077) {
                system_call(SYS_close, directory, 0, 0);
                return -1;
        }
        return directory;
}

/* A file of this name was left behind by an earlier process of this number. */
static long create(long directory, const char *name)
{
        long flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        long file = system_call6(SYS_openat, directory, (long)name, flags, 0600, 0, 0);

        if (!refused(file))
                return file;
        system_call(SYS_unlinkat, directory, (long)name, 0);
        return system_call6(SYS_openat, directory, (long)name, flags, 0600, 0, 0);
}

/*
 * The first @bytes are taken for good; a full file system refuses here instead of sending a signal
 * later.
 */
static bool set_size(long file, size_t bytes)
{
        return file_limit_allows(region_bytes) &&
               !refused(system_call(SYS_ftruncate, file, (long)region_bytes, 0)) &&
               !refused(shared_file_take_space(file, 0, bytes));
}

/*
 * Each part is mapped by a single call: in a child other threads may be storing figures where the
 * first part goes, and must find memory there at every moment.
 */
static bool map_file(long file, size_t bytes)
{
        size_t hole = region_bytes - bytes;

        if (refused(system_call6(SYS_mmap, (long)region, (long)bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_FIXED, file, 0)))
                return false;
        if (hole && refused(system_call6(SYS_mmap, (long)(region + bytes), (long)hole, PROT_NONE,
                                         MAP_SHARED | MAP_FIXED, file, (long)bytes)))
                return false;
        if (hole && system_locks_memory())
                system_unlock(region + bytes, hole);
        return true;
}

/*
 * Makes the file @name in folder @before, @user, @after, and maps it over the region; false leaves
 * no file and an unknown mapping.
 */
static bool make_file(const char *before, const char *after, const char *name, uint32_t user,
                      size_t bytes)
{
        long directory;
        long file;
        bool done = false;
        char *end;

        end = stpcpy(text_number(stpcpy(file_path, before), user, 0), after);
        directory = open_directory(file_path, user);
        if (directory < 0)
                return false;
        file = create(directory, name);
        if (!refused(file)) {
                /*
                 * The umask must not count here either; if the call fails the file still serves
                 * root.
                 */
                system_call(SYS_fchmod, file, 0600, 0);
                done = set_size(file, bytes) && map_file(file, bytes);
                if (!done)
                        system_call(SYS_unlinkat, directory, (long)name, 0);
                system_call(SYS_close, file, 0, 0);
        }
        system_call(SYS_close, directory, 0, 0);
        if (done)
                stpcpy(stpcpy(end, "/"), name);
        return done;
}

static bool make(size_t bytes, uint64_t namespace)
{
        uint32_t user = (uint32_t)system_call(SYS_geteuid, 0, 0, 0);
        char name[48];

        owner = system_process_id();
        text_number(stpcpy(text_number(name, namespace, 0), "."), owner, 0);
        if (!has_own_number(user))
                return false;
        if (make_file("/dev/shm/kmem-", "", name, user, bytes) ||
            make_file("/run/user/", "/kmem", name, user, bytes))
                return true;
        text_number(stpcpy(file_path, "/dev/shm/kmem-"), user, 0);
        say_taken(file_path, user);
        return false;
}

/* Writes the head; the word by which readers know that it is there comes last. */
static void write_head(uint64_t namespace)
{
        struct registry_head *head = (void *)region;

        _Static_assert(sizeof(*head) + sizeof(registry_fields) <= REGISTRY_HEAD_BYTES,
                       "head and description fit in front of the records");
        head->head_bytes = REGISTRY_HEAD_BYTES;
        head->fields_offset = sizeof(*head);
        head->fields = array_size(registry_fields);
        memcpy(region + sizeof(*head), registry_fields, sizeof(registry_fields));
        head->process = owner;
        head->namespace = namespace;
        head->start_time = read_start_time();
        head->id = system_time_ns();
        head->missing = missing;
        head->asked = 1;
        head->profile_old_ms = REGISTRY_OLD_MS;
        store_relaxed(registry_seen, 1u);
        strcpy(head->release, KMEM_VERSION);
        store_release(&head->used_bytes, used);
        memcpy(head->magic, "libkmem", 8);
        /* Release: partner of readers in other processes, which look at the version first. */
        store_release(&head->version, (uint32_t)REGISTRY_VERSION);
}

/* A page that the kernel clears in children; NULL if it will not. */
static uint32_t *map_cleared_in_children(void)
{
        void *page = system_map(system_page_bytes());

        if (page && refused(system_call(SYS_madvise, (long)page, (long)system_page_bytes(),
                                        MADV_WIPEONFORK))) {
                system_unmap(page, system_page_bytes());
                page = NULL;
        }
        return page;
}

void registry_init(void)
{
        if (options.registry == REGISTRY_OFF || system_is_privileged())
                no_seen = no_registry.asked;
}

bool registry_is_made(void)
{
        return registry_head() != &no_registry;
}

bool registry_is_due(void)
{
        return options.registry == REGISTRY_ON || options.profile_interval ||
               options_given(OPTION_GUARD_SAMPLING) || add_relaxed(&slow_paths, 1) >= SLOW_PATHS;
}

static uint32_t *cleared; /* the page that the kernel clears in children */

/* The region keeps its place as long as there are pointers to records. */
static bool map_region(void)
{
        cleared = map_cleared_in_children();
        region = cleared ? system_reserve(region_bytes) : NULL;
        if (cleared && !region)
                system_unmap(cleared, system_page_bytes());
        used = REGISTRY_HEAD_BYTES;
        accessible = round_up((size_t)FIRST_BYTES, system_page_bytes());
        return region != NULL;
}

static void unmap_region(void)
{
        system_unmap(cleared, system_page_bytes());
        system_unmap(region, region_bytes);
        if (spare)
                system_unmap(spare, region_bytes);
        region = spare = NULL;
}

static long map_anonymous(int sharing)
{
        return system_call6(SYS_mmap, (long)region, (long)accessible, PROT_READ | PROT_WRITE,
                            sharing | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/*
 * Puts the spare addresses in the region's place. They are made writable first: other threads may
 * be storing figures.
 */
static bool move_spare(void)
{
        char *from = spare;

        if (!from || refused(system_call(SYS_mprotect, (long)from, (long)accessible,
                                         PROT_READ | PROT_WRITE)))
                return false;
        if (refused(system_call6(SYS_mremap, (long)from, (long)accessible, (long)accessible,
                                 MREMAP_MAYMOVE | MREMAP_FIXED, (long)region, 0)))
                return false;
        spare = NULL;
        if (accessible < region_bytes)
                system_unmap(from + accessible, region_bytes - accessible);
        return true;
}

/*
 * Memory in place of the parent's file, for figures that a child goes on writing there. Private
 * memory counts against RLIMIT_DATA. A child that may have no more private memory gets shared
 * memory, and then its own children add their figures to it. A child that has set RLIMIT_AS below
 * its mapped size can map nothing at all, but it can move a mapping that it has.
 */
static void map_own_memory(void)
{
        /* Without memory for a few pages the process could not go on anyway. */
        check_or_die(!refused(map_anonymous(MAP_PRIVATE)) || !refused(map_anonymous(MAP_SHARED)) ||
                     move_spare());
}

static bool never(void)
{
        no_seen = no_registry.asked;
        return false;
}

static bool make_undisturbed(void)
{
        bool first = !region;
        uint64_t namespace;

        if (first && !map_region())
                return never();
        if (!spare)
                spare = system_reserve(region_bytes);
        if (!spare) {
                if (first)
                        unmap_region();
                return never();
        }
        namespace = read_namespace();
        if (!make(accessible, namespace)) {
                if (first)
                        unmap_region();
                else
                        map_own_memory();
                return never();
        }
        store_relaxed(&registry_seen, cleared); /* relaxed: partner is registry_is_asked */
        write_head(namespace);
        /* Release: the head is written. Partner: the acquire in registry_head_shown. */
        store_release(&registry, (struct registry_head *)(void *)region);
        return true;
}

/*
 * Handlers of signals wait meanwhile: a child that a handler forked half way would go on here, and
 * take its parent's file for its own, or remove it.
 */
bool registry_make(void)
{
        const uint64_t all = ~(uint64_t)0;
        uint64_t old;
        bool blocked;
        bool made;

        if (system_entered_sandbox())
                return never();
        blocked = !refused(signals_set(&all, &old));
        made = make_undisturbed();
        if (blocked)
                signals_set(&old, NULL);
        return made;
}

void registry_leave(void)
{
        lock_take(&metadata_lock);
        /* Another thread may have come first. */
        if (registry_is_made() && !registry_last_seen()) {
                map_own_memory();
                add_relaxed(&registry_generation, 1);
                memset(freed, 0, sizeof(freed));
                slow_paths = 0;
                store_relaxed(&registry_seen, &no_seen);
                store_release(&registry, &no_registry);
        }
        lock_drop(&metadata_lock);
}

/* Holes are filled here, where the system can refuse, and not by a touch, where it would kill. */
static bool grow_locked(size_t bytes)
{
        size_t more = accessible;

        if (used + bytes > accessible + more || accessible + more > region_bytes ||
            refused(system_call(SYS_mprotect, (long)(region + accessible), (long)more,
                                PROT_READ | PROT_WRITE)))
                return false;
        if (refused(system_call(SYS_madvise, (long)(region + accessible), (long)more,
                                MADV_POPULATE_WRITE))) {
                system_call(SYS_mprotect, (long)(region + accessible), (long)more, PROT_NONE);
                return false;
        }
        accessible += more;
        return true;
}

/* The place in a free record that holds the next free record of its size. */
static uint32_t *free_link(uint32_t offset)
{
        return (uint32_t *)(void *)(region + offset + sizeof(struct registry_record_head));
}

/* Whether a free record of @units may lie at @offset. */
static bool may_lie_at(uint32_t offset, size_t units)
{
        return offset >= REGISTRY_HEAD_BYTES && offset % UNIT == 0 && offset < used &&
               units * UNIT <= used - offset;
}

static void *take_freed_locked(size_t units)
{
        uint32_t offset = units <= SIZES ? freed[units] : 0;
        uint32_t next;

        if (!offset)
                return NULL;
        /*
         * REG-1: a link that another process has overwritten ends the list. It is read once,
         * because it may change.
         */
        next = load_relaxed(free_link(offset));
        freed[units] = may_lie_at(next, units) ? next : 0;
        return region + offset;
}

void *registry_alloc(size_t bytes)
{
        size_t units = (bytes + UNIT - 1) / UNIT;
        char *record = NULL;

        if (!registry_is_made() || !registry_last_seen())
                return NULL;
        bytes = units * UNIT;
        lock_take(&metadata_lock);
        record = take_freed_locked(units);
        if (!record && (used + bytes <= accessible || grow_locked(bytes))) {
                record = region + used;
                used += bytes;
        }
        /*
         * REG-3: readers find the next record by it. They pass a record that is being made once a later one is
         * published, and must not take what is in it for heads.
         */
        if (record)
                store_relaxed(&((struct registry_record_head *)(void *)record)->bytes,
                              (uint32_t)bytes);
        else
                store_relaxed(&registry_head()->missing, ++missing);
        lock_drop(&metadata_lock);
        if (record)
                memset(record + sizeof(struct registry_record_head), 0,
                       bytes - sizeof(struct registry_record_head));
        return record;
}

void registry_publish(void *record, enum registry_record kind, size_t bytes)
{
        struct registry_record_head *head = record;
        uint64_t *used_bytes;
        size_t end;

        /* Left behind by a fork: it becomes visible with the child's own registry. */
        if (!registry_is_made())
                return;
        head->bytes = (uint32_t)round_up(bytes, (size_t)UNIT);
        store_release(&head->kind, (uint32_t)kind);
        /* Readers walk up to used_bytes, and pass records that are not published yet by their lengths. */
        lock_take(&metadata_lock);
        end = (size_t)((char *)record - region) + head->bytes;
        used_bytes = &registry_head()->used_bytes;
        if (*used_bytes < end)
                store_release(used_bytes, end);
        lock_drop(&metadata_lock);
}

void registry_free(void *record, size_t bytes)
{
        size_t units = (bytes + UNIT - 1) / UNIT;
        struct registry_record_head *head = record;

        if (!record || !registry_is_made() || !registry_last_seen())
                return;
        /* Release: REG-3, for readers in other processes. */
        store_release(&head->kind, (uint32_t)RECORD_FREE);
        lock_take(&metadata_lock);
        if (units <= SIZES) {
                uint32_t offset = (uint32_t)((char *)record - region);

                *free_link(offset) = freed[units];
                freed[units] = offset;
        }
        lock_drop(&metadata_lock);
}

size_t registry_room_bytes(void)
{
        size_t bytes;

        lock_take(&metadata_lock);
        bytes = region ? (region_bytes - accessible) * (spare ? 2 : 1) : 0;
        lock_drop(&metadata_lock);
        return bytes;
}

void registry_give_up_room(void)
{
        lock_take(&metadata_lock);
        if (region && accessible < region_bytes) {
                system_unmap(region + accessible, region_bytes - accessible);
                if (spare)
                        system_unmap(spare + accessible, region_bytes - accessible);
                region_bytes = accessible;
        }
        lock_drop(&metadata_lock);
}

void registry_unlock(void)
{
        lock_take(&metadata_lock);
        if (region && accessible < region_bytes)
                system_unlock(region + accessible, region_bytes - accessible);
        if (spare)
                system_unlock(spare, region_bytes);
        lock_drop(&metadata_lock);
}

/*
 * Named after the process that writes, which may be a child without a registry of its own yet, in
 * the folder of the registry's file.
 */
long registry_open_faults(void)
{
        char path[sizeof(file_path) + 32];
        char *name;

        if (!region || !file_path[0])
                return -1;
        name = strrchr(strcpy(path, file_path), '/') + 1;
        name = strchr(name, '.');
        if (!name)
                return -1;
        strcpy(text_number(name + 1, system_process_id(), 0), ".faults");
        return system_call6(SYS_openat, AT_FDCWD, (long)path,
                            O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600, 0, 0);
}

/*
 * A sandbox that the program has entered since might end it for removing the file; the next reader
 * removes it.
 */
void registry_close(void)
{
        if (registry_is_made() && registry_last_seen() && !system_entered_sandbox() &&
            owner == system_process_id())
                system_call(SYS_unlinkat, AT_FDCWD, (long)file_path, 0);
}
