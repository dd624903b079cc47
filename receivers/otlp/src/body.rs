//! A request's bytes, read under the memory budget.
//!
//! The announced length is asked for at once, so that a request that cannot fit is told so before it is sent, and then
//! given back: held is what arrives, since a thousand peers can announce 64 MiB each and send nothing. The buffer
//! doubles up to the announced length, so a true announcement ends in a buffer without slack.

use bytes::{Buf as _, Bytes};
use http_body::Body;
use http_body_util::BodyExt as _;
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_net::BoxError;
use profbridge_net::body::{BodyLimits, Guarded};

use crate::fault::Fault;

/// The buffer's first size, in bytes, unless less is announced.
const FIRST: usize = 64 * 1024;

/// Bytes and the memory that they take.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    pub(crate) permit: Permit,
}

/// A buffer that asks the budget before it grows.
pub(crate) struct Buffer<'a> {
    intake: &'a Intake,
    permit: Permit,
    bytes: Vec<u8>,
    /// How many bytes are expected; more may come.
    announced: usize,
}

impl<'a> Buffer<'a> {
    /// An empty buffer for a request that announces so many bytes, or nothing.
    pub(crate) fn new(intake: &'a Intake, announced: Option<usize>) -> Result<Self, Fault> {
        let announced = announced.unwrap_or(0);
        let mut permit = intake.admit(announced as u64)?;
        permit.set(0);
        Ok(Self { intake, permit, bytes: Vec::new(), announced })
    }

    /// Makes room for `more` bytes.
    fn reserve(&mut self, more: usize) -> Result<(), Fault> {
        let needed = self.bytes.len().saturating_add(more);
        let capacity = self.bytes.capacity();
        if needed <= capacity {
            return Ok(());
        }
        let mut target = capacity.saturating_mul(2).max(FIRST);
        if self.announced > 0 {
            target = target.min(self.announced);
        }
        let target = target.max(needed);
        self.intake.grow(&mut self.permit, (target - capacity) as u64)?;
        self.bytes.reserve_exact(target - self.bytes.len());
        Ok(())
    }

    /// Takes up to `most` bytes of `data`.
    pub(crate) fn take(&mut self, data: &mut Bytes, most: usize) -> Result<(), Fault> {
        let taken = data.split_to(most.min(data.len()));
        self.reserve(taken.len())?;
        self.bytes.extend_from_slice(&taken);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Received {
        Received { bytes: self.bytes.into(), permit: self.permit }
    }
}

/// Reads a whole body.
pub(crate) async fn read<B>(body: B, limits: BodyLimits, intake: &Intake) -> Result<Received, Fault>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // Compared before the budget is asked: too large is an answer for good.
    let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if announced.is_some_and(|length| length > limits.max_bytes) {
        return Err(Fault::too_large(limits.max_bytes));
    }
    let mut buffer = Buffer::new(intake, announced)?;
    let mut body = Guarded::new(body, limits);
    while let Some(frame) = body.frame().await {
        if let Ok(mut data) = frame?.into_data() {
            buffer.take(&mut data, usize::MAX)?;
        }
    }
    Ok(buffer.finish())
}

/// Reads what is left of a body and forgets it.
pub(crate) async fn discard<B>(body: B, limits: BodyLimits)
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    let mut body = Guarded::new(body, limits);
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(mut data) = frame.into_data() {
            data.advance(data.remaining());
        }
    }
}
