/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The steps of the modules in the program `modules`, a letter for each step. */
#ifndef KMEM_TESTS_KERNEL_MODULES_H
#define KMEM_TESTS_KERNEL_MODULES_H

void modules_note(char step);

#endif
