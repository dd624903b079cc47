use crate::config::{BadId, Carries, ComponentId, PipelineId};

/// Guarantees: ids follow the Collector's rules (component/identifiable_test.go has the same cases) and print as written.
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
        ("1otlp", BadId::Kind),
        ("ot-lp", BadId::Kind),
        ("otlp/a b", BadId::Name),
        ("otlp/a\u{7}", BadId::Name),
        ("otlp/a+b", BadId::Name),
    ] {
        assert_eq!(bad.parse::<ComponentId>(), Err(why), "{bad:?}");
    }
    assert!("a".repeat(63).parse::<ComponentId>().is_ok());
    assert_eq!("a".repeat(64).parse::<ComponentId>(), Err(BadId::Kind));
    assert!(format!("a/{}", "é".repeat(1024)).parse::<ComponentId>().is_ok());
    assert_eq!(format!("a/{}", "é".repeat(1025)).parse::<ComponentId>(), Err(BadId::Name));
}

/// Guarantees: the part before the slash limits a pipeline to a signal; any other name carries everything.
#[test]
fn pipelines_carry_what_their_name_says() {
    for (name, carries) in [
        ("profiles", Carries::Profiles),
        ("profiles/eu", Carries::Profiles),
        ("traces/x", Carries::Traces),
        ("metrics", Carries::Metrics),
        ("logs/x", Carries::Logs),
        ("default", Carries::Everything),
        ("main/profiles", Carries::Everything),
    ] {
        let id: PipelineId = name.parse().unwrap();
        assert_eq!((id.carries(), id.to_string().as_str()), (carries, name));
    }
}
