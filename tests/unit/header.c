/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Each public header stands alone, before anything else, in strict C. */
#include KMEM_HEADER
#include "kmem.h"

int header_compiles(void);

int header_compiles(void)
{
        return ZERO_OR_NULL_PTR(ZERO_SIZE_PTR);
}
