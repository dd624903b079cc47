use proptest::prelude::*;

use super::*;
use crate::sentry::sampled::{MAX_BYTES, MAX_ENTRIES, MAX_FRAMES};

/// Attack: as few bytes as possible for each element of each list.
/// Guarantees: lists are rejected at their limits.
/// rule: profiles-sdk#v1-reject-size
#[test]
fn many_small_elements() {
    for (pointer, elements, limit) in [
        ("/profile/frames", MAX_FRAMES, "more than 262144 elements"),
        ("/debug_meta/images", MAX_ENTRIES, "more than 65536 elements"),
        ("/transactions", MAX_ENTRIES, "more than 65536 elements"),
    ] {
        let mut bomb = profile();
        *bomb.pointer_mut(pointer).unwrap() = Json::Array(vec![Json::Null; elements + 1]);
        assert!(refused(&bomb).contains(limit), "{pointer}");
    }
    for pointer in ["/device", "/measurements"] {
        let mut bomb = profile();
        let entry = json!({"unit": "byte", "values": []});
        let entries = (0..=256).map(|key| (key.to_string(), entry.clone())).collect();
        *bomb.pointer_mut(pointer).unwrap() = Json::Object(entries);
        assert!(refused(&bomb).contains("more than 256 elements"), "{pointer}");
    }
    let companion = Companion::default();
    assert_eq!(
        read(&vec![b' '; MAX_BYTES + 1], &companion).unwrap_err(),
        ProfileError::TooLarge { bytes: MAX_BYTES + 1 }
    );
}

/// Attack: a hundred thousand samples of as many threads, and as many of one thread at the same time.
/// Guarantees: the time grows linearly, not quadratically.
#[test]
fn many_threads_and_one_moment() {
    let mut many = profile();
    let sample = |thread: u32| json!({"stack_id": 0, "thread_id": thread, "elapsed_since_start_ns": 7});
    many["profile"]["samples"] = (0..100_000).map(sample).collect();
    assert!(refused(&many).contains("profiling_not_enough_samples"));
    many["profile"]["samples"] = (0..100_000).map(|at| sample(at / 2)).collect();
    assert_eq!(read_json(&many).unwrap().profiles.observations(), 100_000);
    many["profile"]["samples"] = (0..100_000).map(|_| sample(1)).collect();
    let profiles = read_json(&many).unwrap().profiles;
    assert_eq!((profiles.observations(), profiles.columns().len()), (100_000, 1));
}

/// Attack: lists nested half a million levels deep in place of a value, an attribute or an unknown key; duplicate keys;
/// invalid UTF-8. Guarantees: an error or an ignored value, but no stack overflow.
#[test]
fn depth_and_repetition() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let text = profile().to_string();
    let envelope = enveloped(&profile(), Some(TRANSACTION));
    let companion = Companion::find(&envelope, None);
    let read = |text: &str| read(text.as_bytes(), &companion).map(|read| read.profiles.observations());
    let replaced = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        changed
    };
    assert_eq!(read(&replaced("{", &format!("{{\"k\":{deep},"))), Ok(5));
    assert_eq!(read(&replaced("\"list\":[1]", &format!("\"list\":{deep}"))), Ok(5));
    assert!(read(&replaced("\"1e1\"", &deep)).is_err());
    assert!(read(&replaced("[0,2]", &deep)).is_err());
    assert!(read(&replaced("\"version\":\"1\"", "\"version\":\"1\",\"version\":\"1\"")).is_err());
    assert!(read(&replaced("\"cores\":8", "\"cores\":8,\"cores\":9,\"cores\":\"x\"")).is_ok());
    let mut bytes = text.clone().into_bytes();
    let at = text.find("leaf").unwrap();
    bytes[at] = 0xff;
    assert!(super::read(&bytes, &companion).is_err());
}

proptest! {
    /// Guarantees: replacing a part of a profile never causes a panic, and an accepted profile has no additional
    /// samples.
    #[test]
    fn damaged_profiles(position in 0usize..3000, junk in "[0-9\\[\\]{}\",:a-z.-]{0,6}") {
        let mut text = profile().to_string();
        let at = position % text.len();
        text.replace_range(at..at + 1, &junk);
        let envelope = enveloped(&profile(), Some(TRANSACTION));
        match read(text.as_bytes(), &Companion::find(&envelope, None)) {
            Ok(read) => prop_assert!(read.profiles.observations() + read.left_out <= 9),
            Err(error) => prop_assert!(error.to_string().len() < 500, "{error}"),
        }
    }
}
