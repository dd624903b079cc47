//! Counts the contents of a body without parsing it completely: for an envelope the observations, which are samples
//! with a non-empty stack; for a call of a trace service the spans.

use std::borrow::Cow;
use std::io::{self, Read};

use memchr::{memchr_iter, memmem};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Counts samples with a stack in the JSON of chunks. Searches for keys with their quotes, which would be escaped
/// inside a name.
pub(crate) fn active_samples(json: &[u8]) -> u64 {
    let mut uses: Vec<u64> = Vec::new();
    for at in memmem::find_iter(json, b"\"stack_id\":") {
        let digits = json[at + 11..].iter().take_while(|byte| byte.is_ascii_digit());
        let stack =
            digits.fold(0_usize, |number, digit| number.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
        // Limits the memory for invalid input: no chunk has that many stacks.
        let stack = stack.min(1 << 26);
        if stack >= uses.len() {
            uses.resize(stack + 1, 0);
        }
        uses[stack] += 1;
    }
    let all: u64 = uses.iter().sum();
    all - idle_stacks(json).map(|stack| uses.get(stack).copied().unwrap_or(0)).sum::<u64>()
}

/// The indices of stacks without frames.
fn idle_stacks(json: &[u8]) -> impl Iterator<Item = usize> {
    const KEY: &[u8] = b"\"stacks\":[";
    let stacks = memmem::find(json, KEY).map_or(&[][..], |at| &json[at + KEY.len()..]);
    let ends = memchr_iter(b']', stacks).take_while(|&end| end > 0 && stacks[end - 1] != b']');
    ends.enumerate().filter(|&(_, end)| stacks[end - 1] == b'[').map(|(stack, _)| stack)
}

/// The path of field numbers from an `ExportTraceServiceRequest` to its spans (opentelemetry-proto
/// `trace/v1/trace.proto`): `resource_spans`, `scope_spans`, `spans`.
const SPANS: [u32; 3] = [1, 2, 2];

/// The number of spans in a gRPC call with this `grpc-encoding`; `None` if the call does not contain exactly one
/// request.
pub(super) fn spans_of_call(encoding: Option<&str>, call: &[u8]) -> Option<u64> {
    let (prefix, message) = call.split_first_chunk::<5>()?;
    let [flag, length @ ..] = *prefix;
    if u32::from_be_bytes(length) as usize != message.len() {
        return None;
    }
    let request = match flag {
        0 => Cow::Borrowed(message),
        _ => Cow::Owned(decompress(encoding, message).ok()?),
    };
    spans_of_request(&request)
}

/// The number of spans in a request; `None` for invalid protobuf.
pub(super) fn spans_of_request(request: &[u8]) -> Option<u64> {
    let mut count = 0;
    visit(request, &SPANS, &mut |_| count += 1)?;
    Some(count)
}

/// The number of spans in a transaction, with itself, or in a container: each begins once.
pub(super) fn spans_of_envelope(json: &[u8]) -> u64 {
    memmem::find_iter(json, b"\"start_timestamp\":").count() as u64
}

/// Passes each message, text or `fixed64` at the end of a path of field numbers to `found`. Returns `None` for invalid
/// protobuf.
pub(super) fn visit<'a>(mut message: &'a [u8], path: &[u32], found: &mut dyn FnMut(&'a [u8])) -> Option<()> {
    let (field, deeper) = path.split_first()?;
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        let length = match wire_type {
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            WireType::SixtyFourBit => 8,
            _ => {
                skip_field(wire_type, number, &mut message, DecodeContext::default()).ok()?;
                continue;
            }
        };
        let (value, rest) = message.split_at_checked(length)?;
        message = rest;
        match deeper {
            _ if number != *field => {}
            [] => found(value),
            _ => visit(value, deeper, found)?,
        }
    }
    Some(())
}

/// Decompresses a body with this `Content-Encoding`.
pub(crate) fn decompress(encoding: Option<&str>, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() * 8);
    match encoding {
        None | Some("identity") => out.extend_from_slice(body),
        Some("gzip") => {
            flate2::read::MultiGzDecoder::new(body).read_to_end(&mut out)?;
        }
        Some("zstd") => {
            zstd::stream::read::Decoder::new(body)?.read_to_end(&mut out)?;
        }
        Some(other) => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unknown encoding {other}"))),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profbridge_testkit::naive;
    use profbridge_testkit::workload;

    /// Guarantees: the fast count equals a JSON parser's, even if the empty stack is not the first one or names look
    /// like keys.
    #[test]
    fn agrees_with_a_parser() {
        for shape in [workload::Shape::Tiny, workload::Shape::Avg, workload::Shape::Adversarial] {
            for chunk in naive::convert(&workload::request(shape), &naive::NaiveOptions::default()) {
                let active =
                    chunk.profile.samples.iter().filter(|sample| !chunk.profile.stacks[sample.stack_id].is_empty());
                assert_eq!(active_samples(&naive::json(&chunk).unwrap()), active.count() as u64, "{shape}");
            }
        }
        let json = br#"{"frames":[{"function":"\"stacks\":[[]] \"stack_id\":9"}],"samples":[{"stack_id":1},{"stack_id":0},{"stack_id":2}],"stacks":[[0],[],[0,0]]}"#;
        assert_eq!(active_samples(json), 2);
        assert_eq!(active_samples(b""), 0);
        assert_eq!(active_samples(br#"{"samples":[],"stacks":[]}"#), 0);
    }
}
