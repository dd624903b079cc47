//! Announces a root span to profbridge, does some work, and ends the span. A target with `profile_lifecycle: trace` is
//! profiled meanwhile.
//!
//!     cargo run -p profbridge-receiver-ptrace --example announce -- [SOCKET]

#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use profbridge_receiver_ptrace::control::client::{ClientError, ControlClient};
#[cfg(target_os = "linux")]
use profbridge_receiver_ptrace::control::protocol::{ControlRequest, ControlResponse, SpanHeaders};

#[cfg(target_os = "linux")]
fn main() -> Result<(), ClientError> {
    let path = std::env::args_os().nth(1).map(Into::into);
    let path = path.unwrap_or_else(profbridge_receiver_ptrace::control::default_path);
    // A real program passes the ids of its own tracing; these are the ids in Sentry's documentation.
    let answer = in_root_span(&path, "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718-1", || {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            std::hint::black_box(fibonacci(20));
        }
    })?;
    print_answer(&answer);
    Ok(())
}

/// Does `work` while a root span is open, and returns profbridge's answer to the start of the span. The connection owns
/// the span: if the program dies meanwhile, the span ends.
#[cfg(target_os = "linux")]
pub(crate) fn in_root_span(
    path: &Path,
    sentry_trace: &str,
    work: impl FnOnce(),
) -> Result<ControlResponse, ClientError> {
    let mut client = ControlClient::connect(path, Duration::from_secs(1))?;
    let span = SpanHeaders { sentry_trace: Some(sentry_trace.to_owned()), ..SpanHeaders::default() };
    let answer = client.request(&ControlRequest::SpanStart(span.clone()))?;
    work();
    client.request(&ControlRequest::SpanEnd(span))?;
    Ok(answer)
}

#[cfg(target_os = "linux")]
fn print_answer(answer: &ControlResponse) {
    use std::io::Write as _;
    let text = match (&answer.error, &answer.message) {
        (Some(fault), _) => format!("refused: {}: {}", fault.place, fault.rule),
        (None, Some(message)) => message.clone(),
        (None, None) => format!("{} profilers started", answer.changed),
    };
    // An error is ignored: the standard error stream may be closed.
    writeln!(std::io::stderr(), "{text}").ok();
}

#[cfg(target_os = "linux")]
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
