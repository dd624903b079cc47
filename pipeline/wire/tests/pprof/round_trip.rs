//! Tests of the conversion from pprof to OTLP and back.

use bytes::Bytes;
use profbridge_model::Profiles;
use profbridge_wire::otlp::{self, EncodeOptions};
use profbridge_wire::pprof::{decode, encode, groups};
use proptest::prelude::*;
use prost::Message;

use crate::pprof::arbitrary::profile;
use crate::pprof::proto::PprofProfile;
use crate::scramble::{PPROF, Random, scramble};

fn read(bytes: Vec<u8>) -> Profiles {
    decode(bytes.into(), &otlp::Limits::default()).unwrap().profiles
}

/// The pprof profile of a batch, which must be the only one.
fn write(batch: &Profiles) -> PprofProfile {
    let [group] = &groups(batch)[..] else { panic!("one profile") };
    let encoded = encode(batch, group);
    assert_eq!((encoded.left_out_times, encoded.left_out_attributes), (0, 0));
    PprofProfile::decode(&encoded.bytes[..]).unwrap()
}

/// The batch that a peer decodes if this batch is sent to it over OTLP.
fn through_otlp(batch: &Profiles) -> Profiles {
    let request = otlp::encode(batch, &EncodeOptions::default());
    let decoded = otlp::decode(Bytes::from(request), &otlp::Limits::default()).unwrap();
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    assert_eq!(decoded.layout, otlp::Layout::V1_10);
    decoded.profiles
}

proptest! {
    /// Guarantees: the content of a profile is the same after decoding and encoding, also through OTLP, whatever its
    /// ids are, in whatever order its fields come and however its lists are encoded.
    /// rule: otep-0239#pprof
    #[test]
    fn equal(profile in profile(), seed: u64) {
        let contents = profile.contents();
        let batch = read(profile.encode_to_vec());
        prop_assert_eq!(batch.observations() as usize, profile.sample.len() * profile.sample_type.len());
        prop_assert_eq!(&write(&batch).contents(), &contents);
        prop_assert_eq!(&write(&through_otlp(&batch)).contents(), &contents);
        let batch = read(scramble(&profile.encode_to_vec(), &PPROF, &mut Random::new(seed)));
        prop_assert_eq!(&write(&batch).contents(), &contents);
    }

    /// Guarantees: an encoded profile is decoded completely: encoding it again results in the same bytes.
    #[test]
    fn canonical(profile in profile()) {
        let once = |bytes: Vec<u8>| {
            let batch = read(bytes);
            let [group] = &groups(&batch)[..] else { panic!("one profile") };
            encode(&batch, group).bytes
        };
        let first = once(profile.encode_to_vec());
        prop_assert_eq!(once(first.clone()), first);
    }
}
