// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of libkmem, as `kmem.h` declares them; that header says what they
//! do. The crate `kmem` has them for safe Rust.
//!
//! By default the library's sources are built into the program, with a C compiler of the machine. The
//! feature `system` links with an installed library, found by pkg-config. With the feature `malloc`, a default,
//! the program's `malloc` is the library's.
//!
//! A shared library in Rust (`cdylib`) must use the feature `system`: the code has restartable sequences,
//! which the kernel must never find unmapped, and only the installed library is never unloaded.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

/// Flags of a request.
pub type gfp_t = c_uint;
/// Flags of a cache.
pub type slab_flags_t = c_uint;

/// The usual request.
pub const GFP_KERNEL: gfp_t = 0xcc0;
/// The object reads as zero.
pub const __GFP_ZERO: gfp_t = 0x100;
/// No line on standard error if the request fails.
pub const __GFP_NOWARN: gfp_t = 0x2000;
/// The request is charged to the thread's memory group.
pub const __GFP_ACCOUNT: gfp_t = 0x400000;

/// Objects begin at a line of the processor's cache.
pub const SLAB_HWCACHE_ALIGN: slab_flags_t = 0x2000;
/// The cache shares no slabs with others.
pub const SLAB_NO_MERGE: slab_flags_t = 0x0100_0000;
/// All objects are charged to memory groups.
pub const SLAB_ACCOUNT: slab_flags_t = 0x0400_0000;
/// The cache's back end is SLUB.
pub const SLAB_ENGINE_SLUB: slab_flags_t = 0x2000_0000;
/// The cache's back end is SLAB.
pub const SLAB_ENGINE_SLAB: slab_flags_t = 0x4000_0000;
/// The cache's back end is SLOB.
pub const SLAB_ENGINE_SLOB: slab_flags_t = 0x8000_0000;

/// Bytes of a cache's name with its zero byte.
pub const KMEM_NAME_BYTES: usize = 48;
/// Bytes of the longest attribute.
pub const KMEM_ATTR_BYTES: usize = 4096;

/// A cache; only the library sees inside.
#[repr(C)]
pub struct kmem_cache {
    _private: [u8; 0],
}

/// Arguments of [`kmem_cache_create_args`]; all zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct kmem_cache_args {
    pub align: c_uint,
    pub useroffset: c_uint,
    pub usersize: c_uint,
    pub freeptr_offset: c_uint,
    pub use_freeptr_offset: bool,
    pub sheaf_capacity: c_uint,
    pub ctor: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Figures of the whole heap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct kmem_stats {
    pub size: usize,
    pub caches: u64,
    pub slabs: u64,
    pub objects_inuse: u64,
    pub objects_free: u64,
    pub objects_resting: u64,
    pub object_bytes_inuse: u64,
    pub object_bytes_free: u64,
    pub large_blocks: u64,
    pub large_bytes: u64,
    pub huge_blocks: u64,
    pub huge_bytes: u64,
    pub huge_kept_bytes: u64,
    pub bytes_inuse: u64,
    pub page_bytes: u64,
    pub pages_accessible: u64,
    pub pages_used: u64,
    pub pages_free: u64,
    pub pages_free_touched: u64,
    pub pages_purged: u64,
    pub metadata_bytes: u64,
    pub metadata_used_bytes: u64,
    pub objects_taken: u64,
    pub large_taken: u64,
}

/// Figures of a cache.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct kmem_cache_info {
    pub size: usize,
    pub id: u64,
    pub name: [c_char; KMEM_NAME_BYTES],
    pub engine: [c_char; 8],
    pub object_size: u32,
    pub slab_size: u32,
    pub align: u32,
    pub flags: u32,
    pub aliases: u32,
    pub objperslab: u32,
    pub pagesperslab: u32,
    pub limit: u32,
    pub batchcount: u32,
    pub sharedfactor: u32,
    pub objects_inuse: u64,
    pub objects_resting: u64,
    pub active_objs: u64,
    pub num_objs: u64,
    pub active_slabs: u64,
    pub num_slabs: u64,
    pub sharedavail: u64,
    pub partial_slabs: u64,
    pub min_partial: u64,
    pub cpu_partial: u32,
    pub sheaf_capacity: u32,
    pub taken: u64,
    pub given: u64,
}

#[cfg(feature = "malloc")]
extern "C" {
    pub fn malloc(size: usize) -> *mut c_void;
    pub fn calloc(count: usize, size: usize) -> *mut c_void;
    pub fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn posix_memalign(block: *mut *mut c_void, align: usize, size: usize) -> c_int;
    pub fn free(block: *mut c_void);
}

extern "C" {
    pub fn kmalloc(size: usize, flags: gfp_t) -> *mut c_void;
    pub fn krealloc(block: *const c_void, size: usize, flags: gfp_t) -> *mut c_void;
    pub fn ksize(block: *const c_void) -> usize;
    pub fn kfree(block: *const c_void);

    pub fn kmem_cache_create_args(
        name: *const c_char,
        size: c_uint,
        args: *const kmem_cache_args,
        flags: slab_flags_t,
    ) -> *mut kmem_cache;
    pub fn kmem_cache_destroy(cache: *mut kmem_cache);
    pub fn kmem_cache_alloc(cache: *mut kmem_cache, flags: gfp_t) -> *mut c_void;
    pub fn kmem_cache_free(cache: *mut kmem_cache, object: *mut c_void);
    pub fn kmem_cache_alloc_bulk(
        cache: *mut kmem_cache,
        flags: gfp_t,
        count: usize,
        objects: *mut *mut c_void,
    ) -> c_int;
    pub fn kmem_cache_free_bulk(cache: *mut kmem_cache, count: usize, objects: *mut *mut c_void);
    pub fn kmem_cache_shrink(cache: *mut kmem_cache) -> c_int;
    pub fn kmem_cache_info(cache: *mut kmem_cache, info: *mut kmem_cache_info) -> c_int;
    pub fn kmem_cache_next(position: *mut u64, info: *mut kmem_cache_info) -> c_int;

    pub fn kmem_stats_get(stats: *mut kmem_stats) -> c_int;
    pub fn kmem_attr_read(
        cache: *const c_char,
        name: *const c_char,
        text: *mut c_char,
        bytes: usize,
    ) -> c_int;
    pub fn kmem_attr_write(
        cache: *const c_char,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
}
