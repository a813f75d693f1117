/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the program's objects (programs and shared libraries) take from others.
 */
#ifndef KMEM_MACHINE_IMPORTS_H
#define KMEM_MACHINE_IMPORTS_H

#include "lang/compiler.h"

/*
 * Whether the object with this code takes operators new or delete from another object: so it has none inside, as it has
 * if the C++ runtime is linked into it. True for static programs, and for the object that the library is linked into:
 * their operators are the library's. False if it cannot be told. Takes the dynamic linker's lock, which comes before
 * all of ours: no lock may be held.
 */
KMEM_HIDDEN bool imports_operators(const void *code);

#endif
