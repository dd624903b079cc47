//! The processor `sample` between Sentry's SDKs and Sentry, in the binary.

use std::path::PathBuf;

use crate::backend::sentry::{KEY, Sentry};
use crate::process::Profbridge;
use crate::sentry_envelopes::Sent;

/// Guarantees: with rates of 0 the chunks of profiles are gone, and of transactions those that nobody had decided to
/// keep, with their V1 profile; an SDK's own decision keeps what it sends, byte for byte. What is gone is counted by its
/// reason, and an envelope's other items arrive.
#[test]
fn what_is_sampled_out_does_not_arrive() {
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&format!(
        "receivers: {{sentry: {{endpoint: '127.0.0.1:0'}}}}
processors: {{sample: {{traces_sample_rate: 0, profile_session_sample_rate: 0}}}}
exporters: {{sentry: {{upstream: '{}'}}}}
service: {{pipelines: {{envelopes: {{receivers: [sentry], processors: [sample], exporters: [sentry]}}}}}}
",
        sentry.url()
    ));
    let address = profbridge.address("sentry/http");
    for chunk in ["python-2.75-profile_chunk", "node-10.75-profile_chunk", "node-11.1-profile_chunk"] {
        assert_eq!(Sent::capture(chunk).to(address).status(), 200);
    }
    let decided = ["python-2.75-transaction", "node-10.75-v1-transaction+profile", "node-11.1-span"];
    for (count, name) in decided.into_iter().enumerate() {
        let sent = Sent::capture(name);
        assert_eq!(sent.to(address).status(), 200);
        let received = sentry.received.wait(count + 1).remove(count);
        assert!(received.body == sent.body, "{name} is not what was sent");
    }
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry");
    let v1 = std::fs::read_to_string(captures.join("node-10.75-v1-transaction+profile.envelope")).unwrap();
    let undecided = v1.replace(r#""sampled":"true","#, "");
    let body = format!("{}\n{{\"type\":\"attachment\"}}\nok\n", undecided.trim_end());
    assert_eq!(Sent::plain(42, KEY, body).to(address).status(), 200);
    let rest = sentry.received.wait(decided.len() + 1).remove(decided.len());
    assert_eq!((rest.kinds(), rest.items_of("attachment")), (vec!["attachment"], vec![b"ok".to_vec()]));
    let dropped = |unit: &str| profbridge.metric(&format!("profbridge_dropped_{unit}_total"), "reason=\"sample_rate\"");
    assert!(dropped("observations") > 100.0 && dropped("spans") >= 1.0);
    let (status, log) = profbridge.stop();
    assert!(status.success() && log.contains("sample format V1"), "{log}");
    assert_eq!(sentry.received.all().len(), decided.len() + 1);
}
