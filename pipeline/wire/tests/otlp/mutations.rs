//! Tests with damaged requests: no bytes make the decoder panic, and its result is well-formed.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use profbridge_wire::otlp::{EncodeOptions, Layout, Limits, decode, encode};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::{canonical, to_prost};
use crate::otlp::round_trip::with_lawful_payloads;
use crate::scramble::{OTLP, Random, scramble};

/// Checks the properties that hold for any bytes.
fn holds(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let Ok(decoded) = decode(Bytes::from(bytes.clone()), &Limits::default()) else { return Ok(()) };
    let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
    let again = ExportProfilesServiceRequest::decode(&*encode(&decoded.profiles, &options));
    let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(canonical(again), with_lawful_payloads(to_prost(&decoded.profiles)));
    if decoded.layout != Layout::V1_10 {
        // The damaged bytes may be a valid request of an earlier release, which prost's messages do not support.
        prop_assert!(decoded.profiles.received.is_none());
    } else if decoded.replaced_strings > 0 {
        // Invalid text was replaced. protobuf refuses such bytes, so they are not kept.
        prop_assert!(ExportProfilesServiceRequest::decode(&*bytes).is_err());
        prop_assert!(decoded.profiles.received.is_none());
    } else if decoded.refused.is_empty() {
        // Everything was accepted, so prost must decode the damaged bytes to the same result.
        match ExportProfilesServiceRequest::decode(&*bytes) {
            Ok(read) => prop_assert_eq!(canonical(read), to_prost(&decoded.profiles)),
            // Of a field that occurs twice only the last occurrence counts, but prost also checks the text of the
            // others.
            Err(error) => prop_assert!(error.to_string().contains("not UTF-8"), "{}", error),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Guarantees: a request with changed bytes is refused, or decoded to the same result as by prost.
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

    /// Guarantees: the same holds for a request that was cut off or lost a piece.
    #[test]
    fn cut(request in requests(), seed: u64) {
        let mut random = Random::new(seed);
        let mut bytes = request.encode_to_vec();
        let from = random.below(bytes.len() + 1);
        let to = if random.below(2) == 0 { bytes.len() } else { bytes.len().min(from + random.below(20)) };
        bytes.drain(from..to);
        holds(bytes)?;
    }

    /// Guarantees: the same holds for arbitrary bytes, whichever layout they are decoded as.
    #[test]
    fn noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        super::older_attacks::holds(&bytes);
        holds(bytes)?;
    }
}
