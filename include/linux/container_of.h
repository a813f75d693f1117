/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The struct around a member. */
#ifndef KMEM_LINUX_CONTAINER_OF_H
#define KMEM_LINUX_CONTAINER_OF_H

#include <linux/compiler.h>

/* The size of a member of a struct type. */
#define sizeof_field(type, member) sizeof(((type *)0)->member)
#define typeof_member(type, member) __typeof__(((type *)0)->member)

/* The struct that @member of type @type lies in, by the member's address. */
#define container_of(pointer, type, member)                                                        \
        ({                                                                                         \
                void *kmem_member_ = (void *)(pointer);                                            \
                                                                                                   \
                _Static_assert(__builtin_types_compatible_p(__typeof__(*(pointer)),                \
                                                            __typeof__(((type *)0)->member)) ||    \
                                       __builtin_types_compatible_p(__typeof__(*(pointer)), void), \
                               "container_of: the pointer is not one to this member");             \
                (type *)((char *)kmem_member_ - offsetof(type, member));                           \
        })

#endif
