//! Decodes OTLP messages: profiles and spans, in protobuf and in JSON, single or several.

use std::sync::Arc;

use bytes::Bytes;
use profbridge_model::{Profiles, Quantities, Reason, Spans, Telemetry};
use profbridge_net::compression::{Coding, decompress};
use profbridge_wire::otlp::sniff::has_second_dictionary;
use profbridge_wire::otlp::traces::{self, DecodedSpans};
use profbridge_wire::otlp::{self, ContentKind, Decoded, LikelySignal, Limits, Signal, signal, sniff};

use super::{FileDecoder, Refused, json};

/// The error for a protobuf message that is not clearly profiles or spans.
const UNCLEAR: &str = "could be OTLP profiles or OTLP traces: nothing in it says which, or it has parts of both";

/// The error for a protobuf message with two dictionaries. A receiver merges them, as protobuf specifies for parts of
/// one message. In a file they come from concatenated files, and merging would give stacks with names from the first
/// file.
const TWO_MESSAGES: &str = "holds two messages one behind the other, and the indices of the second would mean what \
     is in the dictionary of the first\nhint: protobuf cannot be joined with `cat`; `profbridge convert` takes several files";

impl FileDecoder<'_> {
    /// Calls `take` with each valid message. Invalid ones are reported; if none is valid, that is the error.
    pub(super) fn messages(
        &mut self,
        messages: impl Iterator<Item = Result<(String, Bytes), Refused>>,
        mut take: impl FnMut(Telemetry),
    ) -> Result<(), Refused> {
        let (mut decoded, mut refused) = (0, Vec::new());
        for message in messages {
            let (place, bytes) = message?;
            match self.message(bytes, &place) {
                Ok(telemetry) => {
                    decoded += 1;
                    take(telemetry);
                }
                Err(why) => refused.push(why),
            }
        }
        if decoded == 0 && refused.len() == 1 && refused[0].place == self.name {
            return Err(refused.remove(0));
        }
        self.findings.refused.append(&mut refused);
        if decoded == 0 {
            return Err(Refused::new(self.name, "not one message in it can be read"));
        }
        Ok(())
    }

    /// Decodes one of several messages, which may be compressed or JSON.
    fn message(&mut self, bytes: Bytes, place: &str) -> Result<Telemetry, Refused> {
        let coding = match sniff(&bytes) {
            ContentKind::Gzip => Coding::Gzip,
            ContentKind::Zstd => Coding::Zstd,
            _ => Coding::Identity,
        };
        let bytes = decompress(coding, bytes, self.limit).map_err(|error| Refused::by(place, &error))?;
        if sniff(&bytes) != ContentKind::Json {
            return self.request(bytes, place);
        }
        self.json(&bytes, place)
    }

    /// Decodes a JSON message.
    fn json(&mut self, bytes: &[u8], place: &str) -> Result<Telemetry, Refused> {
        // JSON is several times as long, so the limit is the one for files.
        let limits = Limits { max_request: self.limit, ..Limits::default() };
        match json::content(bytes) {
            Ok(Signal::Profiles) => {
                let decoded = otlp::json::decode(bytes, &limits).map_err(|error| Refused::by(place, &error))?;
                Ok(self.profiles(decoded, place).into())
            }
            Ok(Signal::Traces) => {
                let request = otlp::json::read(otlp::json::Message::TracesRequest, bytes, &limits, &mut |_| true);
                let decoded = request.and_then(|request| traces::decode(request.into(), &limits));
                let decoded =
                    decoded.map_err(otlp::json::without_offset).map_err(|error| Refused::by(place, &error))?;
                Ok(self.spans(decoded, place).into())
            }
            Err(why) => Err(Refused::new(place, why)),
        }
    }

    /// Decodes a protobuf message.
    pub(super) fn request(&mut self, bytes: Bytes, place: &str) -> Result<Telemetry, Refused> {
        let limits = Limits::default();
        match signal(&bytes) {
            LikelySignal::Profiles if has_second_dictionary(&bytes) => Err(Refused::new(place, TWO_MESSAGES)),
            LikelySignal::Profiles => {
                let decoded = otlp::decode(bytes, &limits).map_err(|error| Refused::by(place, &error))?;
                Ok(self.profiles(decoded, place).into())
            }
            LikelySignal::Traces => {
                let decoded = traces::decode(bytes, &limits).map_err(|error| Refused::by(place, &error))?;
                Ok(self.spans(decoded, place).into())
            }
            LikelySignal::Unclear => Err(Refused::new(place, UNCLEAR)),
            LikelySignal::Logs => Err(Refused::new(place, json::not_supported("OTLP logs"))),
            LikelySignal::Metrics => Err(Refused::new(place, json::not_supported("OTLP metrics"))),
        }
    }

    /// The spans of a request, after recording the findings.
    fn spans(&mut self, decoded: DecodedSpans, place: &str) -> Spans {
        let DecodedSpans { mut spans, refused, refused_spans } = decoded;
        self.findings.losses.add(Reason::Malformed, Quantities::spans(refused_spans));
        self.findings.refused.extend(refused.iter().map(|invalid| Refused::new(place, invalid.to_string())));
        spans.peer = Some(Arc::clone(&self.peer));
        spans
    }

    /// The profiles of a request, after recording the findings.
    fn profiles(&mut self, decoded: Decoded, place: &str) -> Profiles {
        self.findings.losses.add_observations(Reason::Malformed, decoded.refused_observations());
        self.findings.replaced_strings += decoded.replaced_strings;
        if decoded.layout.advice().is_some() {
            *self.findings.earlier_layouts.entry(decoded.layout).or_default() += 1;
        }
        for (field, count) in &decoded.left_out {
            *self.findings.left_out.entry(field).or_default() += count;
        }
        let refused = decoded.refused.iter().map(|refusal| Refused::new(place, refusal.invalid.to_string()));
        self.findings.refused.extend(refused);
        self.with_peer(decoded.profiles)
    }
}
