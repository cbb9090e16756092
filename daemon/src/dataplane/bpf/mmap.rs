//! A memory-mapped BPF array: single aligned stores that the program sees at once.
#![allow(unsafe_code, reason = "mmap and volatile access to memory that the kernel shares")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;

/// Elements of type `T`, as many as the map has.
pub(crate) struct Mapped<T> {
    base: NonNull<u8>,
    bytes: usize,
    entries: u32,
    element: PhantomData<T>,
}

// SAFETY: the mapping is valid from every thread; all access is volatile or atomic.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above; writers that share a field use the atomic methods.
unsafe impl<T> Sync for Mapped<T> {}

impl<T: Pod> Mapped<T> {
    /// Bytes from one element to the next: the kernel rounds the value size up to 8.
    const STRIDE: usize = size_of::<T>().next_multiple_of(8);

    /// Maps an array made with `BPF_F_MMAPABLE`.
    pub(crate) fn new(map: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let bytes = Self::STRIDE * entries as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping of a file descriptor; the kernel picks the address and checks the length.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, bytes, entries, element: PhantomData })
    }

    fn at(&self, index: u32) -> *mut u8 {
        assert!(index < self.entries, "index {index} of an array of {}", self.entries);
        // SAFETY: index is below the number of elements, so the offset stays in the mapping.
        unsafe { self.base.as_ptr().add(index as usize * Self::STRIDE) }
    }

    /// Copies an element out.
    pub(crate) fn read(&self, index: u32) -> T {
        // SAFETY: in bounds; stride and mapping keep `T`'s alignment up to 8, `RingBlock` is read byte-wise aligned to 64
        // since its stride is 64 and mappings start on pages; any bit pattern is a `T`.
        unsafe { ptr::read_volatile(self.at(index).cast()) }
    }

    /// Writes an element that no CPU reads yet.
    pub(crate) fn write(&self, index: u32, value: T) {
        // SAFETY: as in `read`.
        unsafe { ptr::write_volatile(self.at(index).cast(), value) }
    }

    /// Stores an aligned 32-bit field at `offset` of an element, after everything written before it.
    pub(crate) fn store_u32(&self, index: u32, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= size_of::<T>());
        // SAFETY: in bounds and aligned; shared with the kernel, which reads it with one load.
        let field = unsafe { AtomicU32::from_ptr(self.at(index).add(offset).cast()) };
        field.store(value, Ordering::Release);
    }

    /// Stores an aligned 64-bit field at `offset` of an element, after everything written before it.
    pub(crate) fn store_u64(&self, index: u32, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= size_of::<T>());
        // SAFETY: in bounds and aligned; shared with the kernel, which reads it with one load.
        let field = unsafe { AtomicU64::from_ptr(self.at(index).add(offset).cast()) };
        field.store(value, Ordering::Release);
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
