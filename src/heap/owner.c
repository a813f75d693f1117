/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The owner of the heap that this library would be; see owner.h. */
#include "heap/owner.h"

const char own_library = 0;
const struct heap_owner kmem_heap_owner = {&own_library};
