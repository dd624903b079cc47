//! The signals of OTLP, and how to distinguish requests of profiles, spans, logs and metrics by their bytes alone.
//!
//! `ExportProfilesServiceRequest` and `ExportTraceServiceRequest` share their outer structure: resources contain
//! scopes, which contain profiles or spans, all under the same field numbers (opentelemetry-proto `profiles.proto`,
//! `trace.proto`). They differ in:
//!
//! * the fields next to the resources: a request of spans has none, one of profiles has its tables there, since 1.6;
//! * the wire types in a profile and in a span. The times of a span are eight bytes each, in fields 7 and 8, which no
//!   layout of profiles has; a profile has eight bytes in field 3 or 4, or the number of nanoseconds in field 4;
//! * field 1: a trace id of 16 bytes, or a sample type, which contains small numbers. A container of 1.3 has its id in
//!   field 1, and its profile in field 8.
//!
//! Logs and metrics have that structure too: a record of a log has eight bytes in field 1 or 11, or a number in field
//! 2, and a metric has its name in field 1 (`logs.proto`, `metrics.proto`).
//!
//! Each element is inspected on its own. Ambiguous elements are ignored. If all are ambiguous, or two contradict each
//! other, the request is unclear.

use profbridge_model::TelemetryKind;

use super::reader::{FIXED32, FIXED64, LEN, ProtobufReader, VARINT};
use crate::foreign::is_text;

/// A signal. Each has its own service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Profiles.
    Profiles,
    /// Spans.
    Traces,
}

/// The top-level messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// `ExportProfilesServiceRequest`, and `ProfilesData`, which has the same fields.
    ProfilesRequest,
    /// `ExportProfilesServiceResponse`.
    ProfilesResponse,
    /// `ExportTraceServiceRequest`, and `TracesData`, which has the same field.
    TracesRequest,
    /// `ExportTraceServiceResponse`.
    TracesResponse,
}

/// What the protocol calls a signal and its parts.
#[derive(Debug)]
pub struct SignalNames {
    /// The signal.
    pub name: &'static str,
    /// The elements that a partial success counts, in the plural.
    pub elements: &'static str,
    /// The kind of the telemetry.
    pub kind: TelemetryKind,
    /// The path of requests over HTTP (opentelemetry-proto `docs/specification.md`, "OTLP/HTTP Request").
    pub http_path: &'static str,
    /// The path of the method over gRPC.
    pub grpc_path: &'static str,
    /// The message of a request.
    pub request: Message,
    /// The message of an answer.
    pub response: Message,
}

const PROFILES: SignalNames = SignalNames {
    name: "profiles",
    elements: "profiles",
    kind: TelemetryKind::Profiles,
    http_path: "/v1development/profiles",
    grpc_path: "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
    request: Message::ProfilesRequest,
    response: Message::ProfilesResponse,
};

const TRACES: SignalNames = SignalNames {
    name: "traces",
    elements: "spans",
    kind: TelemetryKind::Spans,
    http_path: "/v1/traces",
    grpc_path: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    request: Message::TracesRequest,
    response: Message::TracesResponse,
};

impl Signal {
    /// All signals.
    pub const ALL: [Self; 2] = [Self::Profiles, Self::Traces];

    /// The kinds of the telemetry of all signals.
    pub const KINDS: &'static [TelemetryKind] = &[PROFILES.kind, TRACES.kind];

    /// The names of the signal.
    pub const fn names(self) -> &'static SignalNames {
        match self {
            Self::Profiles => &PROFILES,
            Self::Traces => &TRACES,
        }
    }

    /// The signal with this name.
    pub fn find(is_it: impl Fn(&SignalNames) -> bool) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| is_it(signal.names()))
    }
}

/// The likely signal of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LikelySignal {
    /// Profiles, in any layout; also an empty request.
    Profiles,
    /// Spans.
    Traces,
    /// Records of logs.
    Logs,
    /// Metrics.
    Metrics,
    /// Ambiguous, or parts of both.
    Unclear,
}

/// Determines the likely signal of a request, without validating it.
pub fn signal(request: &[u8]) -> LikelySignal {
    let mut evidence = Evidence::default();
    evidence.request(ProtobufReader::new(request));
    match evidence {
        Evidence { profiles: true, traces: true, .. } => LikelySignal::Unclear,
        Evidence { profiles: false, traces: false, other: Some(other), .. } => other,
        Evidence { profiles: true, .. } => LikelySignal::Profiles,
        Evidence { traces: true, .. } => LikelySignal::Traces,
        Evidence { either: true, .. } => LikelySignal::Unclear,
        // Either an empty request, or one that neither decoder could read.
        Evidence { .. } => LikelySignal::Profiles,
    }
}

#[derive(Debug, Default)]
struct Evidence {
    profiles: bool,
    traces: bool,
    /// Some element could be either.
    either: bool,
    /// What the last element is that can be neither.
    other: Option<LikelySignal>,
}

impl Evidence {
    /// Each level stops silently at malformed data: the decoder reports the error later.
    fn request(&mut self, mut reader: ProtobufReader<'_>) {
        while let Ok(Some(key)) = reader.key() {
            match key {
                0x0a => {
                    let Ok(resource) = reader.message() else { return };
                    self.resource(resource);
                }
                _ => {
                    self.profiles = true;
                    if reader.skip(key).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn resource(&mut self, mut reader: ProtobufReader<'_>) {
        each(&mut reader, |scope| each(&mut { scope }, |element| self.element(element)));
    }

    fn element(&mut self, reader: ProtobufReader<'_>) {
        if reader.rest().is_empty() {
            return;
        }
        let Some(ScopeElement { span, profile, has_span_times, other }) = ScopeElement::inspect(reader) else { return };
        match (span, profile) {
            _ if has_span_times => self.traces = true,
            (true, false) => self.traces = true,
            (false, true) => self.profiles = true,
            (true, true) => self.either = true,
            (false, false) => self.other = other.or(self.other),
        }
    }
}

/// Calls `visit` with each message in field 2.
fn each<'a>(reader: &mut ProtobufReader<'a>, mut visit: impl FnMut(ProtobufReader<'a>)) {
    while let Ok(Some(key)) = reader.key() {
        match key {
            0x12 => {
                let Ok(inner) = reader.message() else { return };
                visit(inner);
            }
            _ if reader.skip(key).is_err() => return,
            _ => {}
        }
    }
}

/// What an element of a scope could be.
struct ScopeElement {
    span: bool,
    profile: bool,
    /// Whether fields 7 and 8 have eight bytes, like the times of a span.
    has_span_times: bool,
    /// Logs or metrics, if it has the fields of these.
    other: Option<LikelySignal>,
}

/// The wire types of a span's fields, for numbers from 1 on.
const SPAN: [u32; 16] =
    [LEN, LEN, LEN, LEN, LEN, VARINT, FIXED64, FIXED64, LEN, VARINT, LEN, VARINT, LEN, VARINT, LEN, FIXED32];

/// The same for the record of a log, in which field 4 is not used.
const LOG: [u32; 12] = [FIXED64, VARINT, LEN, LEN, LEN, LEN, VARINT, FIXED32, LEN, LEN, FIXED64, LEN];

/// The fields of a metric: name, description, unit, and its points of five kinds; all have a length.
const METRIC: [u32; 9] = [1, 2, 3, 5, 7, 9, 10, 11, 12];

impl ScopeElement {
    /// Inspects an element; `None` if it is malformed.
    fn inspect(mut reader: ProtobufReader<'_>) -> Option<Self> {
        let (mut span, mut profile, mut has_span_times) = (true, true, false);
        let (mut is_typed, mut is_container) = (true, false);
        let (mut log, mut metric, mut is_named) = (true, true, false);
        while let Some(key) = reader.key().ok()? {
            let (number, wire_type) = (key >> 3, key & 7);
            span &= SPAN.get(number as usize - 1).is_none_or(|of_span| *of_span == wire_type);
            profile &= may_be_of_profile(number, wire_type);
            log &= LOG.get(number as usize - 1).is_some_and(|of_log| *of_log == wire_type);
            metric &= METRIC.contains(&number) && wire_type == LEN;
            has_span_times |= matches!(key, START | END);
            is_container |= key == CONTAINED;
            match (number, wire_type) {
                (1, LEN) => {
                    let first = reader.message().ok()?;
                    span &= first.rest().len() == 16;
                    is_named = is_text(first.rest()) && !first.rest().is_empty();
                    is_typed &= is_value_type(first);
                }
                (2, LEN) => span &= reader.message().ok()?.rest().len() == 8,
                _ => reader.skip(key).ok()?,
            }
        }
        let other = match (log, metric && is_named) {
            (true, _) => Some(LikelySignal::Logs),
            (_, true) => Some(LikelySignal::Metrics),
            _ => None,
        };
        Some(Self { span, profile: profile && (is_typed || is_container), has_span_times, other })
    }
}

/// The keys of a span's `start_time_unix_nano` and `end_time_unix_nano`, and of the profile in a container of 1.3.
const START: u32 = 7 << 3 | FIXED64;
const END: u32 = 8 << 3 | FIXED64;
const CONTAINED: u32 = 8 << 3 | LEN;

/// Whether some layout of a profile has a field with this number and type: `Profile` of 1.4 to 1.10, or
/// `ProfileContainer`.
fn may_be_of_profile(number: u32, wire_type: u32) -> bool {
    match number {
        1 => wire_type == LEN,
        // Samples, or a container's start time.
        2 => matches!(wire_type, LEN | FIXED64),
        // Times, single or repeated locations, tables, attributes.
        3 | 4 => matches!(wire_type, LEN | FIXED64 | VARINT),
        5..=22 => matches!(wire_type, LEN | VARINT),
        _ => true,
    }
}

/// Whether a message is a `ValueType`: two integers, or three in 1.3 to 1.8.
fn is_value_type(mut message: ProtobufReader<'_>) -> bool {
    loop {
        match message.key() {
            Ok(None) => return true,
            Ok(Some(key @ (0x08 | 0x10 | 0x18))) if message.skip(key).is_ok() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with one resource and scope around this element, followed by `behind`.
    fn request(element: &[u8], behind: &[u8]) -> Vec<u8> {
        let within = |field: u8, inner: &[u8]| [&[field, inner.len() as u8], inner].concat();
        [&within(0x0a, &within(0x12, &within(0x12, element)))[..], behind].concat()
    }

    const IDS: &[u8] = b"\x0a\x10tttttttttttttttt\x12\x08ssssssss";
    const TIMES: &[u8] = b"\x39\x01\0\0\0\0\0\0\0\x41\x02\0\0\0\0\0\0\0";

    /// Guarantees: a span is recognised by its ids or its times, a profile by its type, its times or the tables next to
    /// it. Without any of these, or with both, a request is unclear; an empty one is a request of profiles. Logs and
    /// metrics are recognised by fields that neither has.
    /// rule: otep-0239#same-layout
    #[test]
    fn known_by() {
        let name: &[u8] = b"\x2a\x02ab";
        for (bytes, expected) in [
            (request(IDS, b""), LikelySignal::Traces),
            (request(&[IDS, name, TIMES].concat(), b""), LikelySignal::Traces),
            // Ids of a wrong length are left to the decoder of spans to reject.
            (request(&[b"\x0a\x01t", TIMES].concat(), b""), LikelySignal::Traces),
            (request(b"\x0a\x04\x08\x01\x10\x02\x12\x02\x08\x01", b""), LikelySignal::Profiles),
            (request(b"\x19\x01\0\0\0\0\0\0\0", b""), LikelySignal::Profiles),
            (request(b"\x20\x05", b""), LikelySignal::Profiles),
            (request(name, b"\x12\x02\x2a\0"), LikelySignal::Profiles),
            (request(name, b""), LikelySignal::Unclear),
            (request(IDS, b"\x12\x02\x2a\0"), LikelySignal::Unclear),
            ([request(IDS, b""), request(b"\x20\x05", b"")].concat(), LikelySignal::Unclear),
            (request(b"", b""), LikelySignal::Profiles),
            (Vec::new(), LikelySignal::Profiles),
            // A record of a log by its time, by the time it was observed, or by its severity; a gauge by its name.
            (request(b"\x09\x01\0\0\0\0\0\0\0\x2a\x03\x0a\x01x", b""), LikelySignal::Logs),
            (request(b"\x10\x09\x1a\x04INFO\x59\x01\0\0\0\0\0\0\0", b""), LikelySignal::Logs),
            (request(b"\x10\x09\x2a\x03\x0a\x01x", b""), LikelySignal::Logs),
            (request(b"\x0a\x07cpu.use\x1a\x01s\x2a\x02\x0a\0", b""), LikelySignal::Metrics),
            ([request(IDS, b""), request(b"\x10\x09", b"")].concat(), LikelySignal::Traces),
            (b"\x0a\xff".to_vec(), LikelySignal::Profiles),
        ] {
            assert_eq!(signal(&bytes), expected, "{bytes:x?}");
        }
        // Sixteen bytes that are also a valid sample type are ambiguous, and so is the name.
        let both: &[u8] = b"\x0a\x10\x08\x01\x10\x02\x08\x01\x10\x02\x08\x01\x10\x02\x08\x01\x10\x02\x12\x08ssssssss";
        assert_eq!(signal(&request(both, b"")), LikelySignal::Unclear);
    }

    proptest::proptest! {
        /// Guarantees: no bytes cause a panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            signal(&bytes);
            signal(&request(&bytes, b""));
        }
    }
}
