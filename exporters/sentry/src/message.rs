//! Log messages about answers and failures. They name host and project, never the key.

use profbridge_net::client::Failure;
use profbridge_wire::sentry::{Dsn, response};

/// What the first accepted request means, and where to look if nothing shows up in Sentry.
pub(crate) const ACCEPTED: &str = "accepted for processing, not confirmed: sentry checks profiles later and drops without \
     a word what it does not want. if nothing shows under Explore > Profiles in some minutes, look at the project's \
     Stats & Usage (quota for profile hours, inbound filters), and, self-hosted, at the feature \
     organizations:continuous-profiling";

/// Logged if there is nowhere to send to.
pub(crate) const DISABLED: &str = "no DSN is set, so nothing is sent to sentry; set SENTRY_DSN or the key `dsn`, or \
     `upstream` for envelopes of SDKs";

/// Logged for ungrouped spans that have to become transactions.
pub(crate) const UNGROUPED: &str = "`spans: transactions` puts spans together by the batch that they came in: where a \
     request spreads over several, it becomes several transactions; add the processor `transactions` to the pipeline";

/// Logged if a server has no OTLP endpoint, and `spans` leaves the choice.
pub(crate) const LACKS_OTLP: &str = "the server has no endpoint for OTLP (sentry has one since 25.10), so spans are sent \
     as transactions, and about once an hour as OTLP: sentry counts them as transactions, spans of later batches are \
     transactions of their own, and the processor `transactions` puts them together";

/// Logged if a server has an OTLP endpoint that it did not have before.
pub(crate) const HAS_OTLP: &str = "the server has an endpoint for OTLP now, so spans are sent there again";

/// Server and project of a DSN, for messages.
pub(crate) fn server_and_project(dsn: &Dsn) -> String {
    format!("{} (project {})", dsn.authority(), dsn.project_id())
}

/// Describes an answer whose status is not 2xx.
pub(crate) fn answered(dsn: &Dsn, status: u16, detail: Option<&str>) -> String {
    let meaning = match status {
        415 => "the server does not take the compression; write `compression: auto` or `gzip`",
        status => response::meaning(status),
    };
    match detail {
        Some(detail) => format!("{} answers {status}: {meaning} (it says: {detail})", server_and_project(dsn)),
        None => format!("{} answers {status}: {meaning}", server_and_project(dsn)),
    }
}

/// Describes an attempt without a usable answer.
pub(crate) fn failed(dsn: &Dsn, failure: &Failure) -> String {
    format!("{} cannot be reached: {}", server_and_project(dsn), dsn.redact(&failure.to_string()))
}
