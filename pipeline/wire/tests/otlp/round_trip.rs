//! Tests that decoded requests are encoded with the same fields.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profbridge_model::Profiles;
use profbridge_wire::otlp::{EncodeOptions, Layout, Limits, decode_as, encode, encoded_len};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::{canonical, to_prost};
use crate::scramble::{OTLP, Random, scramble};

const EVERYTHING: EncodeOptions = EncodeOptions { original_payload: true, references: false };

fn profiles_of(request: &mut ExportProfilesServiceRequest) -> impl Iterator<Item = &mut proto::Profile> {
    let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
    scopes.flat_map(|scope| &mut scope.profiles)
}

/// Removes payloads without a format, which would not be understood.
pub(crate) fn with_lawful_payloads(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    for profile in profiles_of(&mut request).filter(|profile| profile.original_payload_format.is_empty()) {
        profile.original_payload.clear();
    }
    request
}

pub(crate) fn decoded(bytes: Vec<u8>) -> Profiles {
    // Single samples without values could also be of 1.9.
    let decoded = decode_as(Bytes::from(bytes), Layout::V1_10, &Limits::default()).unwrap();
    assert_eq!(decoded.refused, []);
    decoded.profiles
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Guarantees: every field of an arbitrary valid request is decoded as prost decodes it.
    /// rule: otep-0239#links, otep-0239#containers, otep-0239#start-time, otep-0239#end-time
    /// rule: otep-0239#profile-attributes, otep-0239#dropped-attributes, otep-0239#payload-format
    /// rule: otep-0239#sample-type, otep-0239#samples, otep-0239#mappings, otep-0239#locations
    /// rule: otep-0239#location-indices, otep-0239#functions, otep-0239#attribute-table, otep-0239#link-table
    /// rule: otep-0239#string-table, otep-0239#time, otep-0239#duration, otep-0239#period-type, otep-0239#period
    /// rule: otep-0239#comment, otep-0239#default-sample-type, otep-0239#type, otep-0239#unit, otep-0239#sample-stack
    /// rule: otep-0239#sample-values, otep-0239#sample-attributes, otep-0239#sample-link, otep-0239#timestamps
    /// rule: otep-0239#attribute-unit, otep-0239#link-ids, otep-0239#mapping-range, otep-0239#mapping-filename
    /// rule: otep-0239#element-attributes, otep-0239#mapping-flags, otep-0239#location-mapping
    /// rule: otep-0239#location-address, otep-0239#lines, otep-0239#is-folded, otep-0239#line-function
    /// rule: otep-0239#line-number, otep-0239#function, otep-0239#system-name, otlp-profiles#dictionary
    /// rule: otlp-profiles#string-references, otlp-profiles#attribute, otlp-profiles#any-value, otlp-profiles#resource
    #[test]
    fn decodes_as_prost_does(request in requests()) {
        let profiles = decoded(request.encode_to_vec());
        prop_assert_eq!(to_prost(&profiles), canonical(request));
    }

    /// Guarantees: the same holds for any encoding: unpacked, in any order, in parts, with unknown fields.
    /// rule: otep-0239#reserved, otep-0239#defaults, otlp-profiles#unknown-fields
    #[test]
    fn decodes_any_lawful_encoding(request in requests(), seed: u64) {
        let bytes = scramble(&request.encode_to_vec(), &OTLP, &mut Random::new(seed));
        prop_assert_eq!(
            canonical(ExportProfilesServiceRequest::decode(&*bytes).unwrap()),
            canonical(request.clone()),
            "the test itself rewrites faithfully"
        );
        let profiles = decoded(bytes);
        prop_assert_eq!(to_prost(&profiles), canonical(request));
    }

    /// Guarantees: a decoded request is encoded with the same content, in exactly the size that was computed.
    /// rule: otep-0239#links, otep-0239#containers, otep-0239#start-time, otep-0239#end-time
    /// rule: otep-0239#profile-attributes, otep-0239#dropped-attributes, otep-0239#payload-format
    /// rule: otep-0239#sample-type, otep-0239#samples, otep-0239#mappings, otep-0239#locations
    /// rule: otep-0239#location-indices, otep-0239#functions, otep-0239#attribute-table, otep-0239#link-table
    /// rule: otep-0239#string-table, otep-0239#time, otep-0239#duration, otep-0239#period-type, otep-0239#period
    /// rule: otep-0239#comment, otep-0239#default-sample-type, otep-0239#type, otep-0239#unit, otep-0239#sample-stack
    /// rule: otep-0239#sample-values, otep-0239#sample-attributes, otep-0239#sample-link, otep-0239#timestamps
    /// rule: otep-0239#attribute-unit, otep-0239#link-ids, otep-0239#mapping-range, otep-0239#mapping-filename
    /// rule: otep-0239#element-attributes, otep-0239#mapping-flags, otep-0239#location-mapping
    /// rule: otep-0239#location-address, otep-0239#lines, otep-0239#is-folded, otep-0239#line-function
    /// rule: otep-0239#line-number, otep-0239#function, otep-0239#system-name, otlp-profiles#dictionary
    /// rule: otlp-profiles#string-references, otlp-profiles#attribute, otlp-profiles#resource
    #[test]
    fn encodes_what_it_decoded(request in requests(), seed: u64, references: bool) {
        let profiles = decoded(scramble(&request.encode_to_vec(), &OTLP, &mut Random::new(seed)));
        let options = EncodeOptions { references, ..EVERYTHING };
        let bytes = encode(&profiles, &options);
        prop_assert_eq!(bytes.len(), encoded_len(&profiles, &options));
        prop_assert_eq!(bytes.len(), bytes.capacity());
        let again = ExportProfilesServiceRequest::decode(&*bytes).unwrap();
        prop_assert_eq!(canonical(again), with_lawful_payloads(canonical(request)));
    }

    /// Guarantees: the original payload, and nothing else, is omitted unless it is requested.
    /// rule: otep-0239#payload-format, otep-0239#payload
    #[test]
    fn leaves_the_original_payload_out(request in requests()) {
        let profiles = decoded(request.encode_to_vec());
        let mut expected = canonical(request);
        for profile in profiles_of(&mut expected) {
            profile.original_payload.clear();
            profile.original_payload_format.clear();
        }
        let bytes = encode(&profiles, &EncodeOptions::default());
        prop_assert_eq!(canonical(ExportProfilesServiceRequest::decode(&*bytes).unwrap()), expected);
    }
}

/// Guarantees: a request of no bytes is an empty batch, and so is one with an empty dictionary.
#[test]
fn empty_requests() {
    for bytes in [&[][..], &[0x12, 0x00], &[0x0a, 0x00]] {
        let profiles = decoded(bytes.to_vec());
        assert_eq!(profiles.observations(), 0);
        assert_eq!(profiles.profiles().count(), 0);
    }
}

/// Guarantees: no part of a canonically encoded request is copied; an unpacked list is.
#[test]
fn points_into_the_request() {
    let dictionary = proto::ProfilesDictionary {
        stack_table: vec![proto::Stack::default(), proto::Stack { location_indices: vec![0, 0] }],
        ..Default::default()
    };
    let sample = proto::Sample { stack_index: 1, timestamps_unix_nano: vec![1, 2], ..Default::default() };
    let profile = proto::Profile { samples: vec![sample], ..Default::default() };
    let scope = proto::ScopeProfiles { profiles: vec![profile], ..Default::default() };
    let resource = proto::ResourceProfiles { scope_profiles: vec![scope], ..Default::default() };
    let request = ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(dictionary) }
        .encode_to_vec();
    let profiles = decoded(request.clone());
    assert_eq!(profiles.dictionary().tables().buffer.len(), request.len());
    assert_eq!(profiles.received.as_deref(), Some(&*request));

    // The stack's two locations as an unpacked list, in a second part of the dictionary.
    let mut unpacked = request.clone();
    unpacked.extend_from_slice(&[0x12, 0x06, 0x3a, 0x04, 0x08, 0x00, 0x08, 0x00]);
    let profiles = decoded(unpacked.clone());
    assert_eq!(profiles.dictionary().tables().buffer.len(), unpacked.len() + 2);
}
