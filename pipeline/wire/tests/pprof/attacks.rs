//! Tests of hostile profiles. Each comment states what is amplified, the maximum (ceiling), and the safe outcome.

use bytes::Bytes;
use profbridge_model::varint;
use profbridge_wire::otlp::{Limits, memory};
use profbridge_wire::pprof::{DecodeError, DecodedProfile, decode, encode, groups};
use proptest::prelude::*;
use prost::Message;

use crate::pprof::arbitrary::profile;
use crate::pprof::proto::{PprofLocation, PprofSample};
use crate::pprof::refusals::valid;
use crate::scramble::field;

fn attack(bytes: Vec<u8>) -> Result<DecodedProfile, DecodeError> {
    decode(Bytes::from(bytes), &Limits::default())
}

fn limit(outcome: Result<DecodedProfile, DecodeError>) -> (&'static str, u64) {
    match outcome {
        Err(DecodeError::LimitExceeded { what, limit }) => (what, limit),
        other => panic!("{:?}", other.map(|decoded| memory(&decoded.profiles))),
    }
}

const MEMORY: &str = "bytes of memory for the decoded request";

/// Amplification: an empty element of two bytes becomes up to a hundred in memory. Ceiling: eight times the profile
/// plus a megabyte, checked before any allocation. Outcome: the profile is refused.
#[test]
fn a_million_empty_elements() {
    for number in [1, 2, 3, 4, 5] {
        let mut profile = valid().encode_to_vec();
        profile.extend_from_slice(&[(number << 3 | 2) as u8, 0].repeat(1_000_000));
        let most = (profile.len() * 8 + (1 << 20)) as u64;
        match (number, attack(profile)) {
            // If there are few enough samples to be decoded, they are refused because they have no values.
            (_, Err(DecodeError::LimitExceeded { what, limit })) => assert_eq!((what, limit), (MEMORY, most)),
            (5, Err(DecodeError::Malformed { place, .. })) => assert_eq!(place, "function[1].id"),
            (_, other) => panic!("{number}: {:?}", other.map(drop)),
        }
    }
}

/// Amplification: each type of each sample is a row, and a type costs two bytes. Ceiling: the same as above. Outcome:
/// refused, before a row is allocated.
#[test]
fn types_times_samples() {
    let mut profile = valid().encode_to_vec();
    profile.extend_from_slice(&[0x0a, 0].repeat(10_000));
    profile.extend_from_slice(&[0x12, 0].repeat(100_000));
    let most = (profile.len() * 8 + (1 << 20)) as u64;
    assert_eq!(limit(attack(profile)), (MEMORY, most));
}

/// Amplification: code that reads a sample visits all its locations, and all their lines. Ceiling: 65,536 and 4,096.
/// Outcome: refused.
#[test]
fn deep_stacks_and_many_lines() {
    let mut profile = valid();
    profile.sample.push(PprofSample { location_id: vec![1; 65_537], value: vec![1], label: Vec::new() });
    assert_eq!(limit(attack(profile.encode_to_vec())), ("locations of one sample", 65_536));
    let mut profile = valid();
    let line = profile.location[0].line[0];
    profile.location.push(PprofLocation { id: 2, line: vec![line; 4097], ..PprofLocation::default() });
    assert_eq!(limit(attack(profile.encode_to_vec())), ("lines of one location", 4096));
}

/// Amplification: ids that are far apart take an entry in a hash table each instead of a word. Ceiling: the same
/// budget. Outcome: accepted if the elements are as large as real ones.
#[test]
fn ids_far_apart() {
    let mut profile = valid();
    profile.location.extend((0..50_000u64).map(|n| PprofLocation {
        id: u64::MAX - (n << 20),
        address: u64::MAX,
        ..PprofLocation::default()
    }));
    let bytes = profile.encode_to_vec();
    let decoded = attack(bytes).unwrap();
    assert_eq!(decoded.profiles.dictionary().tables().locations.len(), 50_002);
}

/// Amplification: none, since nothing is allocated because of a claimed length. Outcome: refused, with the place.
#[test]
fn lengths_that_lie() {
    for number in [1u8, 2, 3, 4, 5, 6, 11, 13] {
        let mut profile = vec![number << 3 | 2];
        varint::put(&mut profile, 1 << 40);
        let error = attack(profile).unwrap_err().to_string();
        assert!(error.contains("claims 1099511627776 bytes where 0 are left"), "{error}");
    }
    let error = attack(field(2, &field(1, &[0x80]))).unwrap_err().to_string();
    assert!(error.starts_with("malformed pprof profile: "), "{error}");
    for wrong_type in [&[0x08u8, 1][..], &[0x3a, 0], &[0x4d, 0, 0, 0, 0], &[0x30, 1]] {
        let error = attack(wrong_type.to_vec()).unwrap_err().to_string();
        assert!(error.contains("which is not its own"), "{error}");
    }
}

/// Amplification: the limit on the size of a profile may be other than 64 MiB. Outcome: refused with the name of the
/// limit.
#[test]
fn too_long() {
    let limits = Limits { max_request: 10, ..Limits::default() };
    let error = decode(Bytes::from(valid().encode_to_vec()), &limits).unwrap_err();
    assert_eq!(error, DecodeError::LimitExceeded { what: "bytes of the profile", limit: 10 });
}

/// Checks the properties that hold for any bytes.
fn holds(bytes: Vec<u8>) {
    let length = bytes.len();
    let Ok(decoded) = attack(bytes) else { return };
    // Columns whose length is not known in advance grow by doubling.
    assert!(memory(&decoded.profiles) <= 2 * (8 * length + (1 << 20)));
    for group in groups(&decoded.profiles) {
        let written = encode(&decoded.profiles, &group).bytes;
        assert!(attack(written).is_ok());
    }
}

proptest! {
    /// Guarantees: no bytes make the decoder panic or take more memory than allowed, and its result can be encoded and
    /// decoded again.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        holds(bytes);
    }

    /// Guarantees: the same holds for valid profiles with a few bytes changed, removed or inserted.
    #[test]
    fn damaged(
        profile in profile(),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0u8..3), 1..4),
    ) {
        let mut bytes = profile.encode_to_vec();
        for (at, byte, edit) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        holds(bytes);
    }
}
