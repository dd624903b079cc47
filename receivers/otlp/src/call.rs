//! One export call, after it was read and before it is answered: unpacked, decoded, handed to the pipelines.

mod profiles;
mod traces;
mod work;

use std::net::IpAddr;
use std::sync::Arc;

use ::http::Request;
use profbridge_engine::body::{self, Received};
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_model::dictionary::Invalid;
use profbridge_model::{Telemetry, TelemetryKind};
use profbridge_net::compression::Coding;
use profbridge_net::server::Peer;
use profbridge_wire::otlp::Layout;
use profbridge_wire::otlp::json::Message;
use tokio::sync::Semaphore;

use self::work::{Decoded, Work};
use crate::fault::{Fault, Kind, shortened};
use crate::form::Form;
use crate::origin::Origin;

/// Up to so many bytes a request is decoded where it was read: that takes some tens of microseconds, less than to hand
/// it to another thread and back. Not where it is compressed, since it may become a thousand times as much.
const SMALL: usize = 32 * 1024;

/// The same for spans in protobuf, which are read several times as fast: somewhat more than what an SDK hands over at
/// once.
const SMALL_OF_SPANS: usize = 256 * 1024;

/// What the calls of one transport share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) intake: Intake,
    pub(crate) telemetry: TransportTelemetry,
    /// The largest request in bytes, as it is decoded.
    pub(crate) max_bytes: usize,
    /// How many requests are unpacked and decoded at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// What the peers are, and what their resources get.
    pub(crate) origin: Arc<Origin>,
}

/// What a request holds, by the path or the service that it was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Profiles; in this layout, where the request came with one.
    Profiles(Option<Layout>),
    /// Spans.
    Traces,
}

impl Content {
    /// The message of a request.
    pub(crate) const fn request(self) -> Message {
        match self {
            Self::Profiles(_) => Message::ProfilesRequest,
            Self::Traces => Message::TracesRequest,
        }
    }

    /// What it becomes.
    pub(crate) const fn kind(self) -> TelemetryKind {
        match self {
            Self::Profiles(_) => TelemetryKind::Profiles,
            Self::Traces => TelemetryKind::Spans,
        }
    }
}

/// What became of a request that the pipelines took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// What they took.
    pub(crate) items: ItemCounts,
    /// What was refused, as far as it could be read.
    pub(crate) refused_items: ItemCounts,
    /// How many profiles or spans were refused, which is what an answer says.
    pub(crate) refused: u64,
    /// Why, or a warning about what was taken; `None` where everything was taken as it is.
    pub(crate) complaint: Option<String>,
}

/// A request that was read: what it amounts to, and what goes to the pipelines, where anything does.
type Understood = (Taken, Option<Telemetry>);

impl Caller {
    /// Whether a pipeline takes traces.
    pub(crate) fn takes_traces(&self) -> bool {
        self.intake.takes(TelemetryKind::Spans)
    }

    /// Who sends a request, and how its content is packed, as the header with this name says.
    pub(crate) fn sender<B>(&self, request: &Request<B>, encoding: &str) -> Result<(Peer, Coding), Fault> {
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Fault::new(Kind::Internal, "the connection has no peer"))?;
        let mut values = request.headers().get_all(encoding).iter();
        let name = match values.next().map(|value| value.to_str()) {
            Some(Ok(name)) if values.next().is_none() => Some(name),
            None => None,
            Some(_) => return Err(Fault::new(Kind::Coding, format!("{encoding} is not one name"))),
        };
        let coding = Coding::parse(name)?;
        self.intake.came_through(request.headers())?;
        Ok((peer, coding))
    }

    /// Unpacks, decodes and hands over a request.
    pub(crate) async fn call(
        &self,
        received: Received,
        coding: Coding,
        content: Content,
        form: Form,
        peer: Peer,
    ) -> Result<Taken, Fault> {
        let (decoded, permit) = self.decode(received, coding, content, form, peer).await?;
        let (taken, telemetry) = match decoded {
            Decoded::Profiles(decoded) => profiles::understood(self, *decoded, sender(peer))?,
            Decoded::Traces(decoded) => traces::understood(self, decoded)?,
        };
        // An empty request succeeds (opentelemetry-proto docs/specification.md, "Full Success").
        let Some(telemetry) = telemetry else { return Ok(taken) };
        match self.intake.consume(telemetry, permit).await {
            Ok(()) => Ok(taken),
            Err(rejected) => Err(Fault { items: taken.items, ..rejected.into() }),
        }
    }

    async fn decode(
        &self,
        received: Received,
        coding: Coding,
        content: Content,
        form: Form,
        peer: Peer,
    ) -> Result<(Decoded, Permit), Fault> {
        let Received { bytes, permit } = received;
        let (intake, origin) = (self.intake.clone(), Arc::clone(&self.origin));
        let work = Work { intake, max_bytes: self.max_bytes, content, form, permit, origin, sender: sender(peer) };
        let small = match (content, form) {
            (Content::Traces, Form::Protobuf) => SMALL_OF_SPANS,
            _ => SMALL,
        };
        if coding == Coding::Identity && bytes.len() <= small {
            return work.run(bytes, coding);
        }
        let done = body::run_in(&self.slots, &self.intake, move || work.run(bytes, coding)).await;
        let defect = "the request could not be decoded, see the log of profbridge";
        done.unwrap_or_else(|| Err(Fault::new(Kind::Internal, defect)))
    }
}

/// Counts a call under its outcome, and says in the log why it failed.
pub(crate) fn count(outcome: &Result<Taken, Fault>, telemetry: &TransportTelemetry, peer: Option<IpAddr>) {
    match outcome {
        Ok(taken) => {
            telemetry.accepted(taken.items);
            telemetry.failed_partly(taken.refused_items);
        }
        Err(fault) => {
            match fault.refused {
                Some(_) => telemetry.refused(fault.items),
                None => telemetry.failed(fault.items),
            }
            telemetry.not_taken(fault.refusal(peer));
        }
    }
}

/// The first of what breaks a rule, and how much more does.
fn complaint(first: &Invalid, more: u64) -> String {
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    shortened(format!("{}: {}", first.place, first.rule)) + &more
}

/// Who sent it: the peer's address without its port, which changes with every connection of the same sender. Behind a
/// proxy that is the proxy.
fn sender(peer: Peer) -> IpAddr {
    peer.addr.ip().to_canonical()
}

#[cfg(test)]
mod tests;
