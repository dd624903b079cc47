use profbridge_engine::config::Section;
use profbridge_model::TelemetryKind;
use profbridge_processor_sample::FACTORY;

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section, &Default::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => {
            problems.as_slice().iter().map(|problem| format!("{}: {}", problem.key_path, problem.message)).collect()
        }
    }
}

/// Guarantees: the lifecycle can be chosen, every condition of a rule can be written, and no key is required.
/// rule: profiles-sdk#lifecycle-option, tracing-sdk#opt-in
#[test]
fn nothing_must_be_written() {
    let rules = "traces_sample_rate: 0.5\nprofile_lifecycle: trace\ntraces_rules:\n\
        - {name: 'GET *', op: http.*, service: shop, attributes: {url.path: /health}, parent_sampled: none, \
        sampled: false}\n\
        - {parent_sampled: true, sample_rate: 1}\n- {parent_sampled: false, rate_from: app.rate}";
    for yaml in ["", "profile_lifecycle: manual", rules] {
        assert_eq!(problems(yaml), [""; 0], "{yaml}");
    }
}

/// Guarantees: invalid rates anywhere in the configuration are rejected: not a number, NaN, infinite, below 0 and above
/// 1.
/// rule: profiles-sdk#session-sample-rate, tracing-sdk#sample-rate
#[test]
fn invalid_rates_are_refused() {
    for rate in ["-0.1", "1.1", ".nan", ".inf", "-.inf"] {
        let yaml = format!(
            "traces_sample_rate: {rate}\nprofile_session_sample_rate: {rate}\ntraces_rules: [{{sample_rate: {rate}}}]"
        );
        let mut found = problems(&yaml);
        found.sort();
        let rule = "a rate is a number from 0 to 1";
        let keys = ["profile_session_sample_rate", "traces_rules.0.sample_rate", "traces_sample_rate"];
        assert_eq!(found, keys.map(|key| format!("{key}: {rule}")), "{rate}");
    }
    for no_number in ["a tenth", "[1]", "true"] {
        assert_eq!(problems(&format!("traces_sample_rate: {no_number}")).len(), 1, "{no_number}");
    }
    for rate in ["0", "0.0", "1", "1.0", "1e-9"] {
        assert_eq!(problems(&format!("traces_sample_rate: {rate}")), [""; 0], "{rate}");
    }
}

/// Guarantees: violations of the other rules are reported too, all of them at once.
#[test]
fn every_rule_is_checked() {
    let yaml = "decision_wait: 0s\nprofile_wait: 2h\nmax_traces: 0\nmax_bytes: 1\n\
        traces_rules: [{}, {sampled: true, sample_rate: 0.5}, {rate_from: ''}]";
    let mut found = problems(yaml);
    found.sort();
    let expected = [
        "decision_wait: must be more than 0s and at most 1h",
        "max_bytes: must be at least 4KiB",
        "max_traces: must be at least 1",
        "profile_wait: must be more than 0s and at most 1h",
        "traces_rules.0: a rule says one of `sample_rate`, `rate_from` and `sampled`",
        "traces_rules.1: a rule says one of `sample_rate`, `rate_from` and `sampled`",
        "traces_rules.2.rate_from: names no attribute",
    ];
    assert_eq!(found, expected);
    assert_eq!(problems("profile_lifecycle: perhaps").len(), 1);
    assert_eq!(problems("traces_rules: [{parent_sampled: perhaps, sampled: true}]").len(), 1);
    assert_eq!(problems("traces_rules: [{nmae: x, sampled: true}]").len(), 1);
}

/// Guarantees: in the lifecycle `trace`, and only there, the processor requires spans in its pipeline.
/// rule: profiles-sdk#lifecycle-trace-warning
#[test]
fn lifecycle_trace_wants_spans() {
    let wants = |yaml: &str| (FACTORY.description.wants)(&Section::from_yaml(yaml).unwrap());
    assert_eq!(wants("profile_lifecycle: trace"), [TelemetryKind::Spans]);
    assert_eq!(wants("profile_lifecycle: manual"), []);
    assert_eq!(wants(""), []);
}
