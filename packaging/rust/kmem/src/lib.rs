// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Linux slab allocators for programs: libkmem in Rust.
//!
//! [`Malloc`] makes the library the program's allocator, [`Cache`] and [`ConstructedCache`] have objects of
//! one type, and [`stats`] and [`caches`] tell what the heap holds.
//!
//! ```
//! #[global_allocator]
//! static A: kmem::Malloc = kmem::Malloc;
//!
//! struct Session {
//!     number: u64,
//! }
//!
//! fn main() -> Result<(), kmem::Error> {
//!     let sessions = kmem::Cache::new("session")?;
//!     let session = sessions.alloc(Session { number: 7 })?;
//!     assert_eq!(session.number, 7);
//!     assert_eq!(sessions.info()?.objects_inuse, 1);
//!     Ok(())
//! }
//! ```
//!
//! The feature `malloc`, a default, is for [`Malloc`]: C code in the program then has the library's malloc too. With
//! `default-features = false` there are caches alone, and malloc stays libc's.
//!
//! Functions that fail return an [`Error`] with the call and the system's reason. The library's options are
//! read from the environment, `KMEM_OPTIONS`, as in programs of C.

mod cache;
mod error;
#[cfg(feature = "malloc")]
mod malloc;
mod statistics;

pub use cache::{Bulk, Cache, Constructed, ConstructedCache, Engine, Object, Options, Reused};
pub use error::Error;
#[cfg(feature = "malloc")]
pub use malloc::{malloc_is_replaced, Malloc};
pub use statistics::{attribute, caches, set_attribute, stats, CacheInfo, Caches, Stats};
