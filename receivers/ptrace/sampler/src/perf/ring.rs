//! The memory into which the kernel writes the records of one event.
//!
//! The first page has two positions: up to where the kernel has written, and up to where this program has read. The
//! ring follows it (`perf_event_open(2)`, "MMAP layout"). The kernel never overwrites what was not read: records that
//! find no room are counted as lost.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{HEADER, Header, SAMPLE_HEAD, SampleHead};

/// Offsets in the first page (`struct perf_event_mmap_page`): up to where the kernel wrote, and up to where this
/// program has read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The smallest ring in bytes: less has no room for a single sample.
const SMALLEST: usize = 32 << 10;

/// A ring, mapped.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    /// The bytes of the ring without the first page: a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone, is found at the same address from every thread, and nothing about it
// depends on the thread that made it.
#[allow(unsafe_code, reason = "a pointer says nothing of who may use what it points to")]
unsafe impl Send for Ring {}

/// What a ring held besides the records that were passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Samples by a clock of unwanted processes, of which only the head was read.
    pub unwanted: u64,
    /// Whether a record was malformed, so that the rest of the ring was skipped.
    pub broken: bool,
}

impl Ring {
    /// Maps the ring of an event with at most `bytes`, rounded up to a power of two. Where the kernel allows less
    /// memory to be locked (`perf_event_mlock_kb` and RLIMIT_MEMLOCK), the ring is as large as allowed.
    ///
    /// # Errors
    ///
    /// The kernel's error where not even the smallest ring can be mapped: EPERM if too much memory is locked already.
    pub fn map(event: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let page = page_size()?;
        let mut size = bytes.max(SMALLEST).next_power_of_two().max(page);
        loop {
            match map(Some(event), page + size) {
                Ok(base) => return Ok(Self { base, page, size }),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && size > SMALLEST => size /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// The room for records, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether there is nothing to be read.
    pub fn is_empty(&self) -> bool {
        self.place(HEAD).load(Ordering::Acquire) == self.place(TAIL).load(Ordering::Relaxed)
    }

    /// Passes on all records that were there when this was called. Samples of processes that are not wanted are
    /// skipped: only their head is read.
    pub fn drain(
        &mut self,
        wanted: impl Fn(u32) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Drained {
        self.drain_until(
            |head| wanted(head.process),
            buffer,
            |record| {
                each(record);
                ControlFlow::Continue(())
            },
        )
    }

    /// The same up to the first record that is broken off at, which stays. `wanted` sees the heads of all samples in
    /// their order, before they are passed on or skipped; records other than samples look like samples by a clock.
    pub fn drain_until(
        &mut self,
        mut wanted: impl FnMut(SampleHead) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Drained {
        let mut drained = Drained::default();
        // Acquire: what the kernel wrote before it moved the head is visible now.
        let head = self.place(HEAD).load(Ordering::Acquire);
        let mut tail = self.place(TAIL).load(Ordering::Relaxed);
        while tail != head {
            let there = head.wrapping_sub(tail);
            let Some(header) = self.header(tail, there) else {
                drained.broken = true;
                tail = head;
                break;
            };
            let head = self.head(header, tail);
            if head.is_none_or(&mut wanted) {
                let record = match self.in_one_piece(tail, header.length) {
                    Some(record) => record,
                    None => {
                        // Grows only: long records and short ones follow each other.
                        buffer.resize(buffer.len().max(header.length), 0);
                        self.copy(tail, &mut buffer[..header.length]);
                        &buffer[..header.length]
                    }
                };
                if each(record).is_break() {
                    break;
                }
            } else {
                let is_by_clock = head.is_none_or(|head| head.switched_nano.is_none());
                drained.unwanted += u64::from(header.is_sample() && is_by_clock);
            }
            tail = tail.wrapping_add(header.length as u64);
            // Frees the space for the kernel.
            self.place(TAIL).store(tail, Ordering::Release);
        }
        self.place(TAIL).store(tail, Ordering::Release);
        drained
    }

    /// The header of the record at position `at`, if there is a whole header before `there`.
    fn header(&self, at: u64, there: u64) -> Option<Header> {
        if there > self.size as u64 || there < HEADER as u64 {
            return None;
        }
        let mut bytes = [0; HEADER];
        self.copy(at, &mut bytes);
        Header::read(bytes).ok().filter(|header| header.length as u64 <= there)
    }

    /// Of which process a record is, and whether it is the sample of a switch; `None` if it is wanted in any case.
    fn head(&self, header: Header, at: u64) -> Option<SampleHead> {
        if header.is_sample() && header.length >= SAMPLE_HEAD {
            let mut bytes = [0; SAMPLE_HEAD];
            self.copy(at, &mut bytes);
            return header.sample_head(bytes);
        }
        let mut bytes = [0; 4];
        // A record that is too short to tell its process cannot be parsed either.
        let place = header.process_at().filter(|place| place + bytes.len() <= header.length)?;
        self.copy(at.wrapping_add(place as u64), &mut bytes);
        Some(SampleHead { process: u32::from_ne_bytes(bytes), switched_nano: None })
    }

    /// The bytes from a position on, which is between tail and head; `None` if they go on at the start of the ring.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn in_one_piece(&self, at: u64, length: usize) -> Option<&[u8]> {
        #[allow(clippy::cast_possible_truncation, reason = "the ring's size is an address space's at most")]
        let offset = at as usize & (self.size - 1);
        // SAFETY: the range is within the mapping, which lives as long as `self`. The kernel does not write between
        // tail and head, and the tail is moved by `drain_until` alone, after the record was used.
        let bytes = || unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.page + offset), length) };
        (length <= self.size - offset).then(bytes)
    }

    /// Copies bytes from a position on. At the end of the ring they continue at its start.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn copy(&self, at: u64, to: &mut [u8]) {
        let length = to.len().min(self.size);
        #[allow(clippy::cast_possible_truncation, reason = "the ring's size is an address space's at most")]
        let offset = at as usize & (self.size - 1);
        let before = length.min(self.size - offset);
        // SAFETY: `offset + before` and `length - before` are at most `size`, so both sources are within the mapping;
        // the target has `length` bytes. Between tail and head the kernel writes nothing, and should it, any byte is a
        // value.
        unsafe {
            let ring = self.base.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(ring.add(offset), to.as_mut_ptr(), before);
            std::ptr::copy_nonoverlapping(ring, to.as_mut_ptr().add(before), length - before);
        }
    }

    /// A number in the first page.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn place(&self, at: usize) -> &AtomicU64 {
        // SAFETY: it is in the first page, which is mapped as long as `self` lives, and at a multiple of 8. The kernel
        // reads and writes these numbers as a whole, and nothing here does without atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Ring {
    #[allow(unsafe_code, reason = "nothing safe unmaps memory that was mapped by its address")]
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}

fn page_size() -> io::Result<usize> {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    usize::try_from(size).map_err(io::Error::other)
}

/// Maps an event's memory; without an event, memory of nobody else.
#[allow(unsafe_code, reason = "nothing safe maps memory that somebody else writes")]
fn map(event: Option<BorrowedFd<'_>>, length: usize) -> io::Result<NonNull<u8>> {
    let (file, flags) = match event {
        Some(event) => (event.as_raw_fd(), libc::MAP_SHARED),
        None => (-1, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
    };
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that is there.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("memory was mapped at address 0"))
}

#[cfg(test)]
pub(crate) mod tests;
