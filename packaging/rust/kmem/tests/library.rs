// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program on the library: its allocator, caches, figures and errors.

use kmem::{
    attribute, caches, set_attribute, stats, Cache, Constructed, ConstructedCache, Engine, Options,
};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[global_allocator]
static A: kmem::Malloc = kmem::Malloc;

const EINVAL: i32 = 22;
const ENOENT: i32 = 2;

#[test]
fn allocator_is_the_librarys() {
    assert!(kmem::malloc_is_replaced());
    assert!(stats().unwrap().bytes_inuse > 0);
}

extern "C" {
    fn strdup(text: *const u8) -> *mut u8;
}

#[test]
fn libc_has_the_same_malloc() {
    // SAFETY: the text ends with a zero byte, and the copy is freed once.
    unsafe {
        let copy = strdup(b"some text that is copied\0".as_ptr());
        assert!(kmem_sys::ksize(copy.cast()) >= 25);
        kmem_sys::free(copy.cast());
    }
}

#[test]
fn layouts_are_kept() {
    for shift in 0..=13 {
        for size in [1, 7, 24, 100, 4096, 5000, 100_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            let larger = size * 3;
            // SAFETY: each block is used inside its size and freed once.
            unsafe {
                let block = A.alloc_zeroed(layout);
                assert_eq!(block as usize % layout.align(), 0, "{layout:?}");
                assert!((0..size).all(|i| *block.add(i) == 0), "{layout:?}");
                block.write_bytes(7, size);
                let block = A.realloc(block, layout, larger);
                assert_eq!(block as usize % layout.align(), 0, "{layout:?}");
                assert!((0..size).all(|i| *block.add(i) == 7), "{layout:?}");
                A.dealloc(
                    block,
                    Layout::from_size_align(larger, layout.align()).unwrap(),
                );
            }
        }
    }
    // SAFETY: too large to be served.
    let none = unsafe { A.alloc(Layout::from_size_align(isize::MAX as usize - 64, 32).unwrap()) };
    assert!(none.is_null());
}

struct Counted<'a>(&'a AtomicUsize, u64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn objects_are_dropped_and_given_back() {
    let dropped = AtomicUsize::new(0);
    let cache = Cache::with_options("counted", &Options::new().no_merge()).unwrap();
    let mut one = cache.alloc(Counted(&dropped, 1)).unwrap();
    let two = cache.alloc(Counted(&dropped, 2)).unwrap();
    one.1 += 10;
    assert_eq!(
        (one.1, two.1, cache.info().unwrap().objects_inuse),
        (11, 2, 2)
    );
    drop(one);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert_eq!(two.into_inner().1, 2);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert_eq!(cache.info().unwrap().objects_inuse, 0);
    assert!(cache.shrink());
    assert_eq!(cache.info().unwrap().num_slabs, 0);
}

#[test]
fn bulks_come_and_go_whole() {
    let dropped = AtomicUsize::new(0);
    let cache = Cache::with_options("bulk", &Options::new().no_merge()).unwrap();
    let mut bulk = cache
        .alloc_bulk(1000, |number| Counted(&dropped, number as u64))
        .unwrap();
    assert_eq!(cache.info().unwrap().objects_inuse, 1000);
    bulk.iter_mut().for_each(|value| value.1 *= 2);
    assert!(bulk
        .iter()
        .map(|value| value.1)
        .eq((0..1000).map(|number| number * 2)));
    drop(bulk);
    assert_eq!(dropped.load(Ordering::Relaxed), 1000);
    assert_eq!(cache.info().unwrap().objects_inuse, 0);
    assert!(cache.alloc_bulk(0, |_| unreachable!()).unwrap().is_empty());
    let refused = cache
        .alloc_bulk(usize::MAX, |_| unreachable!())
        .err()
        .unwrap();
    assert_eq!(refused.errno(), EINVAL);
}

#[test]
fn a_panic_in_a_bulk_loses_nothing() {
    let dropped = AtomicUsize::new(0);
    let cache = Cache::with_options("panic", &Options::new().no_merge()).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = cache.alloc_bulk(10, |number| {
            assert!(number < 4, "as the test wants");
            Counted(&dropped, 0)
        });
    }));
    assert!(caught.is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
    assert_eq!(cache.info().unwrap().objects_inuse, 0);
}

static CONSTRUCTED: AtomicUsize = AtomicUsize::new(0);

struct Slate([u64; 20]);

impl Constructed for Slate {
    fn construct() -> Self {
        CONSTRUCTED.fetch_add(1, Ordering::Relaxed);
        Slate([5; 20])
    }
}

#[test]
fn constructors_run_once_an_object() {
    let cache = ConstructedCache::<Slate>::new("slate").unwrap();
    let mut first = cache.alloc().unwrap();
    assert_eq!(first.0, [5; 20]);
    first.0[3] = 9;
    let place = std::ptr::addr_of!(*first);
    let before = CONSTRUCTED.load(Ordering::Relaxed);
    drop(first);
    let again = cache.alloc().unwrap();
    assert_eq!(CONSTRUCTED.load(Ordering::Relaxed), before);
    if std::ptr::addr_of!(*again) == place {
        assert_eq!(again.0[3], 9);
    }
}

struct Owner(#[allow(dead_code)] Vec<u8>);

impl Constructed for Owner {
    fn construct() -> Self {
        unreachable!("its cache is refused")
    }
}

#[test]
fn wrong_caches_are_refused() {
    assert_eq!(Cache::<u64>::new("").unwrap_err().errno(), EINVAL);
    assert_eq!(Cache::<u64>::new("zero\0byte").unwrap_err().errno(), EINVAL);
    assert_eq!(Cache::<()>::new("nothing").unwrap_err().errno(), EINVAL);
    assert_eq!(
        ConstructedCache::<Owner>::new("owner").unwrap_err().errno(),
        EINVAL
    );
    let both = Options::new().engine(Engine::Slub).engine(Engine::Slab);
    let error = Cache::<u64>::with_options("both", &both).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kmem_cache_create: Invalid argument (os error 22)"
    );
}

#[test]
fn caches_and_attributes_are_found() {
    let options = Options::new().no_merge().cache_lines().engine(Engine::Slub);
    let cache = Cache::<[u8; 100]>::with_options("rust-lines", &options).unwrap();
    let _object = cache.alloc([0; 100]).unwrap();
    let found = caches().find(|info| info.name() == "rust-lines").unwrap();
    assert_eq!(
        (found.align, found.slab_size, found.engine().as_str()),
        (64, 128, "slub")
    );
    assert_eq!(attribute("rust-lines", "object_size").unwrap(), "100");
    set_attribute("rust-lines", "min_partial", "7").unwrap();
    assert_eq!(attribute("rust-lines", "min_partial").unwrap(), "7");
    assert_eq!(attribute("rust-lines", "none").unwrap_err().errno(), ENOENT);
    assert_eq!(
        set_attribute("no such cache", "min_partial", "7")
            .unwrap_err()
            .errno(),
        ENOENT
    );
}

#[test]
fn structs_are_as_large_as_the_librarys() {
    assert_eq!(stats().unwrap().size, std::mem::size_of::<kmem::Stats>());
    let info = caches().next().unwrap();
    assert_eq!(info.size, std::mem::size_of::<kmem_sys::kmem_cache_info>());
}

#[test]
fn threads_share_a_cache() {
    let cache = Cache::new("shared").unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = Vec::new();
                for number in 0..20_000_u64 {
                    held.push(cache.alloc(number).unwrap());
                    if number % 3 == 0 {
                        held.swap_remove(number as usize % held.len());
                    }
                }
            });
        }
        let given = cache.alloc(1).unwrap();
        scope.spawn(move || drop(given));
    });
    assert_eq!(cache.info().unwrap().objects_inuse, 0);
}
