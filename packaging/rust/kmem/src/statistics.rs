// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the heap and its caches hold.

use crate::Error;
use kmem_sys as sys;
use std::ffi::{CStr, CString};
use std::mem::{size_of, MaybeUninit};
use std::ops::Deref;

/// Figures of the process's heap; the fields are described at `struct kmem_stats` of `kmem.h`.
pub type Stats = sys::kmem_stats;

/// Figures of the heap. Takes some microseconds a cache.
pub fn stats() -> Result<Stats, Error> {
    let mut stats = Stats {
        size: size_of::<Stats>(),
        ..Stats::default()
    };
    // SAFETY: the size says how many bytes may be written.
    match unsafe { sys::kmem_stats_get(&mut stats) } {
        0 => Ok(stats),
        _ => Err(Error::last("kmem_stats_get")),
    }
}

/// Figures of a cache; the fields are described at `struct kmem_cache_info` of `kmem.h`.
#[derive(Clone, Copy, Debug)]
pub struct CacheInfo(sys::kmem_cache_info);

impl CacheInfo {
    pub(crate) fn empty() -> Self {
        // SAFETY: integers only, of which all may be zero.
        let mut info: sys::kmem_cache_info = unsafe { MaybeUninit::zeroed().assume_init() };
        info.size = size_of::<sys::kmem_cache_info>();
        CacheInfo(info)
    }

    pub(crate) fn raw(&mut self) -> *mut sys::kmem_cache_info {
        &mut self.0
    }

    /// The cache's name.
    pub fn name(&self) -> String {
        // SAFETY: the library ends the name with a zero byte, and here all bytes were zero before.
        unsafe { CStr::from_ptr(self.0.name.as_ptr()) }
            .to_string_lossy()
            .into_owned()
    }

    /// The cache's back end: `slub`, `slab` or `slob`.
    pub fn engine(&self) -> String {
        // SAFETY: as the name.
        unsafe { CStr::from_ptr(self.0.engine.as_ptr()) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Deref for CacheInfo {
    type Target = sys::kmem_cache_info;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A walk over all caches; see [`caches`].
#[derive(Debug, Default)]
pub struct Caches {
    position: u64,
}

/// All caches of the process, the newest first, malloc's among them. Caches that are made meanwhile are not
/// in it.
pub fn caches() -> Caches {
    Caches::default()
}

impl Iterator for Caches {
    type Item = CacheInfo;

    fn next(&mut self) -> Option<CacheInfo> {
        let mut info = CacheInfo::empty();
        // SAFETY: the size says how many bytes may be written.
        match unsafe { sys::kmem_cache_next(&mut self.position, info.raw()) } {
            1 => Some(info),
            _ => None,
        }
    }
}

fn text(call: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::invalid(call))
}

/// An attribute of a cache, by the names of `/sys/kernel/slab`, without the newline at its end.
pub fn attribute(cache: &str, name: &str) -> Result<String, Error> {
    const CALL: &str = "kmem_attr_read";
    let (cache, name) = (text(CALL, cache)?, text(CALL, name)?);
    let mut bytes = vec![0u8; sys::KMEM_ATTR_BYTES];
    // SAFETY: as many bytes may be written as are said.
    let length = unsafe {
        sys::kmem_attr_read(
            cache.as_ptr(),
            name.as_ptr(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
        )
    };
    let length = usize::try_from(length).map_err(|_| Error::last(CALL))?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes)
        .trim_end_matches('\n')
        .to_owned())
}

/// Changes an attribute of a cache.
pub fn set_attribute(cache: &str, name: &str, value: &str) -> Result<(), Error> {
    const CALL: &str = "kmem_attr_write";
    let (cache, name, value) = (text(CALL, cache)?, text(CALL, name)?, text(CALL, value)?);
    // SAFETY: the strings end with zero bytes.
    match unsafe { sys::kmem_attr_write(cache.as_ptr(), name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::last(CALL)),
    }
}
