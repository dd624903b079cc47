use super::*;

fn process(environment: &[(&str, &str)]) -> Process {
    let environment = environment.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Process {
        pid: 1234,
        namespace_pid: 7,
        start_unix_nano: 1_767_225_600_000_000_000,
        exec_id: 5,
        executable: "/opt/app/server".to_owned(),
        arguments: vec!["server".to_owned(), "--password=secret".to_owned()],
        container: Some("0123456789abcdef".to_owned()),
        environment,
        ..Process::default()
    }
}

fn described(environment: &[(&str, &str)], names: &ServiceNames) -> DescribedProcess {
    describe("node-1", &process(environment), names, ProfilerSession { id: 0xab, sampled: true }, &[])
}

fn find<'a>(described: &'a DescribedProcess, key: &str) -> Option<&'a str> {
    let found = described.attributes.iter().find(|attribute| attribute.key == key)?;
    match &found.value {
        ResourceValue::Text(text) => Some(text),
        ResourceValue::Int(_) | ResourceValue::List(_) => None,
    }
}

/// Guarantees: the process is described by its ids, executable, start, container, host and session, and never by its
/// arguments.
#[test]
fn process_attributes() {
    let described = described(&[], &ServiceNames::default());
    let expected = [
        ("process.executable.name", "server"),
        ("process.executable.path", "/opt/app/server"),
        ("process.creation.time", "2026-01-01T00:00:00.000000000Z"),
        ("container.id", "0123456789abcdef"),
        ("host.name", "node-1"),
        ("os.type", "linux"),
        (SESSION_ATTRIBUTE, "00000000000000ab"),
    ];
    for (key, value) in expected {
        assert_eq!(find(&described, key), Some(value), "{key}");
    }
    let ints: Vec<_> = described
        .attributes
        .iter()
        .filter(|a| matches!(a.value, ResourceValue::Int(_)))
        .map(|a| (&*a.key, &a.value))
        .collect();
    assert_eq!(ints, [("process.pid", &ResourceValue::Int(1234)), ("process.vpid", &ResourceValue::Int(7))]);
    assert_eq!(find(&described, "service.name"), None);
    assert!(!format!("{described:?}").contains("secret"));
    let mut keys: Vec<_> = described.attributes.iter().map(|attribute| &attribute.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), described.attributes.len(), "each key once");
}

/// Guarantees: outside of a PID namespace there is no second id.
#[test]
fn no_second_pid() {
    let process = Process { namespace_pid: 1234, container: None, ..process(&[]) };
    let described = describe("h", &process, &ServiceNames::default(), ProfilerSession { id: 1, sampled: true }, &[]);
    assert!(described.attributes.iter().all(|a| a.key != "process.vpid" && a.key != "container.id"));
}

/// Guarantees: the configuration takes precedence over variables with a special meaning, and these over
/// `OTEL_RESOURCE_ATTRIBUTES`.
#[test]
fn precedence() {
    let attributes = "service.name=from-attributes,service.version=1.0,deployment.environment.name=attributes%20env,\
                      service.instance.id=i-1,other=x";
    let environment = [("OTEL_RESOURCE_ATTRIBUTES", attributes)];
    let told = described(&environment, &ServiceNames::default());
    assert_eq!(find(&told, "service.name"), Some("from-attributes"));
    assert_eq!(find(&told, "service.version"), Some("1.0"));
    assert_eq!(find(&told, "service.instance.id"), Some("i-1"));
    assert_eq!(find(&told, "deployment.environment.name"), Some("attributes env"));
    assert_eq!(find(&told, "sentry.release"), None);

    let environment = [
        environment[0],
        ("OTEL_SERVICE_NAME", "from-variable"),
        ("SENTRY_RELEASE", "app@2.0"),
        ("SENTRY_ENVIRONMENT", "staging"),
    ];
    let told = described(&environment, &ServiceNames::default());
    assert_eq!(find(&told, "service.name"), Some("from-variable"));
    assert_eq!(find(&told, "sentry.release"), Some("app@2.0"));
    assert_eq!(find(&told, "deployment.environment.name"), Some("staging"));

    let names = ServiceNames {
        name: Some("configured".to_owned()),
        version: Some("3".to_owned()),
        environment: Some("canary".to_owned()),
        release: Some("r".to_owned()),
    };
    let told = described(&environment, &names);
    assert_eq!(find(&told, "service.name"), Some("configured"));
    assert_eq!(find(&told, "service.version"), Some("3"));
    assert_eq!(find(&told, "sentry.release"), Some("r"));
    assert_eq!(find(&told, "deployment.environment.name"), Some("canary"));
}

/// Guarantees: a variable that breaks its rules is discarded as a whole and reported, and texts are cut at a character
/// boundary.
#[test]
fn bad_variables() {
    let told = described(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,b")], &ServiceNames::default());
    assert_eq!(find(&told, "service.name"), None);
    let complaint = told.complaint.unwrap();
    assert!(complaint.contains("OTEL_RESOURCE_ATTRIBUTES") && complaint.contains("attribute 2"), "{complaint}");
    let long = "ä".repeat(5000);
    let told = described(&[("OTEL_SERVICE_NAME", &long)], &ServiceNames::default());
    assert_eq!(find(&told, "service.name").unwrap(), "ä".repeat(2048));
    let told = described(&[("OTEL_SERVICE_NAME", "")], &ServiceNames::default());
    assert_eq!(find(&told, "service.name"), None, "an empty variable is none");
}

/// Guarantees: other attributes from the process's environment are passed on, the last one of each key; attributes that
/// profbridge sets are not, even if profbridge does not know them, and the configuration takes precedence.
#[test]
fn passed_on() {
    let attributes = "k8s.pod.name=web-0,cloud.region=eu%2Dwest,k8s.pod.name=web-1,process.pid=1,process.owner=root,container.id=x,\
                      telemetry.sdk.name=y,profbridge.session.id=0,host.name=z,host.id=h,os.type=plan9,service.name=told,\
                      service.criticality=high,deployment.environment=old,thread.id=9,empty=";
    let names = ServiceNames { name: Some("configured".to_owned()), ..ServiceNames::default() };
    let told = described(&[("OTEL_RESOURCE_ATTRIBUTES", attributes)], &names);
    assert_eq!(told.complaint, None);
    let before = described(&[], &names);
    let mut more: Vec<_> =
        told.attributes.iter().filter(|attribute| !before.attributes.contains(attribute)).map(|a| &*a.key).collect();
    more.sort_unstable();
    let expected = ["cloud.region", "deployment.environment.name", "host.id", "k8s.pod.name", "service.criticality"];
    assert_eq!(more, expected);
    assert_eq!(find(&told, "k8s.pod.name"), Some("web-1"));
    assert_eq!(find(&told, "cloud.region"), Some("eu-west"));
    assert!(before.attributes.iter().all(|attribute| told.attributes.contains(attribute)));
}

/// Guarantees: attributes that are passed on are limited in number and size, and those left out are reported.
#[test]
fn passed_on_is_bounded() {
    let many: Vec<String> = (0..100).map(|n| format!("key{n}=v")).collect();
    let long: Vec<String> = (0..6).map(|n| format!("key{n}={}", "v".repeat(5000))).collect();
    let key = format!("{}=v", "k".repeat(MAX_KEY + 1));
    for (attributes, passed, left_out) in
        [(many.join(","), MAX_PASSED, 36), (long.join(","), MAX_PASSED_BYTES / (MAX_TEXT + 4), 3), (key, 0, 1)]
    {
        let told = described(&[("OTEL_RESOURCE_ATTRIBUTES", &attributes)], &ServiceNames::default());
        let count = told.attributes.iter().filter(|attribute| attribute.key.starts_with('k')).count();
        assert_eq!(count, passed);
        assert!(told.complaint.unwrap().starts_with(&format!("{left_out} attributes")), "{left_out}");
    }
}

/// Guarantees: attributes that the configuration inserts are used if they are missing: they take precedence over
/// environment variables without a special meaning, but never replace what is observed or has its own key in the
/// configuration.
#[test]
fn configured_attributes_are_inserted() {
    let process = process(&[("OTEL_RESOURCE_ATTRIBUTES", "zone=told,team=told,service.name=shop")]);
    let insert = [("host.id", "node-3"), ("host.name", "else"), ("service.name", "else"), ("zone", "b")];
    let insert = insert.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let session = ProfilerSession { id: 1, sampled: true };
    let described = describe("node-1", &process, &ServiceNames::default(), session, &insert);
    let said = |key: &str| {
        let mut all = described.attributes.iter().filter(|attribute| attribute.key == key);
        let value = all.next().map(|attribute| attribute.value.clone());
        assert!(all.next().is_none(), "{key} is said once");
        value
    };
    let expected =
        [("host.id", "node-3"), ("host.name", "node-1"), ("service.name", "shop"), ("zone", "b"), ("team", "told")];
    for (key, value) in expected {
        assert_eq!(said(key), Some(ResourceValue::Text(value.to_owned())), "{key}");
    }
}

fn claims(pairs: &[(&str, &str)]) -> Vec<(String, AttributeValue)> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), AttributeValue::Text(value.to_owned()))).collect()
}

fn claimed(attributes: &[Attribute]) -> Vec<&str> {
    let found = attributes.iter().find(|attribute| attribute.key == CLAIMED_ATTRIBUTE);
    match found.map(|attribute| &attribute.value) {
        Some(ResourceValue::List(keys)) => keys.iter().map(String::as_str).collect(),
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Guarantees: a context published by the program adds attributes that nothing else provides, marked as the program's
/// own claim; it changes nothing from the configuration, the environment or the sampler.
/// rule: otlp-profiles#process-context
#[test]
fn claims_fill_what_is_unknown() {
    let names = ServiceNames { version: Some("2".to_owned()), ..ServiceNames::default() };
    let described = described(&[("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=set,team=a")], &names);
    let mut shown = claims(&[
        ("service.name", "shop"),
        ("service.version", "1"),
        ("service.namespace", "other"),
        ("service.instance.id", "i"),
        ("deployment.environment", "test"),
        ("team", "b"),
    ]);
    shown.push(("shard".to_owned(), AttributeValue::Int(3)));
    let attributes = with_claims(&described.attributes, &shown, &[]);
    let all = DescribedProcess { attributes, complaint: None };
    let expected = [
        ("service.name", "shop"),
        ("service.version", "2"),
        ("service.namespace", "set"),
        ("service.instance.id", "i"),
        ("deployment.environment.name", "test"),
        ("team", "a"),
    ];
    for (key, value) in expected {
        assert_eq!(find(&all, key), Some(value), "{key}");
    }
    assert_eq!(
        claimed(&all.attributes),
        ["service.name", "service.instance.id", "deployment.environment.name", "shard"]
    );
    let without = with_claims(&described.attributes, &[], &[]);
    assert_eq!(without, described.attributes);
    let keys = ["http.route".to_owned()];
    assert_eq!(claimed(&with_claims(&described.attributes, &[], &keys)), ["http.route"]);
}

/// Guarantees: a program decides neither its own identity nor the profiler, host or release of its profiles, nor their
/// size; an unnamed service stays unnamed.
#[test]
fn attack_claims() {
    let described = described(&[], &ServiceNames::default());
    let before = identity(&Rules::default(), &described.attributes);
    let mut shown = claims(&[
        ("process.pid", "1"),
        ("process.vpid", "1"),
        ("container.id", "x"),
        ("container.name", "x"),
        ("host.id", "x"),
        ("host.name", "x"),
        ("k8s.pod.uid", "x"),
        ("os.type", "x"),
        ("telemetry.sdk.name", "x"),
        ("thread.id", "1"),
        ("profile.frame.type", "x"),
        ("profbridge.session.id", "x"),
        ("profbridge.claimed", "x"),
        ("sentry.profiler_id", "x"),
        ("sentry.release", "x"),
        ("service.name", "unknown_service:python"),
        ("empty", ""),
    ]);
    shown.push(("k".repeat(MAX_KEY + 1), AttributeValue::Int(1)));
    let attributes = with_claims(&described.attributes, &shown, &[]);
    assert_eq!(attributes, described.attributes);
    let many: Vec<_> = (0..10_000).map(|key| (format!("k{key}"), AttributeValue::Text("x".repeat(5000)))).collect();
    let attributes = with_claims(&described.attributes, &many, &[]);
    assert!(attributes.len() <= described.attributes.len() + MAX_PASSED + 1);
    let size: usize = format!("{attributes:?}").len();
    assert!(size < 2 * MAX_PASSED_BYTES + 4096, "{size}");
    assert_eq!(identity(&Rules::default(), &attributes), before);
}
