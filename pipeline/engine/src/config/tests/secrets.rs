use super::{config, from, settings, text};
use crate::config::redact::{is_secret_key, userinfo, without_inline_secrets, without_userinfo};
use crate::config::{Secret, Source};

/// Guarantees: keys that name a secret are recognised in all spellings; keys that only mention a secret are not.
#[test]
fn keys_of_secrets_are_known() {
    let secret = "dsn DSN sentry_dsn fallback_dsn dsns token access_token password passwd secret client_secret authorization \
                  Authorization api_key apikey x-api-key headers cookie tokne passwrod pasword credentials";
    for key in secret.split(' ') {
        assert!(is_secret_key(key), "{key}");
    }
    for key in ["endpoint", "timeout", "key_file", "token_file", "dsn_attribute", "dns", "name", "queue", "retry", "0"]
    {
        assert!(!is_secret_key(key), "{key}");
    }
}

/// Guarantees: the credentials of every URL in a text are masked, also if the password contains a slash or the scheme
/// is missing.
#[test]
fn credentials_in_urls_are_masked() {
    for (written, shown) in [
        ("https://key@host/1", "https://[redacted]@host/1"),
        ("https://user:pa/ss@host/1", "https://[redacted]@host/1"),
        ("a http://u@h b ftp://p@q", "a http://[redacted]@h b ftp://[redacted]@q"),
        ("https://host/1", "https://host/1"),
        ("user@host", "user@host"),
        ("host:1/path", "host:1/path"),
        ("image@sha256:1", "image@sha256:1"),
        ("a 'user:pw@host:1' //u:p@h", "a '[redacted]@host:1' [redacted]@h"),
        ("exporters.otlp.endpoint=user:p=w@host", "exporters.otlp.endpoint=[redacted]@host"),
        ("u:p@h,http://u:p@h", "[redacted]@h"),
        ("://@", "://@"),
        ("é://ü@é", "é://[redacted]@é"),
    ] {
        assert_eq!(without_userinfo(written), shown);
    }
    assert!(userinfo("").is_empty());
    assert_eq!(without_inline_secrets("SENTRY_TOKEN=abc"), "SENTRY_TOKEN=[redacted]");
    assert_eq!(
        without_inline_secrets("{\"password\": \"abc\"}"),
        "{\"password\": \"abc\"}".replace("abc\"}", "[redacted]")
    );
    assert_eq!(without_inline_secrets("${env:SENTRY_DSN:-}"), "${env:SENTRY_DSN:-}");
    assert_eq!(without_inline_secrets("/var/run/secrets/token"), "/var/run/secrets/token");
}

/// Guarantees: if several rules match one value, each masks its secret, in any order, and the rest is shown.
#[test]
fn rules_apply_together() {
    for (written, shown) in [
        ("http://user:pw@host/x?token=abc", "http://[redacted]@host/x?token=[redacted]"),
        ("http://user:pw@host/x?a=b", "http://[redacted]@host/x?a=b"),
        ("user:pw@host/x?token=abc", "[redacted]@host/x?token=[redacted]"),
        ("http://host/x?password=a http://u:p@host", "http://host/x?password=[redacted]"),
        (
            "http://a:b@c http://d:e@f/?sentry_key=g&h=i",
            "http://[redacted]@c http://[redacted]@f/?sentry_key=[redacted]",
        ),
        ("http://u:token=abc@host/x", "http://[redacted]"),
        ("token=http://user:pw@host", "token=[redacted]"),
        ("http://user:pw@host/?token=", "http://[redacted]@host/?token="),
    ] {
        assert_eq!(without_inline_secrets(written), shown);
    }
}

/// Guarantees: a value with two kinds of secrets never shows either, wherever it is and whatever is wrong around it: as
/// a value or a key, known or unknown, in a comment, on the command line, in text that is not YAML.
#[test]
fn no_place_shows_one_of_two_secrets() {
    let urls = ["http://user:s3cr3t1@host/x?token=s3cr3t2", "user:s3cr3t1@host/x?token=s3cr3t2"];
    let yaml = [
        "exporters: {otlp: {endpoint: 'URL'}}",
        "exporters:\n  otlp:\n    endpoint: URL\n    endpoint: URL\n",
        "exporters:\n  otlp: URL\n",
        "exporters:\n  'URL': URL\n",
        "exporters:\n  otlp: # URL\n    endpont: URL\n",
        "'URL': [URL, {URL: URL}]",
        "URL",
        "receivers: [URL",
        "service:\n  pipelines: {URL: {receivers: [URL]}}\n",
        "exporters: {x: {a: '${env:URL}', b: '${URL:x}', c: '${env:A:-URL}'}}",
        "exporters: {x: {dsn: {URL: URL}, headers: [URL]}}",
    ];
    for (yaml, url) in yaml.iter().flat_map(|yaml| urls.map(|url| (yaml.replace("URL", url), url))) {
        for set in ["exporters.otlp.endpoint=URL", "URL", "'URL'.x=1", "service.URL=URL"] {
            let sources = [text(&yaml), Source::Set(set.replace("URL", url))];
            for sources in [&sources[..1], &sources[1..], &sources[..]] {
                let shown = match from(sources) {
                    Ok(config) => format!("{} {:?}", config.redacted_yaml(), config.found),
                    Err(problems) => problems.to_string(),
                };
                assert!(!shown.contains("s3cr3t"), "{yaml}\n{set}:\n{shown}");
            }
        }
    }
}

/// Guarantees: a `Secret` reveals itself only through `expose`.
#[test]
fn a_secret_does_not_show() {
    let secret: Secret = settings("s3cr3t").unwrap();
    let shown = format!("{secret} {secret:?} {:#?} {}", secret, serde_json::to_string(&secret).unwrap());
    assert_eq!(shown, "[redacted] \"[redacted]\" \"[redacted]\" \"[redacted]\"");
    assert_eq!(secret.expose(), "s3cr3t");
    assert_eq!(format!("{} {:?}", Secret::default(), Secret::default()), " \"\"");
    assert!(Secret::default().is_empty() && !Secret::new("x").is_empty());
}

/// Guarantees: a component cannot reveal a secret by quoting it in a message, neither as a whole, nor in part, nor from
/// the environment.
#[test]
fn messages_are_scrubbed() {
    let yaml = "receivers:\n  x:\n    dsn: abcdefghijklmnop\n    host: ${env:KEY}\n    list: [{token: abcdefghijklmnop}]\n    open: visible\n";
    let config = config(yaml);
    let section = config.receivers.get(&"x".parse().unwrap()).unwrap();
    let message = |path: &str, text: &str| section.problem(path, text, text).message;
    assert_eq!(message("dsn", "`abcdefghijklmnop` is wrong"), "`[redacted]` is wrong");
    assert_eq!(message("dsn", "`bcdefghijk` is wrong"), "the value is not valid");
    assert_eq!(message("host", "no host s3cr3t"), "no host [redacted]");
    assert_eq!(message("list", "`abcdefghijklmnop` is wrong"), "`[redacted]` is wrong");
    assert_eq!(message("open", "`visible` is wrong"), "`visible` is wrong");
    assert_eq!(message("", "abcdefghijklmnop and s3cr3t"), "[redacted] and [redacted]");
    assert_eq!(section.problem("dsn", "x", "not abcdefghijklmnop").hint.unwrap(), "not [redacted]");
}

/// Guarantees: a configuration that is cut off at any point shows none of the secrets before that point.
#[test]
fn truncated_configurations_show_no_secret() {
    let yaml = "exporters:\n  sentry:\n    dsn: \"https://s3cr3t@o1.ingest.sentry.io/1\"\n    headers: {x: s3cr3t, authorization: 'Bearer s3cr3t'}\n    \
                routes:\n    - {match: a, dsn: https://s3cr3t@host/2}\n    - dsn: &d s3cr3t\n      token: *d\n    password: |\n      s3cr3t\n      s3cr3t: s3cr3t\n    end: [\n";
    for end in 0..=yaml.len() {
        for tail in ["", "\"", "]", ": x", "\n\t- x", "\n  y: *z", "\n }"] {
            let source = Source::Text { name: "cut".into(), text: format!("{}{tail}", &yaml[..end]) };
            let set = Source::Set(format!("exporters.sentry.token=s3cr3t{tail}"));
            for sources in [vec![source.clone()], vec![set, source]] {
                let shown = match from(&sources) {
                    Ok(config) => format!("{} {:?}", config.redacted_yaml(), config.found),
                    Err(problems) => problems.to_string(),
                };
                assert!(!shown.contains("s3cr3t"), "after {end} bytes and {tail:?}:\n{shown}");
            }
        }
    }
    assert!(format!("{:?}", text("s3cr3t")).contains("test.yaml"));
    assert!(!format!("{:?} {:?}", text("s3cr3t"), Source::Set("a=s3cr3t".into())).contains("s3cr3t"));
}
