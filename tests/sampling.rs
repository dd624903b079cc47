//! The processor `sample` between Sentry's SDKs and Sentry, in the binary.

use std::path::PathBuf;

use crate::backend::sentry::{KEY, SentryBackend};
use crate::process::Profbridge;
use crate::sentry_envelopes::Sent;

/// Guarantees: with rates of 0, profile chunks are dropped, and so are transactions without a sampling decision, with
/// their V1 profile; an SDK's own decision keeps its transactions, byte for byte. Dropped data is counted by its
/// reason, and reported to the client's project as an SDK would report it: the transaction, its spans including itself,
/// its profile and its attachment. An envelope's other items arrive.
/// rule: transport#client-reports-sample-rate, transport#attachments
#[test]
fn what_is_sampled_out_does_not_arrive() {
    let sentry = SentryBackend::start();
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
    let more = "{\"type\":\"attachment\"}\nsecret\n{\"type\":\"user_report\"}\nok";
    let body = format!("{}\n{more}\n", undecided.trim_end());
    assert_eq!(Sent::plain(42, KEY, body).to(address).status(), 200);
    // Several requests are sent concurrently.
    let mut received = sentry.received.wait(decided.len() + 2).split_off(decided.len());
    received.sort_by_key(|received| received.kinds().concat());
    let [report, rest] = &received[..] else { panic!("{} envelopes", received.len()) };
    assert_eq!((rest.kinds(), rest.items_of("user_report")), (vec!["user_report"], vec![b"ok".to_vec()]));
    assert_eq!(report.kinds(), ["client_report"]);
    let report: serde_json::Value = serde_json::from_slice(&report.items_of("client_report")[0]).unwrap();
    assert_eq!(
        report["discarded_events"],
        serde_json::json!([
            {"reason": "sample_rate", "category": "transaction", "quantity": 1},
            {"reason": "sample_rate", "category": "span", "quantity": 2},
            {"reason": "sample_rate", "category": "profile", "quantity": 1},
            {"reason": "sample_rate", "category": "attachment", "quantity": 6},
        ])
    );
    let dropped = |unit: &str| profbridge.metric(&format!("profbridge_dropped_{unit}_total"), "reason=\"sample_rate\"");
    assert!(dropped("observations") > 100.0 && dropped("spans") >= 1.0);
    let (status, log) = profbridge.stop();
    assert!(status.success() && log.contains("sample format V1"), "{log}");
    assert_eq!(sentry.received.all().len(), decided.len() + 2);
}
