//! One export call, after it was read and before it is answered: unpacked, decoded, handed to the pipelines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use profbridge_engine::body::{self, Received};
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::TransportTelemetry;
use profbridge_model::{Profiles, Quantities, Reason};
use profbridge_net::compression::Coding;
use profbridge_net::server::Peer;
use profbridge_wire::otlp::{DecodeError, Decoded, Layout, Limits, decode, decode_as};
use tokio::sync::Semaphore;

use crate::fault::{Fault, Kind, shortened};
use crate::origin::Origin;
use crate::producers;

/// Up to so many bytes a request is decoded where it was read: that takes some tens of microseconds, less than to hand
/// it to another thread and back. Not where it is compressed, since it may become a thousand times as much.
const SMALL: usize = 32 * 1024;

/// How many bytes of memory a byte of a request may turn into, in the attempts to decode it. Real requests take 0.7 and
/// small ones up to 3; the decoder notices that it is too little before it takes it, mostly after it has counted.
const MEMORY_FACTORS: [usize; 3] = [1, 3, 8];

/// Strings in which something that is not UTF-8 was replaced.
const REPLACED: &str = "otlp_strings_replaced";

/// What the calls of one transport share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) intake: Intake,
    pub(crate) telemetry: TransportTelemetry,
    /// The largest request in bytes, as it is decoded.
    pub(crate) max_bytes: usize,
    /// How many requests are unpacked and decoded at the same time: as many as there are cores. The others wait, with
    /// nothing but what they sent, so that none is slow because all are.
    pub(crate) slots: Arc<Semaphore>,
    /// What the peers are, and what their resources get.
    pub(crate) origin: Arc<Origin>,
}

/// What became of a request that the pipelines took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Samples (`Sample` messages) that they took.
    pub(crate) samples: u64,
    /// Samples that were refused, as far as they could be read.
    pub(crate) refused_samples: u64,
    /// Profiles that were refused.
    pub(crate) refused_profiles: u64,
    /// Why, or a warning about what was taken; `None` where everything was taken as it is.
    pub(crate) complaint: Option<String>,
}

impl Caller {
    /// Unpacks, decodes and hands over a request. `layout` is given where the request came with it.
    pub(crate) async fn call(
        &self,
        received: Received,
        coding: Coding,
        layout: Option<Layout>,
        peer: Peer,
    ) -> Result<Taken, Fault> {
        let (decoded, permit) = self.decode(received, coding, layout, peer).await?;
        let Decoded { profiles, refused, replaced_strings, layout, left_out } = decoded;
        producers::note(&self.telemetry, &profiles, layout, sender(peer));
        for (field, count) in left_out {
            self.intake.note(producers::left_out(field), count);
        }
        let samples = profiles.profiles().map(|profile| profile.samples.len() as u64).sum();
        let mut taken = Taken {
            samples,
            refused_samples: (profiles.columns().len() as u64).saturating_sub(samples),
            refused_profiles: refused.iter().map(|refusal| refusal.profiles).sum(),
            complaint: None,
        };
        if let Some(first) = refused.first() {
            let observations = refused.iter().map(|refusal| refusal.observations).sum();
            self.intake.refused(Reason::Malformed, Quantities::observations(observations));
            if profiles.profiles().next().is_none() {
                let fault = Fault::invalid(&*first.invalid.place, &*first.invalid.rule);
                return Err(Fault { samples: taken.refused_samples, ..fault });
            }
            let more = match refused.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let first = shortened(format!("{}: {}", first.invalid.place, first.invalid.rule));
            taken.complaint = Some(first + &more);
        }
        if replaced_strings > 0 {
            self.intake.note(REPLACED, replaced_strings);
            let warning = format!("{replaced_strings} strings are not UTF-8, what is not was replaced by U+FFFD");
            taken.complaint = Some(match taken.complaint {
                Some(complaint) => format!("{complaint}; {warning}"),
                None => warning,
            });
        }
        if profiles.profiles().next().is_none() {
            // An empty request succeeds (opentelemetry-proto docs/specification.md, "Full Success").
            return Ok(taken);
        }
        match self.intake.consume(profiles, permit).await {
            Ok(()) => Ok(taken),
            Err(rejected) => Err(Fault { samples, ..rejected.into() }),
        }
    }

    async fn decode(
        &self,
        received: Received,
        coding: Coding,
        layout: Option<Layout>,
        peer: Peer,
    ) -> Result<(Decoded, Permit), Fault> {
        let Received { bytes, permit } = received;
        let (intake, origin) = (self.intake.clone(), Arc::clone(&self.origin));
        let afterwards = self.intake.clone();
        let work = Work { intake, max_bytes: self.max_bytes, layout, permit, origin, sender: sender(peer) };
        if coding == Coding::Identity && bytes.len() <= SMALL {
            return work.run(bytes, coding);
        }
        let defect = |_| Fault::new(Kind::Internal, "the request could not be decoded, see the log of profbridge");
        // Never closed.
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| defect(()))?;
        let task = tokio::task::spawn_blocking(move || {
            let result = work.run(bytes, coding);
            if result.is_err() {
                afterwards.refused_large();
            }
            drop(slot);
            result
        });
        task.await.map_err(|error| {
            tracing::error!(%error, "decoding a request failed");
            defect(())
        })?
    }
}

/// Who sent it: the peer's address without its port, which changes with every connection of the same sender. Behind a
/// proxy that is the proxy.
fn sender(peer: Peer) -> IpAddr {
    peer.addr.ip().to_canonical()
}

/// The part of a call that is computing.
struct Work {
    intake: Intake,
    max_bytes: usize,
    layout: Option<Layout>,
    permit: Permit,
    origin: Arc<Origin>,
    sender: IpAddr,
}

impl Work {
    fn run(mut self, bytes: Bytes, coding: Coding) -> Result<(Decoded, Permit), Fault> {
        let request = self.unpack(bytes, coding)?;
        let mut decoded = self.decode(request)?;
        decoded.profiles = self.complete(decoded.profiles)?;
        Ok((decoded, self.permit))
    }

    /// Gives resources what they came without.
    fn complete(&mut self, profiles: Profiles) -> Result<Profiles, Fault> {
        let findings = self.origin.look_at(&profiles, self.sender, Instant::now());
        if let Some(warning) = &findings.warning {
            tracing::warn!("{warning}");
        }
        self.intake.grow(&mut self.permit, findings.memory(&profiles) as u64)?;
        let settled = self.origin.settle(profiles, &findings);
        let mut profiles = settled.map_err(|invalid| Fault::invalid(invalid.place, invalid.rule))?;
        profiles.peer = Some(self.sender.to_string().into());
        Ok(profiles)
    }

    fn unpack(&mut self, bytes: Bytes, coding: Coding) -> Result<Bytes, Fault> {
        if coding == Coding::Identity {
            return Ok(bytes);
        }
        let came = self.permit.bytes();
        let request = body::unpack(bytes, coding, self.max_bytes, &self.intake, &mut self.permit)?;
        // The compressed body is freed; charge what it was unpacked to.
        self.permit.set(self.permit.bytes() - came);
        Ok(request)
    }

    fn decode(&mut self, request: Bytes) -> Result<Decoded, Fault> {
        let held = self.permit.bytes();
        let mut limits = Limits { max_request: self.max_bytes, ..Limits::default() };
        let mut factors = MEMORY_FACTORS.into_iter().peekable();
        loop {
            limits.memory_factor = factors.next().unwrap_or(limits.memory_factor);
            let memory = request.len().saturating_mul(limits.memory_factor).saturating_add(limits.memory_base) as u64;
            let more = (held + memory).saturating_sub(self.permit.bytes());
            self.intake.grow(&mut self.permit, more)?;
            let decoded = match self.layout {
                Some(layout) => decode_as(request.clone(), layout, &limits),
                None => decode(request.clone(), &limits),
            };
            match decoded {
                Ok(decoded) => {
                    // Once more as much as it came as, for what it is written as on its way out while it is still here.
                    let all = held + decoded.memory() as u64 + request.len() as u64;
                    let more = all.saturating_sub(self.permit.bytes());
                    self.intake.grow(&mut self.permit, more)?;
                    self.permit.set(all);
                    return Ok(decoded);
                }
                // The limit that was met is the memory of this attempt.
                Err(DecodeError::LimitExceeded { limit, .. }) if limit == memory && factors.peek().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
