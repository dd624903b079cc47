use profbridge_model::{Envelope, Telemetry, TelemetryKind};

use crate::config::{BadId, Carries, ComponentId, PipelineId};

/// Guarantees: ids follow the Collector's rules (component/identifiable_test.go has the same cases) and print as
/// written.
#[test]
fn ids_follow_the_collectors_rules() {
    for good in ["otlp", "otlp/a", "otlp/a.b/c", "o_1", "valid_type/中文好", "valid_type/1"] {
        assert_eq!(good.parse::<ComponentId>().unwrap().to_string(), good);
    }
    assert_eq!(" otlp / a ".parse::<ComponentId>().unwrap().to_string(), "otlp/a");
    for (bad, why) in [
        ("", BadId::EmptyKind),
        ("/name", BadId::EmptyKind),
        ("  /name", BadId::EmptyKind),
        ("otlp/", BadId::EmptyName),
        ("otlp/  ", BadId::EmptyName),
        ("1otlp", BadId::NodeKind),
        ("ot-lp", BadId::NodeKind),
        ("otlp/a b", BadId::Name),
        ("otlp/a\u{7}", BadId::Name),
        ("otlp/a+b", BadId::Name),
    ] {
        assert_eq!(bad.parse::<ComponentId>(), Err(why), "{bad:?}");
    }
    assert!("a".repeat(63).parse::<ComponentId>().is_ok());
    assert_eq!("a".repeat(64).parse::<ComponentId>(), Err(BadId::NodeKind));
    assert!(format!("a/{}", "é".repeat(1024)).parse::<ComponentId>().is_ok());
    assert_eq!(format!("a/{}", "é".repeat(1025)).parse::<ComponentId>(), Err(BadId::Name));
}

/// Guarantees: the part before the slash limits a pipeline to a signal; a pipeline with any other name carries
/// everything.
#[test]
fn pipelines_carry_what_their_name_says() {
    for (name, carries) in [
        ("profiles", Carries::Only(TelemetryKind::Profiles)),
        ("profiles/eu", Carries::Only(TelemetryKind::Profiles)),
        ("traces/x", Carries::Only(TelemetryKind::Spans)),
        ("metrics", Carries::Unsupported),
        ("logs/x", Carries::Unsupported),
        ("default", Carries::Everything),
        ("main/profiles", Carries::Everything),
    ] {
        let id: PipelineId = name.parse().unwrap();
        assert_eq!((id.carries(), id.to_string().as_str()), (carries, name));
    }
}

/// Guarantees: an envelope, which may contain anything, goes only through pipelines that carry everything; a pipeline
/// for an unsupported signal carries nothing.
#[test]
fn telemetry_goes_where_it_is_carried() {
    let profiles = Telemetry::from(crate::fakes::batch(1));
    let envelope = Telemetry::from(Envelope::default());
    for (carries, expected) in [
        (Carries::Everything, [true, true]),
        (Carries::Only(TelemetryKind::Profiles), [true, false]),
        (Carries::Only(TelemetryKind::Envelopes), [false, true]),
        (Carries::Unsupported, [false, false]),
    ] {
        assert_eq!([&profiles, &envelope].map(|telemetry| carries.carries(telemetry)), expected, "{carries:?}");
    }
    let named = |name: &str| name.parse::<PipelineId>().unwrap().carries();
    let limits = TelemetryKind::ALL.iter().filter_map(|kind| kind.signal().map(|signal| (named(signal), *kind)));
    assert!(limits.into_iter().all(|(carries, kind)| carries == Carries::Only(kind)));
}
