/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system's <linux/module.h>, with the flags of finit_module, and for kernel code modules that
 * are linked into a program. module_init and module_exit put a record into a section of the
 * program; its main function calls kmem_modules_init and kmem_modules_exit once.
 */
#if !defined(KMEM_KERNEL_HEADERS) && (defined(__KERNEL__) || !defined(_FEATURES_H))
#define KMEM_KERNEL_HEADERS 1
#endif

#include_next <linux/module.h>

#if defined(KMEM_KERNEL_HEADERS) && !defined(KMEM_LINUX_MODULE_H) && !defined(__cplusplus)
#define KMEM_LINUX_MODULE_H

#include <linux/compiler.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>

#define MODULE_LICENSE(text) KMEM_NOTHING_TO_DO
#define MODULE_AUTHOR(text) KMEM_NOTHING_TO_DO
#define MODULE_DESCRIPTION(text) KMEM_NOTHING_TO_DO
#define MODULE_VERSION(text) KMEM_NOTHING_TO_DO
#define MODULE_ALIAS(text) KMEM_NOTHING_TO_DO
#define MODULE_SOFTDEP(text) KMEM_NOTHING_TO_DO
#define MODULE_IMPORT_NS(name) KMEM_NOTHING_TO_DO

#ifndef KBUILD_MODNAME
#define KBUILD_MODNAME __FILE__
#endif

struct kmem_module {
        const char *name;
        int (*init)(void);  /* or NULL */
        void (*exit)(void); /* or NULL */
        const char *file;   /* the records of a file share this address, and no other file's
                               record has it */
};

static char kmem_module_file __attribute__((__unused__));

/*
 * In link order with -flto, too: gcc would move the files' variables apart; clang leaves them in
 * order.
 */
#if __has_attribute(__no_reorder__)
#define KMEM_MODULE_IN_ORDER __attribute__((__no_reorder__))
#else
#define KMEM_MODULE_IN_ORDER
#endif

#define KMEM_MODULE_RECORD(suffix, ...)                                                            \
        static const struct kmem_module kmem_module_record_##suffix KMEM_MODULE_IN_ORDER           \
                __attribute__((__used__, __section__("kmem_modules"),                              \
                               __aligned__(sizeof(void *)))) = {KBUILD_MODNAME, __VA_ARGS__,       \
                                                                &kmem_module_file}
#define module_init(function) KMEM_MODULE_RECORD(init, function, NULL)
#define module_exit(function) KMEM_MODULE_RECORD(exit, NULL, function)
#define late_initcall(function) module_init(function)
#define subsys_initcall(function) module_init(function)

/*
 * The linker's names for the section; NULL in a program without modules. The optimizer takes them
 * for two arrays, and would assume that no pointer into the first ever reaches the second: so it
 * must know neither address.
 */
extern const struct kmem_module __start_kmem_modules[] __attribute__((__weak__));
extern const struct kmem_module __stop_kmem_modules[] __attribute__((__weak__));

static inline const struct kmem_module *kmem_modules_begin(void)
{
        const struct kmem_module *module = __start_kmem_modules;

        OPTIMIZER_HIDE_VAR(module);
        return module;
}

static inline const struct kmem_module *kmem_modules_end(void)
{
        const struct kmem_module *module = __stop_kmem_modules;

        OPTIMIZER_HIDE_VAR(module);
        return module;
}

/*
 * Runs the exit functions of the records in front of @end, last first, except the functions of file
 * @failed: its exit may lie in front of its init, as compilers lay out a file's variables in either
 * order.
 */
static inline void kmem_modules_exit_before(const struct kmem_module *end, const char *failed)
{
        while (end > kmem_modules_begin())
                if ((--end)->exit && end->file != failed)
                        end->exit();
}

static inline void kmem_modules_exit(void)
{
        kmem_modules_exit_before(kmem_modules_end(), NULL);
}

/* Runs all init functions in link order. The first error ends it, undoes it and is returned. */
static inline int kmem_modules_init(void)
{
        const struct kmem_module *module = kmem_modules_begin();

        for (; module < kmem_modules_end(); module++) {
                int error = module->init ? module->init() : 0;

                if (error) {
                        pr_err("module %s: init returned %d\n", module->name, error);
                        kmem_modules_exit_before(module, module->file);
                        return error;
                }
        }
        return 0;
}

#endif
