/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A user program that never asked for the kernel's names: it has its own u8, u64, min and
 * container_of beside the system's headers, with include/ in front of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include <linux/errno.h>
#include <linux/futex.h>
#include <linux/input.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/types.h>

#include "kmem.h"

typedef unsigned char *u8;
typedef long u64;
struct list_head {
        int own;
};

static int min(int a, int b)
{
        return a < b ? a : b;
}

static int container_of(int a)
{
        return a;
}

static size_t strscpy(const char *text)
{
        return strlen(text);
}

int main(void)
{
        struct sysinfo info;
        struct list_head own = {.own = 1};
        __u64 number = 2;
        u64 one = 1;
        u8 block = kmalloc(10, GFP_KERNEL);

        if (MODULE_INIT_IGNORE_VERMAGIC == 0 || strscpy("user") != 4)
                return 1;
        kfree_rcu(block);
        kfree_rcu_barrier();
        return sysinfo(&info) || min(own.own, (int)number) != container_of((int)one);
}
