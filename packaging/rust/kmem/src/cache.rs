// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caches of objects of one type.

use crate::{CacheInfo, Error};
use kmem_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, needs_drop, size_of};
use std::ops::{Deref, DerefMut};
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

const CREATE: &str = "kmem_cache_create";

/// The back end of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// SLUB, the usual one.
    Slub,
    /// SLAB.
    Slab,
    /// SLOB.
    Slob,
}

/// Rarely used properties of a new cache.
///
/// ```
/// use kmem::{Cache, Engine, Options};
///
/// let options = Options::new().engine(Engine::Slab).sheaf_capacity(0);
/// let cache: Cache<u64> = Cache::with_options("number", &options)?;
/// assert_eq!(cache.info()?.engine(), "slab");
/// # Ok::<(), kmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    flags: sys::slab_flags_t,
    sheaf_capacity: u32,
}

impl Options {
    /// The library's defaults.
    pub fn new() -> Self {
        Options::default()
    }

    /// The back end; without it option `engine` of `KMEM_OPTIONS` chooses.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.flags |= match engine {
            Engine::Slub => sys::SLAB_ENGINE_SLUB,
            Engine::Slab => sys::SLAB_ENGINE_SLAB,
            Engine::Slob => sys::SLAB_ENGINE_SLOB,
        };
        self
    }

    /// Objects begin at lines of the processor's cache.
    pub fn cache_lines(mut self) -> Self {
        self.flags |= sys::SLAB_HWCACHE_ALIGN;
        self
    }

    /// The cache never shares slabs with others.
    pub fn no_merge(mut self) -> Self {
        self.flags |= sys::SLAB_NO_MERGE;
        self
    }

    /// Objects that a CPU's sheaf holds at least, up to 1022; 0: the library's choice.
    pub fn sheaf_capacity(mut self, objects: u32) -> Self {
        self.sheaf_capacity = objects;
        self
    }
}

/// A cache whose objects all went back, or leaked, before it ends.
struct Raw(NonNull<sys::kmem_cache>);

// SAFETY: every function of the library may be called by any thread.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    fn new<T>(
        name: &str,
        options: &Options,
        ctor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> Result<Self, Error> {
        let name = CString::new(name).map_err(|_| Error::invalid(CREATE))?;
        let limit = |number: usize| u32::try_from(number).map_err(|_| Error::invalid(CREATE));
        let args = sys::kmem_cache_args {
            align: limit(align_of::<T>())?,
            sheaf_capacity: options.sheaf_capacity,
            ctor,
            ..sys::kmem_cache_args::default()
        };
        let size = limit(size_of::<T>())?;
        // SAFETY: name and arguments outlive the call, which copies them.
        let raw = unsafe { sys::kmem_cache_create_args(name.as_ptr(), size, &args, options.flags) };
        NonNull::new(raw)
            .map(Raw)
            .ok_or_else(|| Error::last(CREATE))
    }

    fn alloc<T>(&self) -> Result<NonNull<T>, Error> {
        // SAFETY: the cache lives as long as self.
        let object = unsafe { sys::kmem_cache_alloc(self.0.as_ptr(), sys::GFP_KERNEL) };
        NonNull::new(object.cast()).ok_or_else(|| Error::last("kmem_cache_alloc"))
    }

    /// # Safety
    /// The object is of this cache and is not used any more.
    unsafe fn free<T>(&self, object: NonNull<T>) {
        sys::kmem_cache_free(self.0.as_ptr(), object.as_ptr().cast());
    }

    fn info(&self) -> Result<CacheInfo, Error> {
        let mut info = CacheInfo::empty();
        // SAFETY: the cache lives, and info's size says how many bytes may be written.
        match unsafe { sys::kmem_cache_info(self.0.as_ptr(), info.raw()) } {
            0 => Ok(info),
            _ => Err(Error::last("kmem_cache_info")),
        }
    }

    fn shrink(&self) -> bool {
        // SAFETY: the cache lives.
        unsafe { sys::kmem_cache_shrink(self.0.as_ptr()) == 0 }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: objects borrow their cache, so none is left but those that were forgotten, whose
        // slabs the library leaves where they are.
        unsafe { sys::kmem_cache_destroy(self.0.as_ptr()) }
    }
}

/// A cache of objects of type `T`.
///
/// [`alloc`](Cache::alloc) moves a value into an object and returns an owner, which ends the value and gives the
/// object back when it is dropped. Types without size have no cache (`EINVAL`).
pub struct Cache<T> {
    raw: Raw,
    marker: PhantomData<fn(T) -> T>,
}

impl<T> Cache<T> {
    /// A cache with the library's defaults. The name is for tables; it must not be empty.
    pub fn new(name: &str) -> Result<Self, Error> {
        Cache::with_options(name, &Options::new())
    }

    /// A cache with other properties.
    pub fn with_options(name: &str, options: &Options) -> Result<Self, Error> {
        let raw = Raw::new::<T>(name, options, None)?;
        Ok(Cache {
            raw,
            marker: PhantomData,
        })
    }

    /// An object with this value, or `ENOMEM`; then the value is dropped.
    #[inline]
    pub fn alloc(&self, value: T) -> Result<Object<'_, T>, Error> {
        let object = self.raw.alloc::<T>()?;
        // SAFETY: the object has room for a T, is aligned to it and nobody else's.
        unsafe { object.as_ptr().write(value) };
        Ok(Object {
            cache: self,
            object,
            marker: PhantomData,
        })
    }

    /// `count` objects by one call of the library, all or none (`ENOMEM`). `value` is called for each, in order.
    pub fn alloc_bulk(
        &self,
        count: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> Result<Bulk<'_, T>, Error> {
        const CALL: &str = "kmem_cache_alloc_bulk";
        i32::try_from(count).map_err(|_| Error::invalid(CALL))?;
        let mut objects = vec![ptr::null_mut::<c_void>(); count];
        // SAFETY: there is room for count pointers.
        let taken = unsafe {
            sys::kmem_cache_alloc_bulk(
                self.raw.0.as_ptr(),
                sys::GFP_KERNEL,
                count,
                objects.as_mut_ptr(),
            )
        };
        if taken as usize != count {
            return Err(Error::last(CALL));
        }
        // If value() panics, the objects that have values are ended with them, and all go back.
        let mut bulk = Bulk {
            cache: self,
            objects,
            with_value: 0,
            marker: PhantomData,
        };
        for number in 0..count {
            // SAFETY: as in alloc.
            unsafe { bulk.objects[number].cast::<T>().write(value(number)) };
            bulk.with_value = number + 1;
        }
        Ok(bulk)
    }

    /// Figures of the cache.
    pub fn info(&self) -> Result<CacheInfo, Error> {
        self.raw.info()
    }

    /// Gives back all slabs without objects; whether no slab remains.
    pub fn shrink(&self) -> bool {
        self.raw.shrink()
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Cache({:p})", self.raw.0)
    }
}

/// An object of a [`Cache`] with its value.
pub struct Object<'a, T> {
    cache: &'a Cache<T>,
    object: NonNull<T>,
    marker: PhantomData<T>,
}

// SAFETY: it owns its value as a Box does, and any thread may free it.
unsafe impl<T: Send> Send for Object<'_, T> {}
// SAFETY: shared, it gives shared access to the value.
unsafe impl<T: Sync> Sync for Object<'_, T> {}

impl<T> Object<'_, T> {
    /// The value; the object goes back to its cache.
    pub fn into_inner(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the value is moved out once, as self's drop does not run.
        unsafe {
            let value = this.object.as_ptr().read();
            this.cache.raw.free(this.object);
            value
        }
    }
}

impl<T> Deref for Object<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object has a value as long as self.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Object<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as deref; self is borrowed alone.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for Object<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody uses the value any more. If its drop panics, the object leaks.
        unsafe {
            ptr::drop_in_place(self.object.as_ptr());
            self.cache.raw.free(self.object);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Object<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

/// Objects of a [`Cache`] that came by one call and go back by one.
pub struct Bulk<'a, T> {
    cache: &'a Cache<T>,
    objects: Vec<*mut c_void>,
    with_value: usize,
    marker: PhantomData<T>,
}

// SAFETY: as Object.
unsafe impl<T: Send> Send for Bulk<'_, T> {}
// SAFETY: as Object.
unsafe impl<T: Sync> Sync for Bulk<'_, T> {}

impl<T> Bulk<'_, T> {
    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.with_value
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.with_value == 0
    }

    /// The values, in the order of their making.
    pub fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        // SAFETY: these objects have values as long as self.
        self.objects[..self.with_value]
            .iter()
            .map(|&object| unsafe { &*object.cast::<T>() })
    }

    /// The values, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        // SAFETY: as iter; no two are one object, and self is borrowed alone.
        self.objects[..self.with_value]
            .iter()
            .map(|&object| unsafe { &mut *object.cast::<T>() })
    }
}

impl<T> Drop for Bulk<'_, T> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            for object in &self.objects[..self.with_value] {
                // SAFETY: nobody uses the values any more.
                unsafe { ptr::drop_in_place(object.cast::<T>()) }
            }
        }
        // SAFETY: all objects are of this cache, with values or without.
        unsafe {
            sys::kmem_cache_free_bulk(
                self.cache.raw.0.as_ptr(),
                self.objects.len(),
                self.objects.as_mut_ptr(),
            )
        }
    }
}

/// A type whose objects are constructed once, when their slab is made, and keep their value from one use to the
/// next.
pub trait Constructed: Sized {
    /// A new value. A panic ends the process, as the library's own code is on the stack.
    fn construct() -> Self;
}

unsafe extern "C" fn construct<T: Constructed>(object: *mut c_void) {
    match catch_unwind(AssertUnwindSafe(T::construct)) {
        // SAFETY: the library calls this for an object of the size and alignment of T.
        Ok(value) => object.cast::<T>().write(value),
        Err(_) => std::process::abort(),
    }
}

/// A cache whose objects are constructed once, as with the constructor of `kmem_cache_create`.
///
/// Values are not dropped when the library gives a slab back to the system, so types that must be dropped are
/// refused (`EINVAL`). Constructors must not take objects of their own cache.
///
/// ```
/// use kmem::{Constructed, ConstructedCache};
///
/// struct Buffer([u8; 256]);
///
/// impl Constructed for Buffer {
///     fn construct() -> Self {
///         Buffer([0; 256])
///     }
/// }
///
/// let buffers = ConstructedCache::<Buffer>::new("buffer")?;
/// let mut buffer = buffers.alloc()?;
/// buffer.0[0] = 1; // the next user finds it so
/// # Ok::<(), kmem::Error>(())
/// ```
pub struct ConstructedCache<T: Constructed> {
    raw: Raw,
    marker: PhantomData<fn(T) -> T>,
}

impl<T: Constructed + Send> ConstructedCache<T> {
    /// A cache with the library's defaults.
    pub fn new(name: &str) -> Result<Self, Error> {
        ConstructedCache::with_options(name, &Options::new())
    }

    /// A cache with other properties.
    pub fn with_options(name: &str, options: &Options) -> Result<Self, Error> {
        if needs_drop::<T>() {
            return Err(Error::invalid(CREATE));
        }
        let raw = Raw::new::<T>(name, options, Some(construct::<T>))?;
        Ok(ConstructedCache {
            raw,
            marker: PhantomData,
        })
    }

    /// An object with the value that its last user left, or a new one; or `ENOMEM`.
    #[inline]
    pub fn alloc(&self) -> Result<Reused<'_, T>, Error> {
        let object = self.raw.alloc::<T>()?;
        Ok(Reused {
            cache: self,
            object,
            marker: PhantomData,
        })
    }

    /// Figures of the cache.
    pub fn info(&self) -> Result<CacheInfo, Error> {
        self.raw.info()
    }

    /// Gives back all slabs without objects; whether no slab remains.
    pub fn shrink(&self) -> bool {
        self.raw.shrink()
    }
}

impl<T: Constructed> fmt::Debug for ConstructedCache<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ConstructedCache({:p})", self.raw.0)
    }
}

/// An object of a [`ConstructedCache`], which goes back with its value.
pub struct Reused<'a, T: Constructed> {
    cache: &'a ConstructedCache<T>,
    object: NonNull<T>,
    marker: PhantomData<T>,
}

// SAFETY: as Object; the next user may be another thread, so every T of such a cache is Send.
unsafe impl<T: Constructed + Send> Send for Reused<'_, T> {}
// SAFETY: as Object.
unsafe impl<T: Constructed + Sync> Sync for Reused<'_, T> {}

impl<T: Constructed> Deref for Reused<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object was constructed and is self's alone.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Constructed> DerefMut for Reused<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as deref.
        unsafe { self.object.as_mut() }
    }
}

impl<T: Constructed> Drop for Reused<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is of this cache, and every value of T is a constructed state.
        unsafe { self.cache.raw.free(self.object) }
    }
}
