/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reference counts that call a function when the last reference goes. */
#ifndef KMEM_LINUX_KREF_H
#define KMEM_LINUX_KREF_H

#include <linux/refcount.h>

struct kref {
        refcount_t refcount;
};

#define KREF_INIT(count)                                                                           \
        {                                                                                          \
                .refcount = REFCOUNT_INIT(count)                                                   \
        }

static inline void kref_init(struct kref *kref)
{
        refcount_set(&kref->refcount, 1);
}

static inline unsigned int kref_read(const struct kref *kref)
{
        return refcount_read(&kref->refcount);
}

static inline void kref_get(struct kref *kref)
{
        refcount_inc(&kref->refcount);
}

static inline __must_check bool kref_get_unless_zero(struct kref *kref)
{
        return refcount_inc_not_zero(&kref->refcount);
}

/* Returns 1 if that was the last reference and @release has been called. */
static inline int kref_put(struct kref *kref, void (*release)(struct kref *kref))
{
        if (!refcount_dec_and_test(&kref->refcount))
                return 0;
        release(kref);
        return 1;
}

#endif
