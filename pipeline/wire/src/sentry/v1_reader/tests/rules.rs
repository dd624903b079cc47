use super::*;

fn with(pointer: &str, value: Json) -> Json {
    let mut profile = profile();
    *profile.pointer_mut(pointer).unwrap() = value;
    profile
}

fn without(object: &str, key: &str) -> Json {
    let mut profile = profile();
    profile.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).unwrap();
    profile
}

/// Guarantees: each broken rule is reported with its place and Relay's reason.
/// rule: differences#v1-validation, profiles-sdk#v1-event-id, profiles-sdk#v1-device, profiles-sdk#v1-os
/// rule: profiles-sdk#v1-transaction, profiles-sdk#v1-measurements, profiles-sdk#v1-samples
/// rule: profiles-sdk#v1-reject-no-data, profiles-sdk#v1-reject-samples, profiles-sdk#v1-reject-no-transaction
/// rule: profiles-sdk#v1-reject-no-metadata, profiles-sdk#v1-reject-duration, profiles-sdk#v1-validate
#[test]
fn refusals() {
    let sample = |stack: u64, nanos: u64| json!({"stack_id": stack, "thread_id": 1, "elapsed_since_start_ns": nanos});
    for (profile, error) in [
        (without("", "transactions"), "transaction: is missing (profiling_no_transaction_associated)"),
        (
            with("/transactions/1/name", json!("")),
            "transaction.name: is nil or empty (profiling_invalid_transaction_metadata)",
        ),
        (
            with("/transactions/1/id", json!("00000000000000000000000000000000")),
            "transaction.id: is nil or empty (profiling_invalid_transaction_metadata)",
        ),
        (
            with("/transactions/1/trace_id", json!("00000000-0000-0000-0000-000000000000")),
            "transaction.trace_id: is nil or empty (profiling_invalid_transaction_metadata)",
        ),
        (with("/event_id", json!("x")), "event_id: is not a UUID (profiling_invalid_json)"),
        (without("/device", "architecture"), "device.architecture: is missing (profiling_invalid_json)"),
        (with("/device/locale", json!(1)), "device.locale: has another type (profiling_invalid_json)"),
        (
            with("/platform", json!("cocoa")),
            "device: a profile of cocoa needs os.build_number and is_emulator, locale, manufacturer and model \
             (profiling_invalid_profile_metadata)",
        ),
        (
            with("/measurements/cpu/unit", json!("bytes")),
            "measurements.cpu.unit: \"bytes\" is no unit that Sentry knows (profiling_invalid_json)",
        ),
        (
            with("/measurements/cpu/values/0/value", json!("1e")),
            "measurements.cpu.values[0].value: is no number (profiling_invalid_json)",
        ),
        (
            with("/profile/samples", json!([sample(0, 1), null, sample(2, 5)])),
            "profile.samples: no thread has two samples, from its first to its last with frames \
             (profiling_not_enough_samples)",
        ),
        (
            with("/profile/samples", json!([sample(0, 1), sample(4, 2), sample(0, 3)])),
            "profile.samples: there is no stack 4 (profiling_malformed_samples)",
        ),
        (
            with("/profile/stacks/3", json!([3])),
            "profile.stacks[3][0]: index 3 is out of range, there are 3 frames (profiling_malformed_stacks)",
        ),
        (
            with("/profile/samples", json!([sample(0, 1), sample(0, 30_000_000_001)])),
            "profile.samples: the last sample was taken after more than 30 s (profiling_duration_is_too_long)",
        ),
        (
            with("/profile/samples", json!([sample(0, u64::MAX), sample(0, 2)])),
            "profile.samples: a time lies after 2262",
        ),
    ] {
        assert_eq!(refused(&profile), error);
    }
    for profile in [
        without("", "os"),
        without("", "device"),
        without("/os", "version"),
        without("", "timestamp"),
        with("/timestamp", json!("yesterday")),
        with("/profile/samples/1/thread_id", json!("0x7")),
        with("/profile/samples/1/thread_id", json!(-7)),
        with("/profile/samples/1/elapsed_since_start_ns", json!(1.5)),
        with("/measurements/cpu/values", json!({"value": 1})),
        with("/profile/frames/0", json!({"instruction_addr": 5})),
        with("/profile/thread_metadata/8/priority", json!(-1)),
    ] {
        let error = refused(&profile);
        assert!(error.starts_with("the profile cannot be read: "), "{error}");
    }
}

/// Guarantees: 30 s are not too long, an invalid stack counts as idle at the ends of a thread, and a transaction with a
/// time range keeps only its own samples.
/// rule: differences#v1-validation, profiles-sdk#v1-debug-meta, profiles-sdk#v1-reject-samples
/// rule: profiles-sdk#v1-reject-duration
#[test]
fn what_is_no_refusal() {
    let sample = |stack: u64, nanos: u64| json!({"stack_id": stack, "thread_id": 1, "elapsed_since_start_ns": nanos});
    let left = |profile: &Json| read_json(profile).map(|read| (read.profiles.observations(), read.left_out));
    let samples = json!([sample(9, 0), sample(0, 1), sample(0, 30_000_000_000_u64), sample(9, u64::MAX)]);
    assert_eq!(left(&with("/profile/samples", samples)), Ok((2, 2)));
    let mut profile = with("/transactions/1/relative_start_ns", json!(1_000_000_000));
    *profile.pointer_mut("/transactions/1/relative_end_ns").unwrap() = json!("2000000000");
    assert_eq!(left(&profile), Ok((3, 6)));
    assert_eq!(left(&with("/debug_meta", Json::Null)), Ok((5, 4)));
    assert_eq!(left(&with("/profile/thread_metadata", Json::Null)), Ok((5, 4)));
    assert_eq!(left(&with("/timestamp", json!(1000.0))), Ok((5, 4)));
}

/// Guarantees: a profile needs its transaction, unless it is marked as not sampled; a malformed transaction does not
/// matter; a rejected profile only gives an error; other versions are not read.
/// rule: profiles-sdk#v1-association, profiles-sdk#v1-version, profiles-sdk#v1-reject-no-transaction
/// rule: profiles-sdk#v1-envelope
#[test]
fn beside_the_transaction() {
    let read = |envelope: &profbridge_model::Envelope| {
        let mut items = read_items(envelope);
        let read: Vec<_> =
            items.by_ref().map(|(at, read)| (at, read.map(|profiles| profiles.observations()))).collect();
        (read, items.passed_over())
    };
    let alone = enveloped(&profile(), None);
    let (found, _) = read(&alone);
    let rule = "profile: the profile's transaction is not in its envelope, and its header does not say that it was not \
         sampled";
    assert_eq!(found[0].1.as_ref().unwrap_err().to_string(), rule);
    let mut unsampled = alone.clone();
    unsampled.items[0].header = Bytes::from_static(br#"{"type":"profile","sampled":false}"#);
    assert_eq!(read(&unsampled), (vec![(0, Ok(5))], 0));
    assert_eq!(read(&enveloped(&profile(), Some("{"))), (vec![(0, Ok(5))], 0));
    for version in [json!("2"), json!("3")] {
        assert_eq!(read(&enveloped(&with("/version", version), Some("{}"))), (vec![], 1));
    }
}

/// Guarantees: a cocoa profile with Relay's required keys is accepted, and pointer authentication codes are removed
/// from addresses.
/// rule: profiles-sdk#v1-device-fields, profiles-sdk#v1-reject-no-metadata
#[test]
fn cocoa() {
    let mut cocoa = with("/platform", json!("cocoa"));
    cocoa["device"] =
        json!({"architecture": "arm64e", "is_emulator": false, "locale": "en", "manufacturer": "Apple", "model": "i"});
    cocoa["profile"]["frames"][0] = json!({"instruction_addr": "0xab00000102030405"});
    let read = read_json(&cocoa).unwrap();
    let addresses: Vec<_> = read.profiles.dictionary().tables().locations.iter().map(|at| at.address).collect();
    assert!(addresses.contains(&0x1_0203_0405), "{addresses:x?}");
}
