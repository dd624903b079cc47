//! Tests that `go tool pprof` can read encoded profiles. Without Go on the machine nothing is tested, and a message
//! says so.

use std::process::Command;

use bytes::Bytes;
use profbridge_wire::otlp::Limits;
use profbridge_wire::pprof::{decode, encode, groups};
use prost::Message;

use crate::pprof::proto::{Label, PprofProfile};
use crate::pprof::refusals::valid;

/// The output of `go tool pprof` for a profile; `None` without Go.
fn go(profile: &[u8], name: &str, arguments: &[&str]) -> Option<String> {
    let path = std::env::temp_dir().join(format!("profbridge-{}-{name}.pb", std::process::id()));
    std::fs::write(&path, profile).unwrap();
    let output =
        Command::new("go").args(["tool", "pprof"]).args(arguments).arg(&path).env("PPROF_NO_BROWSER", "1").output();
    std::fs::remove_file(&path).unwrap();
    let Ok(output) = output else {
        println!("there is no Go here: nothing was tested");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn through(profile: &PprofProfile) -> Vec<u8> {
    let batch = decode(Bytes::from(profile.encode_to_vec()), &Limits::default()).unwrap().profiles;
    let [group] = &groups(&batch)[..] else { panic!("one profile") };
    encode(&batch, group).bytes
}

/// Guarantees: `go tool pprof` prints the same for an encoded profile as for the original: every sample, label,
/// location and mapping, and the sums by function.
/// rule: otep-0239#pprof
#[test]
fn reads_the_same() {
    let mut profile = valid();
    let second = profile.value_type("samples", "count");
    profile.sample_type.insert(0, second);
    profile.sample[0].value.insert(0, 1);
    (profile.time_nanos, profile.duration_nanos, profile.period) =
        (1_700_000_000_000_000_000, 1_000_000_000, 10_000_000);
    profile.period_type = Some(profile.sample_type[1]);
    let [build_id, file, key, value] = ["abc123", "/bin/x", "worker", "w1"].map(|text| profile.text(text));
    (profile.mapping[0].build_id, profile.mapping[0].filename) = (build_id, file);
    profile.mapping[0].has_functions = true;
    profile.location[0].address = 0x1010;
    profile.sample[0].label = vec![Label { key, str: value, num: 0, num_unit: 0 }];
    profile.comment = vec![value];
    let written = through(&profile);
    for arguments in [&["-raw"][..], &["-top"]] {
        let Some(before) = go(&profile.encode_to_vec(), "before", arguments) else { return };
        let after = go(&written, "after", arguments).unwrap();
        assert!(before.contains("main.work"), "{before}");
        assert_eq!(after, before);
    }
}
