//! What is said about answers and failures: the host and the project by name, the key never.

use profbridge_net::client::Failure;
use profbridge_wire::sentry::{Dsn, response};

/// What the first acceptance means, and where to look when nothing shows.
pub(crate) const ACCEPTED: &str = "accepted for processing, not confirmed: sentry checks profiles later and drops without \
     a word what it does not want. if nothing shows under Explore > Profiles in some minutes, look at the project's \
     Stats & Usage (quota for profile hours, inbound filters), and, self-hosted, at the feature \
     organizations:continuous-profiling";

/// What it means that there is nowhere to send to.
pub(crate) const DISABLED: &str = "no DSN is set, so nothing is sent to sentry; set SENTRY_DSN or the key `dsn`, or \
     `upstream` for envelopes of SDKs";

/// What it means that spans come which were not put together.
pub(crate) const UNGROUPED: &str = "dropped as unroutable: spans that were not put together to transactions, which is \
     how sentry takes them; add the processor `transactions` to the pipeline";

/// The server and project of a DSN.
pub(crate) fn place(dsn: &Dsn) -> String {
    format!("{} (project {})", dsn.authority(), dsn.project_id())
}

/// An answer that is none of the 200s.
pub(crate) fn answered(dsn: &Dsn, status: u16, detail: Option<&str>) -> String {
    let meaning = match status {
        415 => "the server does not take the compression; write `compression: auto` or `gzip`",
        status => response::meaning(status),
    };
    match detail {
        Some(detail) => format!("{} answers {status}: {meaning} (it says: {detail})", place(dsn)),
        None => format!("{} answers {status}: {meaning}", place(dsn)),
    }
}

/// No usable answer.
pub(crate) fn failed(dsn: &Dsn, failure: &Failure) -> String {
    format!("{} cannot be reached: {}", place(dsn), dsn.redact(&failure.to_string()))
}
