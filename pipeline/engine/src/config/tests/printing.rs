use super::{from, text};
use crate::config::Source;

/// Guarantees: the printed configuration contains all sources, merged and in order, with secrets masked and references
/// unexpanded.
#[test]
fn the_effective_configuration_is_printed() {
    let base = text(
        "receivers:\n  otlp:\n    protocols: {grpc: , http: {endpoint: \"${env:HOST}:4318\"}}\nexporters:\n  sentry/a.b:\n    \
         dsn: ${env:SENTRY_DSN:-}\n    fallback_dsn: https://s3cr3t@host/1\n    headers: {x: s3cr3t, y: \"${KEY}\"}\n    \
         proxy: http://user:s3cr3t@proxy:3128\n    region: 0123\n    note: \"yes: no\"\n    folded: >\n      a\n      b\n    \
         empty: {}\n    none: []\n    routes: [{match: a, dsn: s3cr3t}, b]\n    token: \n",
    );
    let config = from(&[base, Source::Set("exporters.\"sentry/a.b\".region=1.10".into())]).unwrap();
    let expected = "\
receivers:
  otlp:
    protocols:
      grpc:
      http:
        endpoint: \"${env:HOST}:4318\"
exporters:
  sentry/a.b:
    dsn: ${env:SENTRY_DSN:-}
    fallback_dsn: \"[redacted]\"
    headers:
      x: \"[redacted]\"
      y: \"${KEY}\"
    proxy: \"http://[redacted]@proxy:3128\"
    region: 1.10
    note: \"yes: no\"
    folded: \"a b\\n\"
    empty: {}
    none: []
    routes:
      -
        match: a
        dsn: \"[redacted]\"
      - b
    token:
";
    assert_eq!(config.redacted_yaml(), expected);
}
