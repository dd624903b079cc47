//! Finds the profiles in an envelope's items.

use std::iter::Enumerate;
use std::slice;

use profbridge_model::{Envelope, Item, Profiles};

use super::chunk_reader;
use super::envelope::ItemHeader;
use super::sampled::{ProfileError, SampledProfile};
use super::v1_reader::{self, Companion};

/// The content type of chunks with a Perfetto trace (getsentry/relay `relay-server/src/envelope/content_type.rs`).
const PERFETTO: &str = "application/x-perfetto-trace";

/// Reads the profiles of an envelope's items in order, each with its item's position: chunks, and profiles of sample
/// format V1 together with their transaction. Items of other types are skipped, as are compressed payloads.
///
/// Profiles in other formats (Android's or Perfetto's traces, other versions) are also skipped: they are valid and can
/// be forwarded unread. [`ProfileItems::passed_over`] counts them.
pub fn read_items(envelope: &Envelope) -> ProfileItems<'_> {
    ProfileItems { envelope, rest: envelope.items.iter().enumerate(), passed_over: 0, left_out: 0, unused: 0 }
}

/// The profiles of an envelope; each is read on demand.
#[derive(Debug, Clone)]
pub struct ProfileItems<'a> {
    envelope: &'a Envelope,
    rest: Enumerate<slice::Iter<'a, Item>>,
    passed_over: u64,
    left_out: u64,
    unused: u64,
}

impl ProfileItems<'_> {
    /// Number of profiles in other formats skipped so far.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Number of samples dropped so far by the rules of sample format V1, see [`v1_reader`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Number of stacks, frames and threads with metadata that no sample used so far. They show nothing and are not in
    /// the batches.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    fn read(&mut self, item: &Item) -> Option<Result<Profiles, ProfileError>> {
        let header = ItemHeader::read(&item.header).ok()?;
        let (is_chunk, is_v1) = (header.is_profile_chunk(), header.kind == "profile");
        if !is_chunk && !is_v1 {
            return None;
        }
        if header.content_type.as_deref() == Some(PERFETTO) {
            self.passed_over += 1;
            return None;
        }
        let payload = item.payload.plain()?;
        let read = if is_chunk {
            chunk_reader::read_of(payload, header.platform.as_deref())
        } else {
            let companion = Companion::find(self.envelope, header.sampled);
            v1_reader::read(payload, &companion)
        };
        let read = read.map(|SampledProfile { profiles, left_out, unused }| {
            self.left_out += left_out;
            self.unused += unused;
            profiles
        });
        if let Err(ProfileError::OtherFormat(_)) = read {
            self.passed_over += 1;
            return None;
        }
        Some(read)
    }
}

impl Iterator for ProfileItems<'_> {
    type Item = (usize, Result<Profiles, ProfileError>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((position, item)) = self.rest.next() {
            if let Some(read) = self.read(item) {
                return Some((position, read));
            }
        }
        None
    }
}
