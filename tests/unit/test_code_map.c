/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Places of code in files (machine/code_map.h), of this program and of files that are made here, and the
 * end of a process with its callers (machine/fatal.h).
 */
#define _GNU_SOURCE
#include "unit.h"

#include "child.h"
#include "lang/bits.h"
#include "machine/code_map.h"
#include "machine/fatal.h"
#include "machine/stack.h"
#include "machine/system.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096, NOTES_AT = 0x200, LOADED_AT = 0x400000 };

/* ---- Files ------------------------------------------------------------------------------------ */

struct file {
        int number;
        char path[64]; /* as the kernel shows it */
};

/* Of two pages, @notes of @bytes in the first. */
static struct file file_with_notes(const char *name, const void *notes, size_t bytes)
{
        ElfW(Ehdr) start = {
                .e_ident = ELFMAG,
                .e_phoff = sizeof(start),
                .e_phentsize = sizeof(ElfW(Phdr)),
                .e_phnum = 2,
        };
        const ElfW(Phdr) header[] = {
                {.p_type = PT_LOAD, .p_vaddr = LOADED_AT, .p_filesz = PAGE_SIZE},
                {.p_type = PT_NOTE,
                 .p_offset = NOTES_AT,
                 .p_vaddr = LOADED_AT + NOTES_AT,
                 .p_filesz = bytes},
        };
        struct file file = {.number = memfd_create(name, MFD_CLOEXEC)};

        snprintf(file.path, sizeof(file.path), "/memfd:%s (deleted)", name);
        check(file.number >= 0);
        check_equal(ftruncate(file.number, 2 * PAGE_SIZE), 0);
        check_equal(pwrite(file.number, &start, sizeof(start), 0), sizeof(start));
        check_equal(pwrite(file.number, header, sizeof(header), sizeof(start)), sizeof(header));
        check_equal(pwrite(file.number, notes, bytes, NOTES_AT), bytes);
        return file;
}

/* A note, filled up to a whole number of words; returns its bytes. */
static size_t add_note(char *to, const char *name, uint32_t type, const char *content,
                       uint32_t bytes)
{
        const ElfW(Nhdr) note = {
                .n_namesz = (uint32_t)strlen(name) + 1,
                .n_descsz = bytes,
                .n_type = type,
        };
        size_t used = sizeof(note);

        memcpy(to, &note, sizeof(note));
        memcpy(to + used, name, note.n_namesz);
        used += round_up((size_t)note.n_namesz, 4);
        memcpy(to + used, content, bytes);
        return used + round_up((size_t)bytes, 4);
}

static struct file file_with_id(const char *name)
{
        char notes[256] = {0};
        size_t used = add_note(notes, "OLD", NT_GNU_BUILD_ID, "12345", 5);

        used += add_note(notes + used, "GNU", NT_GNU_ABI_TAG, "123456789", 9);
        used += add_note(notes + used, "GNU", NT_GNU_BUILD_ID, "\x01\x02\xab\xcd\xef", 5);
        return file_with_notes(name, notes, used);
}

/* Maps the file as it is loaded, its second page as code, @copies times behind each other. */
static char *load(const struct file *file, unsigned int copies)
{
        char *start = mmap(NULL, (2 * copies + 1) * PAGE_SIZE, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        check(start != MAP_FAILED);
        for (unsigned int page = 0; page < 2 * copies; page++)
                check(mmap(start + page * PAGE_SIZE, PAGE_SIZE,
                           page % 2 ? PROT_READ | PROT_EXEC : PROT_READ, MAP_PRIVATE | MAP_FIXED,
                           file->number, page % 2 ? (off_t)PAGE_SIZE : 0) != MAP_FAILED);
        return start;
}

static void unload(struct file *file, char *start, unsigned int copies)
{
        munmap(start, (2 * copies + 1) * PAGE_SIZE);
        close(file->number);
}

static const char *text_of(struct code_map *map, const char *address)
{
        static char text[TEXT_BYTES];
        size_t length = code_map_text(map, (uintptr_t)address, text, sizeof(text));

        check_equal(length, strlen(text));
        check_equal(code_map_text(NULL, 16, NULL, 0), 4);
        return text;
}

static void check_text(struct code_map *map, const char *address, const char *format, ...)
{
        char expected[TEXT_BYTES];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(expected, sizeof(expected), format, arguments);
        va_end(arguments);
        assert_string_equal(text_of(map, address), expected);
}

/* ---- Places ----------------------------------------------------------------------------------- */

static int find_program(struct dl_phdr_info *info, size_t bytes, void *found)
{
        (void)bytes;
        *(struct dl_phdr_info *)found = *info;
        return 1; /* it comes first */
}

static void own_code(void **state)
{
        uintptr_t address = (uintptr_t)own_code + 8;
        struct code_map *map = code_map_take();
        struct code_place place = code_map_find(map, address);
        struct dl_phdr_info program;
        char path[TEXT_BYTES] = {0};

        (void)state;
        check(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
        assert_string_equal(place.path, path);
        dl_iterate_phdr(find_program, &program);
        for (unsigned int i = 0; i < program.dlpi_phnum; i++) {
                const ElfW(Phdr) *header = &program.dlpi_phdr[i];
                uintptr_t start = program.dlpi_addr + header->p_vaddr;

                if (header->p_type != PT_LOAD)
                        continue;
                if (header->p_offset == 0)
                        check_equal(place.from_start, address - start);
                if (address - start < header->p_memsz)
                        check_equal(place.offset, address - 1 - start + header->p_offset);
        }
        code_map_drop(map);
}

/* A return address is behind its call, also where the call ends a mapping. */
static void edges(void **state)
{
        struct file file = file_with_id("edges");
        char *start = load(&file, 1);
        struct code_map *map = code_map_take();

        (void)state;
        check(!code_map_find(map, (uintptr_t)start).path);
        check(!code_map_find(map, (uintptr_t)start + PAGE_SIZE).path);
        assert_string_equal(code_map_find(map, (uintptr_t)start + PAGE_SIZE + 1).path, file.path);
        assert_string_equal(code_map_find(map, (uintptr_t)start + 2 * PAGE_SIZE).path, file.path);
        check(!code_map_find(map, (uintptr_t)start + 2 * PAGE_SIZE + 1).path);
        check_text(map, start + PAGE_SIZE, "0x%lx", (unsigned long)start + PAGE_SIZE);
        check_text(NULL, start + PAGE_SIZE + 1, "0x%lx", (unsigned long)start + PAGE_SIZE + 1);
        code_map_drop(map);
        unload(&file, start, 1);
}

/* In each text a file has its id once. */
static void ids(void **state)
{
        struct file file = file_with_id("ids");
        char *start = load(&file, 1);
        struct code_map *map = code_map_take();

        (void)state;
        for (int round = 0; round < 2; round++) {
                check_text(map, start + PAGE_SIZE + 8, "%s+0x1008 (BuildId: 0102abcdef)",
                           file.path);
                check_text(map, start + PAGE_SIZE + 9, "%s+0x1009", file.path);
                code_map_restart(map);
        }
        code_map_drop(map);
        map = code_map_take();
        check_text(map, start + PAGE_SIZE + 8, "%s+0x1008 (BuildId: 0102abcdef)", file.path);
        code_map_drop(map);
        unload(&file, start, 1);
}

/* Notes are anybody's: what they say of their own lengths is not believed. */
static void wrong_notes(void **state)
{
        static const ElfW(Nhdr) wrong[] = {
                {.n_namesz = 4, .n_descsz = 0xfffffff0, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = 4, .n_descsz = UINT32_MAX, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = 0xfffffff0, .n_descsz = 4, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = UINT32_MAX, .n_descsz = 4, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = 4, .n_descsz = 0, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = 4, .n_descsz = 33, .n_type = NT_GNU_BUILD_ID},
                {.n_namesz = 3, .n_descsz = 4, .n_type = NT_GNU_BUILD_ID},
        };

        (void)state;
        for (unsigned int i = 0; i < array_size(wrong); i++) {
                char notes[64] = {0};
                struct file file;
                struct code_map *map;
                char *start;

                memcpy(notes, &wrong[i], sizeof(wrong[i]));
                memcpy(notes + sizeof(wrong[i]), "GNU", 4);
                memset(notes + sizeof(wrong[i]) + 4, 'x', sizeof(notes) - sizeof(wrong[i]) - 4);
                file = file_with_notes("wrong", notes, sizeof(notes));
                start = load(&file, 1);
                map = code_map_take();
                check_text(map, start + PAGE_SIZE + 8, "%s+0x1008", file.path);
                code_map_drop(map);
                unload(&file, start, 1);
        }
}

static void loaded_twice(void **state)
{
        struct file file = file_with_id("twice");
        char *start = load(&file, 2);
        struct code_map *map = code_map_take();
        struct code_place first = code_map_find(map, (uintptr_t)start + PAGE_SIZE + 8);
        struct code_place second = code_map_find(map, (uintptr_t)start + 3 * PAGE_SIZE + 8);

        (void)state;
        check_equal(first.from_start, PAGE_SIZE + 8);
        check_equal(second.from_start, PAGE_SIZE + 8);
        check(first.object != second.object);
        code_map_drop(map);
        unload(&file, start, 2);
}

static void controls_in_names(void **state)
{
        struct file file = file_with_id("a\x1b[31mb\x7f");
        char *start = load(&file, 1);
        struct code_map *map = code_map_take();

        (void)state;
        check_text(map, start + PAGE_SIZE + 8,
                   "/memfd:a?[31mb? (deleted)+0x1008 (BuildId: 0102abcdef)");
        code_map_drop(map);
        unload(&file, start, 1);
}

/* More files than there is room for: the rest has no places, and all others have their own. */
static void without_end(void **state)
{
        enum { COPIES = 1500 };
        struct file file = file_with_id("many");
        char *start = load(&file, COPIES);
        struct code_map *map = code_map_take();
        unsigned int found = 0;

        (void)state;
        for (unsigned int i = 0; i < COPIES; i++) {
                const char *code = start + (2 * i + 1) * PAGE_SIZE;
                struct code_place place = code_map_find(map, (uintptr_t)code + 8);

                if (!place.path)
                        continue;
                assert_string_equal(place.path, file.path);
                check_equal(place.from_start, PAGE_SIZE + 8);
                check_equal(place.offset, PAGE_SIZE + 7);
                found++;
        }
        check(found > 100 && found < COPIES);
        code_map_drop(map);
        unload(&file, start, COPIES);
}

/* As many mappings of one file, which is a single object. */
static void parts_without_end(void **state)
{
        enum { PARTS = 1500 };
        struct file file = file_with_id("parts");
        char *start =
                mmap(NULL, 2 * PARTS * PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct code_map *map;
        unsigned int found = 0;

        (void)state;
        for (size_t i = 0; i < PARTS; i++)
                check(mmap(start + 2 * i * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_EXEC,
                           MAP_PRIVATE | MAP_FIXED, file.number, 0) != MAP_FAILED);
        map = code_map_take();
        for (size_t i = 0; i < PARTS; i++) {
                struct code_place place =
                        code_map_find(map, (uintptr_t)start + 2 * i * PAGE_SIZE + 8);

                found += place.path != NULL;
                if (place.path)
                        assert_string_equal(place.path, file.path);
        }
        check(found > 100 && found < PARTS);
        code_map_drop(map);
        munmap(start, 2 * PARTS * PAGE_SIZE);
        close(file.number);
}

/* ---- Users ------------------------------------------------------------------------------------ */

static bool sleeps_are_counted;
static unsigned int sleeps;

void __real_system_sleep_ns(uint64_t time_ns);
void __wrap_system_sleep_ns(uint64_t time_ns);

void __wrap_system_sleep_ns(uint64_t time_ns)
{
        if (!sleeps_are_counted)
                __real_system_sleep_ns(time_ns);
        sleeps += sleeps_are_counted;
}

/* CODE-1 */
static void single_user(void **state)
{
        struct code_map *map = code_map_take();

        (void)state;
        check(map);
        sleeps_are_counted = true;
        check(!code_map_take());
        sleeps_are_counted = false;
        check(sleeps > 1);
        code_map_drop(NULL);
        sleeps_are_counted = true;
        check(!code_map_take());
        sleeps_are_counted = false;
        code_map_drop(map);
        map = code_map_take();
        check(map);
        code_map_drop(map);
}

/* ---- Marks ------------------------------------------------------------------------------------ */

/* CODE-3 */
static void marked_text(void **state)
{
        struct file file = file_with_id("marked");
        char *start = load(&file, 1);
        struct code_map *map = code_map_take();
        char marked[TEXT_BYTES], expected[TEXT_BYTES], text[TEXT_BYTES];
        size_t length;

        (void)state;
        snprintf(marked, sizeof(marked), "a " SYMBOL_MARK "%016lx b " SYMBOL_MARK "%016lx\n",
                 (unsigned long)start + PAGE_SIZE + 8, (unsigned long)start + PAGE_SIZE + 9);
        snprintf(expected, sizeof(expected), "a %s+0x1008 (BuildId: 0102abcdef) b %s+0x1009\n",
                 file.path, file.path);
        for (int round = 0; round < 2; round++) {
                length = code_map_resolve(map, marked, NULL, 0);
                check_equal(length, strlen(expected));
                check_equal(code_map_resolve(map, marked, text, length + 1), length);
                assert_string_equal(text, expected);
        }
        check_equal(code_map_resolve(map, "plain", text, sizeof(text)), 5);
        assert_string_equal(text, "plain");
        code_map_drop(map);
        unload(&file, start, 1);
}

/* In hexadecimal, as a zero byte too where @bytes have no room for one: nobody may rely on it. */
static size_t write_number(void *context, uintptr_t address, char *text, size_t bytes)
{
        ++*(unsigned int *)context;
        return (size_t)snprintf(text, bytes, "%lx", (unsigned long)address);
}

/* With each room from none to more than enough: whole parts, a zero byte, and nothing behind. */
static void cut_text(void **state)
{
        static const char marked[] =
                "ab" SYMBOL_MARK "0000000000001234c" SYMBOL_MARK "00000000000000ffde";
        static const char *const parts[] = {"",        "ab",        "ab1234",
                                            "ab1234c", "ab1234cff", "ab1234cffde"};
        unsigned int calls = 0;

        (void)state;
        check_equal(marks_replace(marked, write_number, &calls, NULL, 0), 11);
        check_equal(calls, 2);
        for (size_t bytes = 1; bytes <= 14; bytes++) {
                const char *expected = "";
                char text[16];

                memset(text, '#', sizeof(text));
                for (unsigned int i = 0; i < array_size(parts); i++)
                        if (strlen(parts[i]) < bytes)
                                expected = parts[i];
                check_equal(marks_replace(marked, write_number, &calls, text, bytes),
                            strlen(expected));
                assert_string_equal(text, expected);
                for (size_t i = bytes; i < sizeof(text); i++)
                        check_equal(text[i], '#');
        }
}

/* ---- The end of a process ---------------------------------------------------------------------- */

static void child_wrong_call(void)
{
        stack_prepare();
        fatal_call("wrong call %d", 7);
}

static void child_refused(void)
{
        stack_prepare();
        stack_refuse_this_thread();
        fatal_call("wrong call %d", 7);
}

static void child_two_reports(void)
{
        stack_prepare();
        print_callers();
        print_callers();
}

static unsigned int count_of(const char *text, const char *part)
{
        unsigned int count = 0;

        for (; (text = strstr(text, part)); text += strlen(part))
                count++;
        return count;
}

static void wrong_calls(void **state)
{
        static struct child_result result;
        const char line[] = "kmem: wrong call 7\nkmem:   here by thread ";

        (void)state;
        child_aborts("wrong_call", NULL, line);
        child_aborts("wrong_call", NULL, "/test_code_map+0x");
        child_aborts("refused", NULL, "kmem: wrong call 7\n");
        child_run("wrong_call", NULL, &result);
        check_equal(strncmp(result.output, line, strlen(line)), 0);
        child_run("refused", NULL, &result);
        assert_string_equal(result.output, "kmem: wrong call 7\n");
        /* The first report gives the map back. */
        child_run("two_reports", NULL, &result);
        check_equal(count_of(result.output, "here by thread"), 2);
        check_equal(count_of(result.output, "kmem:     0x"), 0);
        check(count_of(result.output, "/test_code_map+0x") >= 4);
}

static void *look_alone(void *first)
{
        struct file file = file_with_id("alone");
        char *start = load(&file, 1);
        struct code_map *map;

        check_equal(pthread_join(*(pthread_t *)first, NULL), 0);
        map = code_map_take();
        check_text(map, start + PAGE_SIZE + 8, "%s+0x1008 (BuildId: 0102abcdef)", file.path);
        code_map_drop(map);
        check(system_mapped_bytes() > PAGE_SIZE);
        exit(0);
}

static void child_first_thread_ended(void)
{
        static pthread_t first;
        pthread_t thread;

        first = pthread_self();
        check_equal(pthread_create(&thread, NULL, look_alone, &first), 0);
        pthread_exit(NULL);
}

/* The kernel shows nothing of such a process under /proc/self. */
static void first_thread_ended(void **state)
{
        (void)state;
        child_passes("first_thread_ended", NULL);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"wrong_call", child_wrong_call},
                {"refused", child_refused},
                {"two_reports", child_two_reports},
                {"first_thread_ended", child_first_thread_ended},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(own_code),
                cmocka_unit_test(edges),
                cmocka_unit_test(ids),
                cmocka_unit_test(wrong_notes),
                cmocka_unit_test(loaded_twice),
                cmocka_unit_test(controls_in_names),
                cmocka_unit_test(without_end),
                cmocka_unit_test(parts_without_end),
                cmocka_unit_test(single_user),
                cmocka_unit_test(marked_text),
                cmocka_unit_test(cut_text),
                cmocka_unit_test(wrong_calls),
                cmocka_unit_test(first_thread_ended),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
