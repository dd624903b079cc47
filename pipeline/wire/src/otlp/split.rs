//! Splits a batch into parts that each fit a size, so that a peer's limit causes no loss.
//!
//! A batch that is too large is halved by its observations, and each half again, between profiles or within one. Each
//! part has only the dictionary entries that it uses. A part that cannot be split further is returned at its size, for
//! the caller to reject and count.

use profbridge_model::Profiles;
use profbridge_model::arena::Transfer;
use profbridge_model::compact::part;

use super::encode::{EncodeOptions, encoded_len};

/// Maximum factor by which splitting may increase the total size. All parts may need the same names; if one name is
/// longer than the limit, splitting does not help, and a thousand parts would carry it a thousand times.
const MOST_GROWTH: usize = 8;

/// The parts of a batch, created on demand: only a handful exist at a time.
#[derive(Debug)]
pub struct Split {
    /// The remaining candidates with their encoded sizes; the last one is next.
    pending: Vec<(Profiles, usize)>,
    max_bytes: usize,
    options: EncodeOptions,
    /// How many more bytes the parts may have in total than the batch.
    growth: usize,
    transfer: Transfer,
}

/// Splits a batch into parts of at most `max_bytes` encoded bytes, in order. A batch that fits is returned unmodified
/// as its only part.
pub fn split(profiles: &Profiles, max_bytes: usize, options: &EncodeOptions) -> Split {
    let size = encoded_len(profiles, options);
    Split {
        pending: vec![(profiles.clone(), size)],
        max_bytes,
        options: *options,
        growth: size.saturating_mul(MOST_GROWTH),
        transfer: Transfer::default(),
    }
}

impl Split {
    /// The two halves of a batch, if it can be split and their sizes are allowed.
    fn halves(&mut self, batch: &Profiles, size: usize) -> Option<[(Profiles, usize); 2]> {
        let observations = batch.observations();
        if observations < 2 {
            return None;
        }
        let half = observations / 2;
        // A part can be addressed if the whole batch could.
        let first = part(batch, 0..half, &mut self.transfer).ok()?;
        let second = part(batch, half..observations, &mut self.transfer).ok()?;
        let sizes = [encoded_len(&first, &self.options), encoded_len(&second, &self.options)];
        self.growth = self.growth.checked_sub((sizes[0] + sizes[1]).saturating_sub(size))?;
        Some([(first, sizes[0]), (second, sizes[1])])
    }
}

impl Iterator for Split {
    type Item = Profiles;

    fn next(&mut self) -> Option<Profiles> {
        loop {
            let (batch, size) = self.pending.pop()?;
            if size <= self.max_bytes {
                return Some(batch);
            }
            let Some([first, second]) = self.halves(&batch, size) else { return Some(batch) };
            self.pending.push(second);
            self.pending.push(first);
        }
    }
}
