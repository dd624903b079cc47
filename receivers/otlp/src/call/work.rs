//! The CPU work of a call, which takes only memory that the budget grants.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use profbridge_engine::body;
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_model::Profiles;
use profbridge_model::skew::Plausible;
use profbridge_model::spans::Packed;
use profbridge_net::compression::Coding;
use profbridge_wire::otlp::traces::{self, DecodedSpans};
use profbridge_wire::otlp::{self, Layout, Limits, decode, decode_as, decode_granted, json};
use profbridge_wire::sentry::timestamp::Timestamp;

use super::{RequestContent, RequestEncoding};
use crate::fault::CallFault;
use crate::origin::HostAttribution;

/// The CPU work of a call.
pub(super) struct DecodeJob {
    pub(super) intake: Intake,
    pub(super) max_bytes: usize,
    pub(super) content: RequestContent,
    pub(super) form: RequestEncoding,
    pub(super) permit: Permit,
    pub(super) origin: Arc<HostAttribution>,
    pub(super) sender: IpAddr,
    /// When the request arrived, in nanoseconds since the Unix epoch.
    pub(super) arrival: u64,
}

/// A decoded request.
pub(super) enum DecodedBody {
    Profiles(Box<otlp::Decoded>),
    Traces(Box<DecodedSpans>),
}

impl DecodedBody {
    fn of(profiles: otlp::Decoded) -> Self {
        Self::Profiles(Box::new(profiles))
    }

    fn memory(&self) -> usize {
        match self {
            Self::Profiles(decoded) => decoded.memory(),
            Self::Traces(decoded) => decoded.memory(),
        }
    }
}

impl DecodeJob {
    pub(super) fn run(mut self, bytes: Bytes, coding: Coding) -> Result<(DecodedBody, Permit), CallFault> {
        let (mut request, packed) = self.unpack(bytes, coding)?;
        if self.form == RequestEncoding::Json {
            let (message, limits, received) = (self.content.request(), self.limits(), self.permit.bytes());
            let grant = |wanted: usize| self.intake.grow_to(&mut self.permit, received + wanted as u64);
            request = json::read_granted(message, request, &limits, grant, CallFault::from)?;
            self.permit.set(request.len() as u64);
        }
        let decoded = match self.decode(request)? {
            DecodedBody::Profiles(mut decoded) => {
                decoded.profiles = self.complete(decoded.profiles)?;
                DecodedBody::Profiles(decoded)
            }
            DecodedBody::Traces(mut decoded) => {
                if let Some(packed) = packed {
                    decoded.spans.keep_packed(packed);
                }
                let more = self.origin.complete_spans(&mut decoded.spans, self.sender, Instant::now());
                self.intake.grow(&mut self.permit, more as u64)?;
                decoded.spans.peer = Some(self.sender.to_string().into());
                DecodedBody::Traces(decoded)
            }
        };
        Ok((decoded, self.permit))
    }

    /// Corrects impossible times of profiles. The times of spans are not changed.
    fn with_right_times(&mut self, decoded: DecodedBody) -> Result<DecodedBody, CallFault> {
        let DecodedBody::Profiles(decoded) = decoded else { return Ok(decoded) };
        let plausible = Plausible::at_arrival(self.arrival);
        let Some(wrong) = plausible.wrong_times(&decoded.profiles) else { return Ok(DecodedBody::Profiles(decoded)) };
        // A timestamp takes eight bytes, and all timestamps are copied once.
        self.intake.grow(&mut self.permit, 16 * decoded.profiles.observations())?;
        let example = Timestamp(wrong.example).rfc3339(3);
        self.intake.note_wrong_times(&self.sender.to_string(), wrong.observations, &example);
        let decoded = *decoded;
        Ok(DecodedBody::of(otlp::Decoded { profiles: plausible.correct(decoded.profiles), ..decoded }))
    }

    /// Adds missing attributes to the resources of profiles.
    fn complete(&mut self, profiles: Profiles) -> Result<Profiles, CallFault> {
        let findings = self.origin.examine_batch(&profiles, self.sender, Instant::now());
        if let Some(warning) = &findings.warning {
            tracing::warn!("{warning}");
        }
        self.intake.grow(&mut self.permit, findings.memory(&profiles) as u64)?;
        let settled = self.origin.apply_findings(profiles, &findings);
        let mut profiles = settled.map_err(|invalid| CallFault::invalid(invalid.place, invalid.rule))?;
        profiles.peer = Some(self.sender.to_string().into());
        Ok(profiles)
    }

    /// The decompressed request, and its compressed form if it may be forwarded: only for spans in protobuf, which
    /// pipelines usually pass on unchanged.
    pub(super) fn unpack(&mut self, bytes: Bytes, coding: Coding) -> Result<(Bytes, Option<Packed>), CallFault> {
        let (max_bytes, intake, permit) = (self.max_bytes, &self.intake, &mut self.permit);
        let name = coding
            .content_encoding()
            .filter(|_| self.content == RequestContent::Traces && self.form == RequestEncoding::Protobuf);
        let Some(coding_name) = name else {
            return Ok((body::unpack_instead(bytes, coding, max_bytes, intake, permit)?, None));
        };
        let (plain, packed) = body::unpack_keeping(bytes, coding, max_bytes, intake, permit)?;
        Ok((plain, packed.map(|bytes| Packed { coding: coding_name, bytes })))
    }

    fn limits(&self) -> Limits {
        Limits { max_request: self.max_bytes, ..Limits::default() }
    }

    fn decode(&mut self, request: Bytes) -> Result<DecodedBody, CallFault> {
        let (held, content, form) = (self.permit.bytes(), self.content, self.form);
        let limits = self.limits();
        let grant = |memory: usize| self.intake.grow_to(&mut self.permit, held + memory as u64);
        let attempt = |request, limits: &Limits| match (content, form) {
            (RequestContent::Profiles(_), RequestEncoding::Json) => {
                decode_as(request, Layout::V1_10, limits).map(DecodedBody::of)
            }
            (RequestContent::Profiles(Some(layout)), _) => decode_as(request, layout, limits).map(DecodedBody::of),
            (RequestContent::Profiles(None), _) => decode(request, limits).map(DecodedBody::of),
            (RequestContent::Traces, _) => {
                traces::decode(request, limits).map(|decoded| DecodedBody::Traces(Box::new(decoded)))
            }
        };
        let decoded = decode_granted(&request, limits, grant, attempt, |error| match form {
            RequestEncoding::Json => CallFault::from(json::without_offset(error)),
            RequestEncoding::Protobuf => error.into(),
        })?;
        let decoded = self.with_right_times(decoded)?;
        // The size of the request is added once more, for encoding the data again while the request is in memory.
        let all = held + (decoded.memory() + request.len()) as u64;
        self.intake.grow_to(&mut self.permit, all)?;
        self.permit.set(all);
        Ok(decoded)
    }
}
