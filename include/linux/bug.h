/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* BUG stops the process; WARN prints a line and goes on. */
#ifndef KMEM_LINUX_BUG_H
#define KMEM_LINUX_BUG_H

#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/printk.h>

#include <stdlib.h>

#define BUG()                                                                                      \
        do {                                                                                       \
                printk("kernel BUG at %s:%d!\n", __FILE__, __LINE__);                              \
                abort();                                                                           \
        } while (0)
#define BUG_ON(condition)                                                                          \
        do {                                                                                       \
                if (unlikely(condition))                                                           \
                        BUG();                                                                     \
        } while (0)
#define panic(...)                                                                                 \
        do {                                                                                       \
                printk(__VA_ARGS__);                                                               \
                abort();                                                                           \
        } while (0)

/* All are expressions: whether the condition holds. */
#define KMEM_WARN(condition, wanted, ...)                                                          \
        ({                                                                                         \
                bool kmem_warn_ = !!(condition);                                                   \
                                                                                                   \
                if (unlikely(kmem_warn_) && (wanted)) {                                            \
                        printk("WARNING: at %s:%d %s: ", __FILE__, __LINE__, __func__);            \
                        printk(__VA_ARGS__);                                                       \
                }                                                                                  \
                unlikely(kmem_warn_);                                                              \
        })
#define KMEM_FIRST_TIME                                                                            \
        ({                                                                                         \
                static bool kmem_warned_;                                                          \
                                                                                                   \
                !__atomic_exchange_n(&kmem_warned_, true, __ATOMIC_RELAXED);                       \
        })
#define WARN(condition, ...) KMEM_WARN(condition, true, __VA_ARGS__)
#define WARN_ON(condition) KMEM_WARN(condition, true, "%s\n", #condition)
#define WARN_ONCE(condition, ...) KMEM_WARN(condition, KMEM_FIRST_TIME, __VA_ARGS__)
#define WARN_ON_ONCE(condition) KMEM_WARN(condition, KMEM_FIRST_TIME, "%s\n", #condition)
#define VM_BUG_ON(condition) BUG_ON(condition)
#define VM_WARN_ON_ONCE(condition) WARN_ON_ONCE(condition)

#endif
