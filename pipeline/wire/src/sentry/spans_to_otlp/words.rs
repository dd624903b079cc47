//! Maps Sentry's operation and status of a span to OTLP. The [module](super)'s documentation has the tables.

use profbridge_model::SpanKind;

/// The kind of a span with this `op` and, if not empty, OpenTelemetry's kind. `is_first` means that it is the first
/// span of its process, because only that one may handle a request of another program.
pub(super) fn kind(op: &str, otel_kind: &str, is_first: bool) -> SpanKind {
    let kind = match otel_kind {
        "SERVER" => SpanKind::Server,
        "CLIENT" => SpanKind::Client,
        "PRODUCER" => SpanKind::Producer,
        "CONSUMER" => SpanKind::Consumer,
        "INTERNAL" => SpanKind::Internal,
        _ => of_op(op),
    };
    match kind {
        SpanKind::Server | SpanKind::Consumer if !is_first => SpanKind::Internal,
        kind => kind,
    }
}

fn of_op(op: &str) -> SpanKind {
    let family = op.split('.').next().unwrap_or_default();
    match op {
        "queue.publish" | "queue.submit" => SpanKind::Producer,
        "queue.process" => SpanKind::Consumer,
        _ if op.ends_with(".server") => SpanKind::Server,
        _ if op.ends_with(".client") || matches!(family, "db" | "cache" | "gen_ai") => SpanKind::Client,
        _ => SpanKind::Internal,
    }
}

/// `Status.code` and `Status.message`.
pub(super) fn status(status: &str) -> (u64, String) {
    match status {
        "ok" => (1, String::new()),
        "" | "cancelled" | "unknown" | "unknown_error" => (0, String::new()),
        // The status of container spans, which have no further details.
        "error" => (2, String::new()),
        failure => (2, failure.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each operation has the documented kind, and a span inside of a transaction never begins another.
    #[test]
    fn kinds() {
        for (op, first, inside) in [
            ("http.server", SpanKind::Server, SpanKind::Internal),
            ("rpc.server", SpanKind::Server, SpanKind::Internal),
            ("queue.process", SpanKind::Consumer, SpanKind::Internal),
            ("queue.publish", SpanKind::Producer, SpanKind::Producer),
            ("queue.submit", SpanKind::Producer, SpanKind::Producer),
            ("http.client", SpanKind::Client, SpanKind::Client),
            ("db", SpanKind::Client, SpanKind::Client),
            ("db.sql.query", SpanKind::Client, SpanKind::Client),
            ("cache.get", SpanKind::Client, SpanKind::Client),
            ("dbx", SpanKind::Internal, SpanKind::Internal),
            ("server", SpanKind::Internal, SpanKind::Internal),
            ("task", SpanKind::Internal, SpanKind::Internal),
            ("", SpanKind::Internal, SpanKind::Internal),
        ] {
            assert_eq!((kind(op, "", true), kind(op, "", false)), (first, inside), "{op}");
        }
        assert_eq!(kind("db", "PRODUCER", false), SpanKind::Producer);
        assert_eq!(kind("task", "SERVER", true), SpanKind::Server);
        assert_eq!(kind("task", "SERVER", false), SpanKind::Internal);
        assert_eq!(kind("db", "other", true), SpanKind::Client);
    }

    /// Guarantees: statuses that Sentry counts as failures become errors, and no others.
    #[test]
    fn statuses() {
        assert_eq!(status("ok"), (1, String::new()));
        for none in ["", "cancelled", "unknown", "unknown_error"] {
            assert_eq!(status(none), (0, String::new()));
        }
        assert_eq!(status("error"), (2, String::new()));
        assert_eq!(status("not_found"), (2, "not_found".to_owned()));
    }
}
