//! Damaged requests: no bytes make the decoder panic, and what it lets through is well-formed.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use profbridge_wire::otlp::{EncodeOptions, Layout, Limits, decode, encode};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::{canonical, to_prost};
use crate::otlp::round_trip::with_lawful_payloads;
use crate::scramble::{OTLP, Random, scramble};

/// What must hold for any bytes.
fn holds(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let Ok(decoded) = decode(Bytes::from(bytes.clone()), &Limits::default()) else { return Ok(()) };
    let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
    let again = ExportProfilesServiceRequest::decode(&*encode(&decoded.profiles, &options));
    let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(canonical(again), with_lawful_payloads(to_prost(&decoded.profiles)));
    if decoded.layout != Layout::V1_10 {
        // What was damaged can have become what an earlier release writes, which prost's messages are not.
        prop_assert!(decoded.profiles.received.is_none());
    } else if decoded.replaced_strings > 0 {
        // Text that is not UTF-8 was replaced, so these are bytes that protobuf refuses, and they are not kept.
        prop_assert!(ExportProfilesServiceRequest::decode(&*bytes).is_err());
        prop_assert!(decoded.profiles.received.is_none());
    } else if decoded.refused.is_empty() {
        // All of it was let through, so prost must read the same from the damaged bytes themselves.
        match ExportProfilesServiceRequest::decode(&*bytes) {
            Ok(read) => prop_assert_eq!(canonical(read), to_prost(&decoded.profiles)),
            // Of a field that comes twice the last one counts. prost looks at the text of the others, too.
            Err(error) => prop_assert!(error.to_string().contains("not UTF-8"), "{}", error),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Guarantees: after bytes were changed, a request is refused, or what is let through is what prost reads too.
    #[test]
    fn flipped(request in requests(), seed: u64, flips in 1..6usize) {
        let mut random = Random::new(seed);
        let mut bytes = request.encode_to_vec();
        if random.below(2) == 0 {
            bytes = scramble(&bytes, &OTLP, &mut random);
        }
        for _ in 0..flips.min(bytes.len()) {
            let at = random.below(bytes.len());
            bytes[at] = match random.below(4) {
                0 => 0xff,
                1 => 0x80,
                2 => bytes[at] ^ (1 << random.below(8)),
                _ => random.below(256) as u8,
            };
        }
        holds(bytes)?;
    }

    /// Guarantees: so it is for a request that was cut off or lost a piece.
    #[test]
    fn cut(request in requests(), seed: u64) {
        let mut random = Random::new(seed);
        let mut bytes = request.encode_to_vec();
        let from = random.below(bytes.len() + 1);
        let to = if random.below(2) == 0 { bytes.len() } else { bytes.len().min(from + random.below(20)) };
        bytes.drain(from..to);
        holds(bytes)?;
    }

    /// Guarantees: so it is for bytes of any origin, in whichever layout they are read.
    #[test]
    fn noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        super::older_attacks::holds(&bytes);
        holds(bytes)?;
    }
}
