/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "heap/owner.h"

const char own_library = 0;
const struct heap_owner kmem_heap_owner = {&own_library};
