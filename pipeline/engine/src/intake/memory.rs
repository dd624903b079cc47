//! Memory for requests, taken before they are read.

use std::pin::pin;

use tokio::runtime::Handle;

use super::Intake;
use super::rejections::out_of_memory;
use crate::budget::{Exhausted, Permit};
use crate::component::{Rejected, Retry};

impl Intake {
    /// Takes memory for a request of `bytes`, before its body is read.
    ///
    /// # Errors
    ///
    /// The memory budget is used up: the sender may come back. Or `bytes` alone is more than the budget: it may not.
    pub fn admit(&self, bytes: u64) -> Result<Permit, Rejected> {
        self.shared.budget.admit(bytes).map_err(out_of_memory)
    }

    /// As [`Intake::admit`], and waits for memory where the request may wait.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`], when the deadline has passed.
    pub async fn admitted(&self, bytes: u64) -> Result<Permit, Rejected> {
        let mut permit = self.shared.budget.charge(0);
        self.grown(&mut permit, bytes).await?;
        Ok(permit)
    }

    /// As [`Intake::grown`], for a thread that may block and belongs to a runtime.
    ///
    /// # Errors
    ///
    /// As [`Intake::grown`].
    pub fn grow_blocking(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        match self.grow(permit, more) {
            Err(rejected) if rejected.retry != Retry::Never && !self.has_waited() => {
                Handle::current().block_on(self.grown(permit, more))
            }
            result => result,
        }
    }

    /// As [`Intake::grow`], and waits for memory where the request may wait.
    ///
    /// # Errors
    ///
    /// As [`Intake::grow`], when the deadline has passed.
    pub async fn grown(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        let refused = match self.grow(permit, more) {
            Err(rejected) if rejected.retry != Retry::Never && !self.has_waited() => rejected,
            result => return result,
        };
        let waiting = self.shared.budget.waiting();
        loop {
            // Asked for before the next attempt, so that what is given back in between is not missed.
            let mut freed = pin!(waiting.freed());
            freed.as_mut().enable();
            if self.grow(permit, more).is_ok() {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.deadline() => return Err(refused),
                () = self.shared.end.shutdown.clone().triggered() => return Err(refused),
            }
        }
    }

    /// Takes more memory for a request that turned out larger, by decompression or decoding.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`]. The permit is as it was.
    pub fn grow(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        let all = permit.bytes().saturating_add(more);
        permit.grow(more).map_err(|exhausted| {
            // What the request has already counts too: one that never fits must not come back for ever.
            let wanted = if all > exhausted.limit { all } else { more };
            out_of_memory(Exhausted { wanted, ..exhausted })
        })
    }

    /// Says that a large request is gone without a pipeline having seen it: what it took is given back to the system,
    /// if it is much together with what went before.
    pub fn refused_large(&self) {
        self.shared.budget.give_back_freed();
    }
}
