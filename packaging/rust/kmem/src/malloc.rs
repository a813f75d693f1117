// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library as the program's allocator.

use kmem_sys as sys;
use std::alloc::{GlobalAlloc, Layout};
use std::os::raw::c_char;
use std::ptr;

/// The library's malloc as the allocator of a Rust program: `static A: kmem::Malloc = kmem::Malloc;` under
/// `#[global_allocator]`.
///
/// Libraries of C in the program, and libc itself, then have the same malloc: blocks may go from one to the
/// other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc;

/// The alignment that malloc gives to blocks of at least as many bytes.
const MALLOC_ALIGN: usize = 16;

/// Whether plain malloc serves it.
fn is_plain(layout: &Layout, size: usize) -> bool {
    layout.align() <= MALLOC_ALIGN && layout.align() <= size
}

// SAFETY: the functions are those of C; none unwinds, and a block lasts until it is freed.
unsafe impl GlobalAlloc for Malloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_plain(&layout, layout.size()) {
            return sys::malloc(layout.size()).cast();
        }
        let mut block = ptr::null_mut();
        let align = layout.align().max(std::mem::size_of::<usize>());
        match sys::posix_memalign(&mut block, align, layout.size()) {
            0 => block.cast(),
            _ => ptr::null_mut(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        sys::free(block.cast());
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_plain(&layout, layout.size()) {
            return sys::calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_plain(&layout, size) {
            return sys::realloc(block.cast(), size).cast();
        }
        let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !new.is_null() {
            ptr::copy_nonoverlapping(block, new, layout.size().min(size));
            self.dealloc(block, layout);
        }
        new
    }
}

/// Whether the program's global allocator is this library: an allocation is asked for.
pub fn malloc_is_replaced() -> bool {
    let block = Box::new([0u8; 100]);
    // SAFETY: any address may be asked for.
    unsafe { sys::ksize(ptr::addr_of!(*block).cast()) >= 100 }
}

extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Runs before main. With the feature `system` another library may stand before ours, where the program or one
/// of its crates names it first, as libc with `#[link(name = "c")]`; the program would have its malloc, and
/// nothing would tell. What `LD_PRELOAD` names is there by intention.
#[used]
#[link_section = ".init_array"]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    // SAFETY: the name ends with a zero byte; any address may be asked for; the block is freed once.
    let is_ours = unsafe {
        let block = sys::malloc(100);
        let is_ours = sys::ksize(block) >= 100;
        sys::free(block);
        is_ours || !getenv(b"LD_PRELOAD\0".as_ptr().cast()).is_null()
    };
    if !is_ours {
        eprintln!(
            "kmem: malloc is not libkmem's: a library that is linked before libkmem-malloc.so has one, as libc by \
             #[link(name = \"c\")]; expected libkmem-malloc.so first, or kmem without the feature \"system\""
        );
        std::process::abort();
    }
}
