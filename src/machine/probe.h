/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Static probes for bpftrace, perf, SystemTap and gdb, of the provider libkmem, and of otel_memory
 * for samples (docs/probes.md). A probe is a no-op in the code and a note that says where its
 * arguments are. Probes stand on slow paths only. Where sys/sdt.h (Debian: systemtap-sdt-dev) is
 * missing the library is built without them.
 *
 * Arguments must cost nothing: they are values at hand anyway.
 */
#ifndef KMEM_MACHINE_PROBE_H
#define KMEM_MACHINE_PROBE_H

#ifdef KMEM_HAVE_SDT
#include <sys/sdt.h>
#define PROBE1(name, a) STAP_PROBE1(libkmem, name, a)
#define PROBE2(name, a, b) STAP_PROBE2(libkmem, name, a, b)
#define PROBE3(name, a, b, c) STAP_PROBE3(libkmem, name, a, b, c)
#define PROBE4(name, a, b, c, d) STAP_PROBE4(libkmem, name, a, b, c, d)
#define PROBE_OTEL3(name, a, b, c) STAP_PROBE3(otel_memory, name, a, b, c)
#else
#define PROBE_OTEL3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define PROBE1(name, a) ((void)(a))
#define PROBE2(name, a, b) ((void)(a), (void)(b))
#define PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
