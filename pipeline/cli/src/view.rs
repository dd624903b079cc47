//! `profbridge view`: shows files of profiles in a browser, as a page that this process serves on the loopback.

use std::convert::Infallible;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use profbridge_engine::web_pages::PageRules;
use profbridge_net::Shutdown;
use profbridge_net::server::{Listener, Peer, ServerLimits, ServerStats, serve};
use profbridge_net::tls::HttpVersions;

use crate::args::{DiffArgs, ViewArgs};
use crate::signals::Signals;
use crate::views::page::policy;
use crate::{Failure, commands, convert, diff, terminal};

/// Shows files until a signal asks to stop.
pub(crate) fn run(arguments: &ViewArgs) -> Result<ExitCode, Failure> {
    let graph = arguments.graph;
    let page = match (arguments.diff, &arguments.inputs[..]) {
        (false, inputs) => convert::page(inputs, &arguments.reading, graph)?,
        (true, [before, after]) => diff::page(&DiffArgs {
            before: before.clone(),
            after: after.clone(),
            output: None,
            kind: arguments.reading.kind.clone(),
            by: None,
            fail_above: None,
            graph,
            limit_mib: arguments.reading.limit_mib,
            counted: arguments.reading.counted,
        })?,
        (true, _) => {
            terminal::say("error: `--diff` compares two files, the first one from before");
            return Ok(ExitCode::from(2));
        }
    };
    commands::runtime()?.block_on(show(page.into(), !arguments.no_open))
}

/// Serves the page until a signal asks to stop.
async fn show(page: Bytes, open: bool) -> Result<ExitCode, Failure> {
    let listener = Listener::bind("127.0.0.1:0").await.map_err(|error| Failure(format!("error: {error}")))?;
    let address = format!("http://{}/", listener.local_addr());
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new("the system does not let this process wait for signals", &error))?;
    let policy = HeaderValue::from_str(&(policy() + "; frame-ancestors 'none'"))
        .map_err(|error| Failure::new("the policy of the page", &error))?;
    let service = service_fn(move |request: Request<Incoming>| {
        std::future::ready(Ok::<_, Infallible>(answer(&request, &page, &policy)))
    });
    let limits = ServerLimits { versions: HttpVersions::Http1, max_connections: 32, ..ServerLimits::default() };
    let (trigger, shutdown) = Shutdown::pair();
    let server = serve(listener, None, service, limits, Arc::new(ServerStats::default()), shutdown);
    terminal::result(format!("{address} shows it until Ctrl-C"));
    if open && has_display() {
        open_browser(&address);
    }
    tokio::join!(server, async {
        signals.next().await;
        trigger.trigger();
    });
    Ok(ExitCode::SUCCESS)
}

fn answer(request: &Request<Incoming>, page: &Bytes, policy: &HeaderValue) -> Response<Full<Bytes>> {
    let own = request.extensions().get::<Peer>().and_then(|peer| peer.own);
    let (status, kind, body) = match (PageRules { hosts: &[], origins: &[] }).check(request, own) {
        Err(fault) => (fault.status, "text/plain", fault.message.into()),
        Ok(()) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", Bytes::from_static(b"only GET is answered"))
        }
        Ok(()) if request.uri().path() == "/" => (StatusCode::OK, "text/html; charset=utf-8", page.clone()),
        Ok(()) => (StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(b"the page is under /")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether somebody sits in front of a screen.
fn has_display() -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(is_set) && !is_set(&"CI")
}

/// Opens a browser. If this fails, the user can still use the printed address.
fn open_browser(address: &str) {
    let quiet = [Stdio::null(), Stdio::null(), Stdio::null()];
    let [input, output, errors] = quiet;
    if let Err(error) = Command::new("xdg-open").arg(address).stdin(input).stdout(output).stderr(errors).spawn() {
        terminal::say(format!("note: no browser was opened: xdg-open: {error}"));
    }
}
