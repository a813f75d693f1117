/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Messages go to standard error. The kernel's own pointer formats (%pS and others) are libc's %p.
 */
#ifndef KMEM_LINUX_PRINTK_H
#define KMEM_LINUX_PRINTK_H

#include <linux/compiler.h>

#include <stdio.h>

#define KERN_EMERG ""
#define KERN_ALERT ""
#define KERN_CRIT ""
#define KERN_ERR ""
#define KERN_WARNING ""
#define KERN_NOTICE ""
#define KERN_INFO ""
#define KERN_DEBUG ""
#define KERN_CONT ""

#ifndef pr_fmt
#define pr_fmt(format) format
#endif

#define printk(...) fprintf(stderr, __VA_ARGS__)
#define pr_emerg(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_alert(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_crit(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_err(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_warn(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_notice(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_info(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#define pr_cont(format, ...) printk(format, ##__VA_ARGS__)
#ifdef DEBUG
#define pr_debug(format, ...) printk(pr_fmt(format), ##__VA_ARGS__)
#else
#define pr_debug(format, ...)                                                                      \
        do {                                                                                       \
                if (0)                                                                             \
                        printk(pr_fmt(format), ##__VA_ARGS__);                                     \
        } while (0)
#endif

#define printk_once(...)                                                                           \
        do {                                                                                       \
                static bool kmem_printed_;                                                         \
                                                                                                   \
                if (!__atomic_exchange_n(&kmem_printed_, true, __ATOMIC_RELAXED))                  \
                        printk(__VA_ARGS__);                                                       \
        } while (0)
#define pr_warn_once(format, ...) printk_once(pr_fmt(format), ##__VA_ARGS__)
#define pr_info_once(format, ...) printk_once(pr_fmt(format), ##__VA_ARGS__)
#define pr_err_once(format, ...) printk_once(pr_fmt(format), ##__VA_ARGS__)
#define pr_warn_ratelimited(format, ...) printk_once(pr_fmt(format), ##__VA_ARGS__)
#define pr_err_ratelimited(format, ...) printk_once(pr_fmt(format), ##__VA_ARGS__)

#endif
