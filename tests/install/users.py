# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs that are built and run on an installed library, without the tree."""

IN_C = """
#include <kmem.h>
#include <stdlib.h>
int main(void)
{
        struct kmem_cache *cache = kmem_cache_create("session", 24, 0, 0, NULL);
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);
        void *block = malloc(100);
        int bad = !object || !block;

#ifdef OURS
        bad |= ksize(block) < 100;
#endif
        free(block);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
        return bad;
}
"""
# Names that functions and objects inside the library have, too.
WITH_NAMES = """
#include <kmem.h>
#include <stdlib.h>
int options = 1;
char heap[16];
long clock_read(void);
long clock_read(void) { abort(); }
int main(void)
{
        struct kmem_cache *cache = kmem_cache_create("session", 24, 0, 0, NULL);

        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        kmem_cache_shrink(cache);
        free(malloc(100000));
        return options - 1 + heap[15];
}
"""
IN_CPP = """
#include <kmem.hpp>
int main() { kmem::object_cache<long> longs("long"); auto one = longs.make(7); return *one != 7; }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(user C CXX)
find_package(kmem 0.1 REQUIRED)
add_executable(caches program.c)
target_link_libraries(caches PRIVATE kmem::kmem)
add_executable(drop-in program.c)
target_compile_definitions(drop-in PRIVATE OURS)
target_link_libraries(drop-in PRIVATE kmem::malloc)
add_executable(static program.c)
target_compile_definitions(static PRIVATE OURS)
target_link_libraries(static PRIVATE kmem::kmem-static)
add_executable(lto program.c)
target_compile_definitions(lto PRIVATE OURS)
set_property(TARGET lto PROPERTY INTERPROCEDURAL_OPTIMIZATION ON)
target_link_libraries(lto PRIVATE kmem::kmem-static)
add_executable(names names.c)
target_link_libraries(names PRIVATE kmem::kmem-static)
add_executable(objects program.cpp)
set_property(TARGET objects PROPERTY CXX_STANDARD 17)
target_link_libraries(objects PRIVATE kmem::kmem)
"""
FILES = {
    "program.c": IN_C,
    "names.c": WITH_NAMES,
    "program.cpp": IN_CPP,
    "CMakeLists.txt": CMAKE,
}
OF_CMAKE = ("caches", "drop-in", "static", "lto", "names", "objects")

# In Python: the library that malloc's block belongs to. Only libkmem knows the size of the block.
OWNER = """
import ctypes
program = ctypes.CDLL(None)
program.malloc.restype = program.ksize.restype = ctypes.c_size_t
program.malloc.argtypes = program.ksize.argtypes = [ctypes.c_size_t]
assert program.ksize(program.malloc(1000)) >= 1000
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libkmem" in line})
"""
