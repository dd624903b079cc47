//! Memory for requests, which is taken before they are read.

use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::Intake;
use super::rejections::out_of_memory;
use crate::budget::{Exhausted, LARGE, Permit};
use crate::component::{Rejected, Retry};

/// While requests wait for memory, several bodies without an announced length, or decompressed ones, may each grow to
/// this size in bytes. The limit keeps their total small compared with the one request that may take more.
pub(crate) const MAX_UNANNOUNCED: u64 = 256 * 1024;

impl Intake {
    /// Takes memory for a request of `bytes`, before its body is read.
    ///
    /// # Errors
    ///
    /// The memory budget is used up: the sender may retry. Or `bytes` alone exceeds the budget: the sender must not
    /// retry.
    pub fn admit(&self, bytes: u64) -> Result<Permit, Rejected> {
        self.shared.budget.admit(bytes).map_err(out_of_memory)
    }

    /// Like [`Intake::admit`], but waits for memory if the request may wait.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`], once the deadline has passed.
    pub async fn admit_waiting(&self, bytes: u64) -> Result<Permit, Rejected> {
        let mut permit = self.shared.budget.charge(0);
        self.grow_waiting(&mut permit, bytes).await?;
        Ok(permit)
    }

    /// Like [`Intake::grow_waiting`], for a runtime thread that may block. Outside of its turn ([`Intake::in_turn`]) a
    /// request waits only for up to 256 KiB. `all` is the memory that the request takes in total, including `more`.
    ///
    /// # Errors
    ///
    /// As [`Intake::grow_waiting`].
    pub fn grow_blocking(&self, permit: &mut Permit, more: u64, all: u64) -> Result<(), Rejected> {
        let may_wait = self.turn.is_some() || all <= MAX_UNANNOUNCED;
        match self.grow(permit, more) {
            Err(rejected) if may_wait && rejected.retry != Retry::Never && !self.is_past_deadline() => {
                Handle::current().block_on(self.grown_leaving(permit, more, false))
            }
            result => result,
        }
    }

    /// Like [`Intake::grow_blocking`], until the permit covers `all`.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn grow_to(&self, permit: &mut Permit, all: u64) -> Result<(), Rejected> {
        self.grow_blocking(permit, all.saturating_sub(permit.bytes()), all)
    }

    /// The same intake for a request in its turn. Only one request at a time has a turn; it ends when this intake is
    /// dropped. Only in its turn may a request wait for much memory while it holds some, because two such requests
    /// would deadlock.
    ///
    /// # Errors
    ///
    /// The request may not wait, or its turn did not begin before the deadline.
    pub async fn in_turn(&self) -> Result<Self, Rejected> {
        Ok(Self { turn: self.wait_to_grow_large().await?.map(Arc::new), ..self.clone() })
    }

    /// Like [`Intake::grow`], but waits for memory if the request may wait. A large request then leaves memory to small
    /// ones, which overtake it.
    ///
    /// # Errors
    ///
    /// As [`Intake::grow`], once the deadline has passed.
    pub async fn grow_waiting(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        self.grown_leaving(permit, more, self.may_wait()).await
    }

    async fn grown_leaving(&self, permit: &mut Permit, more: u64, leaves: bool) -> Result<(), Rejected> {
        if more == 0 {
            return Ok(());
        }
        let refused = match self.try_grow(permit, more, leaves) {
            Err(rejected) if rejected.retry != Retry::Never && !self.is_past_deadline() => rejected,
            result => return result,
        };
        loop {
            // Registers before the attempt, so that memory released in between is not missed.
            let mut freed = pin!(self.shared.budget.freed());
            freed.as_mut().enable();
            if self.try_grow(permit, more, leaves).is_ok() {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.deadline() => return Err(refused),
                () = self.shared.end.shutdown.clone().triggered() => return Err(refused),
            }
        }
    }

    /// Waits until no other request grows large without an announced length.
    ///
    /// # Errors
    ///
    /// The other request has not ended before the deadline.
    pub(crate) async fn wait_to_grow_large(&self) -> Result<Option<OwnedSemaphorePermit>, Rejected> {
        tokio::select! {
            turn = self.shared.budget.wait_to_grow_large() => Ok(turn),
            () = self.deadline() => {
                let (used, limit) = (self.shared.budget.used(), self.shared.budget.limit());
                Err(out_of_memory(Exhausted { wanted: LARGE, used, limit }))
            }
        }
    }

    /// Takes more memory for a request that grew by decompression or decoding.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`]. The permit is unchanged.
    pub fn grow(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        self.try_grow(permit, more, false)
    }

    fn try_grow(&self, permit: &mut Permit, more: u64, leaves: bool) -> Result<(), Rejected> {
        let all = permit.bytes().saturating_add(more);
        let grow_waiting = if leaves { permit.grow_leaving_room_for_small(more) } else { permit.grow(more) };
        grow_waiting.map_err(|exhausted| {
            // The memory that the request already has counts too: the sender of a request that can never fit must not
            // retry it forever.
            let wanted = if all > exhausted.limit { all } else { more };
            out_of_memory(Exhausted { wanted, ..exhausted })
        })
    }

    /// The memory limit of all data, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.shared.budget.limit()
    }

    /// Reports that a large request ended before it reached a pipeline. Its memory is returned to the system, if enough
    /// has been released.
    pub fn refused_large(&self) {
        self.shared.budget.give_back_freed();
    }
}
