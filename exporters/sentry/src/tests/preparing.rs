use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_engine::config::Section;
use profbridge_model::builder::Any;
use profbridge_model::{
    Builder, CLAIMED_ATTRIBUTE, IdentityStrength, ProcessWindow, ProfilerId, Profiles, Reason, Telemetry,
};
use profbridge_relay_rules::validate_json;
use profbridge_testkit::{ManualClock, check_prepare, telemetry};
use profbridge_wire::sentry::envelope;
use serde_json::{Value, json};

use super::server::{Reply, Server};
use super::{KEY, START_UNIX_NANO, batch, exporter, exporter_to, prepare, request};

/// Guarantees: a batch becomes an envelope that Relay accepts: one chunk on one line, with its platform in the item's
/// header.
/// rule: differences#item-platform, differences#one-line, sample-format-v2#envelope, profiles-sdk#v2-envelope
/// rule: profiles-sdk#v2-item-platform
#[tokio::test]
async fn an_envelope() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "environment: staging").await;
    exporter.send(&request(&exporter)).await.unwrap();
    let received = &server.received()[0];
    let envelope = received.envelope();
    let [item] = &envelope.items[..] else { panic!("one item") };
    validate_json(item.payload.plain().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&item.header).unwrap();
    let chunk = received.item("profile_chunk");
    let platform = chunk["platform"].as_str().unwrap();
    assert_eq!(header, json!({"type": "profile_chunk", "platform": platform, "content_type": "application/json"}));
    let header: Value = serde_json::from_slice(&envelope.header).unwrap();
    assert_eq!(header["sdk"]["name"], chunk["client_sdk"]["name"]);
    assert_eq!((&chunk["environment"], &chunk["release"]), (&json!("staging"), &json!("shop@1.0")));
    assert!(received.plain().ends_with(b"\n"));
    assert_eq!(envelope::read(received.plain()).unwrap().envelope.items.len(), 1);
}

/// Guarantees: profiles are sent to the project of their attribute, else to the default, else counted as unroutable.
#[tokio::test]
async fn routing() {
    let server = Server::always(Reply::status(200)).await;
    let routes = format!("{{shop: '{}', 7: '{}'}}", server.dsn(1), server.dsn(2));
    let with_default = format!("dsn: {}\nrouting: {{attribute_to_dsn: {routes}}}", server.dsn(3));
    let without = format!("routing: {{from_attribute: service.name, attribute_to_dsn: {routes}}}");
    let clock = ManualClock::default();
    for (yaml, service, project) in [
        (&with_default, "shop", Some(1)),
        (&with_default, "7", Some(2)),
        (&with_default, "other", Some(3)),
        (&without, "shop", Some(1)),
        (&without, "other", None),
    ] {
        let exporter = exporter(yaml, &clock).await;
        let prepared = prepare(&exporter, batch(service));
        match project {
            Some(project) => {
                exporter.send(&prepared.requests[0]).await.unwrap();
                let line = server.received().last().unwrap().line.clone();
                assert_eq!(line, format!("POST /api/{project}/envelope/ HTTP/1.1"));
            }
            None => {
                assert!(prepared.requests.is_empty());
                assert_eq!(prepared.losses.get(Reason::Unroutable).total(), 4);
            }
        }
    }
    let by_version =
        format!("routing: {{from_attribute: service.version, attribute_to_dsn: {{'1.0': '{}'}}}}", server.dsn(9));
    let exporter = exporter(&by_version, &clock).await;
    assert_eq!(prepare(&exporter, batch("any")).requests.len(), 1);
}

/// Guarantees: for any telemetry, split by process or not, in = out + lost, and no request is empty.
#[tokio::test]
async fn conservation() {
    let server = Server::always(Reply::status(200)).await;
    for compression in ["auto", "gzip", "none"] {
        let exporter = exporter_to(&server, &format!("compression: {compression}")).await;
        for seed in 0..20 {
            check_prepare(&exporter, seed, |random, now| {
                let mut telemetry = telemetry(random, 60, now);
                if let Telemetry::Profiles(profiles) = &mut telemetry
                    && random.u8(0..10) > 0
                {
                    profiles.window = Some(ProcessWindow {
                        profiler_id: ProfilerId::from_hash(1),
                        strength: IdentityStrength::Weak,
                        start_unix_nano: now.unix_nano - 60_000_000_000,
                        end_unix_nano: now.unix_nano,
                    });
                }
                telemetry
            });
        }
    }
}

/// Guarantees: without a DSN, the exporter reports that it is disabled, and does not fail.
#[tokio::test]
async fn switched_off() {
    let made = |yaml: &str| (crate::FACTORY.create)(&Section::from_yaml(yaml).unwrap()).unwrap();
    assert!(made("dsn: ''").disabled().is_some_and(|reason| reason.contains("SENTRY_DSN")));
    assert_eq!(made(&format!("dsn: https://{KEY}@sentry.example/1")).disabled(), None);
    let off = exporter("dsn: ''", &ManualClock::default()).await;
    assert_eq!(prepare(&off, batch("shop")).losses.get(Reason::Unroutable).total(), 4);
    off.close().await;
}

/// Guarantees: a claim that only the profiled program makes does not choose the DSN; the same value from another source
/// does.
#[tokio::test]
async fn claims_do_not_route() {
    let server = Server::always(Reply::status(200)).await;
    let routes = format!("routing: {{attribute_to_dsn: {{shop: '{}', python: '{}'}}}}", server.dsn(1), server.dsn(2));
    let exporter = exporter(&routes, &ManualClock::default()).await;
    let keys = [Any::Str("service.name")];
    for (claimed, project) in [(&keys[..], 2), (&[], 1)] {
        let mut builder = Builder::new();
        builder.resource(&[
            ("service.name", "shop".into()),
            ("process.executable.name", "python".into()),
            (CLAIMED_ATTRIBUTE, Any::Array(claimed)),
        ]);
        let window = batch("").window;
        let mut profiles = observed_in(builder);
        profiles.window = window;
        let prepared = prepare(&exporter, profiles);
        exporter.send(&prepared.requests[0]).await.unwrap();
        let line = server.received().last().unwrap().line.clone();
        assert_eq!(line, format!("POST /api/{project}/envelope/ HTTP/1.1"));
    }
}

/// One thread, observed twice, in the process of the current resource.
fn observed_in(mut builder: Builder) -> Profiles {
    builder.scope("test", "");
    builder.on_cpu(20);
    let leaf = builder.frame("leaf", "/app/a.py", 7);
    let stack = builder.stack(&[leaf]);
    let thread = builder.attributes(&[("thread.id", 1.into())]);
    builder.sample(stack, thread, None, &[START_UNIX_NANO, START_UNIX_NANO + 50_000_000], &[]);
    builder.finish().unwrap()
}
