//! The memory into which the kernel writes the records of an event.
//!
//! The first page holds two positions: how far the kernel has written, and how far this program has read. The ring
//! follows that page (`perf_event_open(2)`, section "MMAP layout"). The kernel never overwrites unread records: records
//! without room are counted as lost.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{HEADER, RecordHeader, SAMPLE_HEAD, SampleHead};

/// Offsets in the first page (`struct perf_event_mmap_page`): how far the kernel has written, and how far this program
/// has read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The smallest ring in bytes: a smaller one has no room for even one sample.
const SMALLEST: usize = 32 << 10;

/// A ring that is mapped into memory.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    /// The bytes of the ring without the first page: a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone, has the same address in every thread, and does not depend on the
// thread that created it.
#[allow(unsafe_code, reason = "a pointer says nothing of who may use what it points to")]
unsafe impl Send for Ring {}

/// The result of reading a ring, apart from the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Clock samples of other processes, which were skipped after reading their first fields.
    pub unwanted: u64,
    /// Whether a record was malformed, so that the rest of the ring was skipped.
    pub broken: bool,
}

impl Ring {
    /// Maps the ring of an event with at most `bytes`, rounded up to a power of two. If the kernel allows less memory
    /// to be locked (`perf_event_mlock_kb` and RLIMIT_MEMLOCK), the ring is as large as allowed.
    ///
    /// # Errors
    ///
    /// The kernel's error if not even the smallest ring can be mapped: EPERM if too much memory is locked already.
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

    /// The size of the part that holds records, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether there are no records to read.
    pub fn is_empty(&self) -> bool {
        self.place(HEAD).load(Ordering::Acquire) == self.place(TAIL).load(Ordering::Relaxed)
    }

    /// Passes all records to `each` that were in the ring when this was called. Samples of other processes are skipped:
    /// only their first fields are read.
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

    /// Like [`Ring::drain`], but stops at the first record for which `each` breaks; that record stays in the ring.
    /// `wanted` gets the first fields of each record that names a process, in order, and decides whether `each` gets
    /// the record. Records other than samples look like samples by a clock.
    pub fn drain_until(
        &mut self,
        mut wanted: impl FnMut(SampleHead) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Drained {
        let mut drained = Drained::default();
        // Acquire: makes everything visible that the kernel wrote before it moved the head.
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
                        // The buffer is never shrunk, since long and short records alternate.
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
            // Gives the space back to the kernel.
            self.place(TAIL).store(tail, Ordering::Release);
        }
        self.place(TAIL).store(tail, Ordering::Release);
        drained
    }

    /// The header of the record at position `at`, if the ring holds a whole header and record; `there` is the number of
    /// unread bytes.
    fn header(&self, at: u64, there: u64) -> Option<RecordHeader> {
        if there > self.size as u64 || there < HEADER as u64 {
            return None;
        }
        let mut bytes = [0; HEADER];
        self.copy(at, &mut bytes);
        RecordHeader::parse(bytes).ok().filter(|header| header.length as u64 <= there)
    }

    /// The first fields of a record that decide whether it is passed on; `None` if it is passed on in any case.
    fn head(&self, header: RecordHeader, at: u64) -> Option<SampleHead> {
        if header.is_sample() && header.length >= SAMPLE_HEAD {
            let mut bytes = [0; SAMPLE_HEAD];
            self.copy(at, &mut bytes);
            return header.sample_head(bytes);
        }
        let mut bytes = [0; 4];
        // A record that is too short for its process id cannot be parsed either.
        let place = header.process_at().filter(|place| place + bytes.len() <= header.length)?;
        self.copy(at.wrapping_add(place as u64), &mut bytes);
        Some(SampleHead { process: u32::from_ne_bytes(bytes), switched_nano: None })
    }

    /// The bytes at a position between tail and head; `None` if they wrap around to the start of the ring.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn in_one_piece(&self, at: u64, length: usize) -> Option<&[u8]> {
        #[allow(clippy::cast_possible_truncation, reason = "the ring's size is an address space's at most")]
        let offset = at as usize & (self.size - 1);
        // SAFETY: the range is within the mapping, which lives as long as `self`. The kernel does not write between
        // tail and head, and only `drain_until` moves the tail, after the record was used.
        let bytes = || unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.page + offset), length) };
        (length <= self.size - offset).then(bytes)
    }

    /// Copies the bytes at a position. At the end of the ring they wrap around to its start.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn copy(&self, at: u64, to: &mut [u8]) {
        let length = to.len().min(self.size);
        #[allow(clippy::cast_possible_truncation, reason = "the ring's size is an address space's at most")]
        let offset = at as usize & (self.size - 1);
        let before = length.min(self.size - offset);
        // SAFETY: `offset + before` and `length - before` are at most `size`, so both sources are within the mapping;
        // the target has `length` bytes. The kernel writes nothing between tail and head, and even if it did, any byte
        // is a valid value.
        unsafe {
            let ring = self.base.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(ring.add(offset), to.as_mut_ptr(), before);
            std::ptr::copy_nonoverlapping(ring, to.as_mut_ptr().add(before), length - before);
        }
    }

    /// One of the positions in the first page.
    #[allow(unsafe_code, reason = "the kernel shares this memory by its address alone")]
    fn place(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the address is in the first page, which is mapped as long as `self` lives, and is a multiple of 8.
        // The kernel reads and writes these numbers as a whole, and this program only atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Ring {
    #[allow(unsafe_code, reason = "nothing safe unmaps memory that was mapped by its address")]
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}

fn page_size() -> io::Result<usize> {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    usize::try_from(size).map_err(io::Error::other)
}

/// Maps an event's memory, or anonymous memory without an event.
#[allow(unsafe_code, reason = "nothing safe maps memory that somebody else writes")]
fn map(event: Option<BorrowedFd<'_>>, length: usize) -> io::Result<NonNull<u8>> {
    let (file, flags) = match event {
        Some(event) => (event.as_raw_fd(), libc::MAP_SHARED),
        None => (-1, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
    };
    // SAFETY: a new mapping at an address that the kernel chooses does not touch existing memory.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("memory was mapped at address 0"))
}

#[cfg(test)]
pub(crate) mod tests;
