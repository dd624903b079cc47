//! `profbridge send`: delivers envelopes and spans from files, such as those that `on_shutdown` kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use profbridge_codec::compress;
use profbridge_codec::sentry::sent_later;
use profbridge_exporter_sentry::destination::Destination;
use profbridge_exporter_sentry::keep::{BodyForm, DSN_FILE, as_transactions};
use profbridge_model::Spans;
use profbridge_model::envelope::EnvelopeBody;
use profbridge_net::client::{HttpClient, HttpClientConfig};
use profbridge_net::compression::{Coding, Compression, decompress};
use profbridge_net::error_chain;
use profbridge_wire::sentry::chunk::Settings;
use profbridge_wire::sentry::response::{Verdict, detail, meaning};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::{Dsn, auth, envelope};
use profbridge_wire::spans::SpanView;
use tokio::task::JoinSet;

use crate::args::SendArgs;
use crate::terminal::{self, Progress, shown};
use crate::{Failure, commands};

/// How many requests are in flight at the same time.
const AT_ONCE: usize = 16;

/// What a file contains. `None` if its name does not say it.
fn form_of(path: &Path) -> Option<BodyForm> {
    BodyForm::of_file(&path.file_name()?.to_string_lossy())
}

/// A file's content, compressed with gzip, and its destination.
struct Unsent {
    form: BodyForm,
    to: Arc<Destination>,
    body: Bytes,
}

/// Why a file was not delivered.
enum Undelivered {
    /// The server has nothing at that address. Other files may still be delivered.
    NotFound(String),
    /// Other files may still be delivered.
    Refused(String),
    /// Trying other files is useless.
    Outage(String),
}

/// Sends every file, and prints how many were accepted.
pub(crate) fn run(arguments: &SendArgs) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    arguments.files.iter().for_each(|path| collect(path, &mut files));
    if files.is_empty() {
        let [one, other] = [BodyForm::Envelope, BodyForm::Traces].map(BodyForm::ending);
        let message = format!("error: there is no file with `{one}` or `{other}` in its name in that folder");
        return Err(Failure(message));
    }
    let client =
        HttpClient::new(&HttpClientConfig::default()).map_err(|error| Failure::new("no client for https", &error))?;
    let all = files.len();
    let noun = match files.iter().any(|path| form_of(path) == Some(BodyForm::Traces)) {
        true => "files",
        false => "envelopes",
    };
    let (delivered, stopped) =
        commands::runtime()?.block_on(deliver(client, files, arguments.dsn.clone(), arguments.delete));
    terminal::result(format!("{delivered} of {all} {noun} delivered"));
    if let Some(why) = stopped {
        let hint =
            "the others were not tried; run the same command later, with `--delete` to leave out what is delivered";
        return Err(Failure(format!("error: {why}\nhint: {hint}")));
    }
    Ok(if delivered == all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds a file, or all files with envelopes and spans in a folder, sorted by name.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else { return files.push(path.to_owned()) };
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort_unstable();
    let is_ours = |path: &PathBuf| path.is_dir() || form_of(path).is_some();
    entries.iter().filter(|path| is_ours(path)).for_each(|path| collect(path, files));
}

async fn deliver(
    client: HttpClient,
    files: Vec<PathBuf>,
    dsn: Option<String>,
    delete: bool,
) -> (usize, Option<String>) {
    let (mut delivered, mut stopped, mut progress, all) = (0, None, Progress::new(), files.len());
    let mut known = BTreeMap::new();
    let (mut sending, mut files) = (JoinSet::new(), files.into_iter());
    loop {
        while stopped.is_none()
            && sending.len() < AT_ONCE
            && let Some(path) = files.next()
        {
            match prepare(&path, dsn.as_deref(), &mut known) {
                Ok(unsent) => {
                    let client = client.clone();
                    sending.spawn(async move { (deliver_one(&client, unsent, &path).await, path) });
                }
                Err(why) => terminal::say(format!("error: {}: {why}", shown(&path))),
            }
        }
        let Some(ended) = sending.join_next().await else { return (delivered, stopped) };
        match ended {
            Ok((Ok(()), path)) => {
                delivered += 1;
                progress.show(format!("{delivered} of {all} delivered"));
                if delete && let Err(error) = fs::remove_file(&path) {
                    terminal::say(format!("error: {} is delivered, and stays: {error}", shown(&path)));
                }
            }
            Ok((Err(Undelivered::Refused(why) | Undelivered::NotFound(why)), path)) => {
                terminal::say(format!("error: {}: {why}", shown(&path)))
            }
            Ok((Err(Undelivered::Outage(why)), _)) => stopped = Some(why),
            Err(failed) => stopped = Some(failed.to_string()),
        }
    }
}

/// The destination of a file's content, and the body to post.
fn prepare(path: &Path, dsn: Option<&str>, known: &mut BTreeMap<String, Arc<Destination>>) -> Result<Unsent, String> {
    let form = form_of(path).unwrap_or(BodyForm::Envelope);
    let body = Bytes::from(fs::read(path).map_err(|error| error.to_string())?);
    let coding = path.extension().and_then(|coding| coding.to_str());
    let coding = Coding::parse(coding).unwrap_or(Coding::Identity);
    let body = decompress(coding, body, envelope::MAX_BYTES).map_err(|error| error.to_string())?;
    let header = body.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let named = match form {
        BodyForm::Envelope => {
            let read = envelope::Header::read(header).map_err(|error| format!("this is no envelope: {error}"))?;
            read.dsn.map(Into::into)
        }
        BodyForm::Traces => None,
    };
    let beside = || fs::read_to_string(path.with_file_name(DSN_FILE)).ok();
    let own = dsn.map(str::to_owned).or_else(beside).or(named);
    let dsn = own
        .or_else(|| std::env::var("SENTRY_DSN").ok().filter(|dsn| !dsn.is_empty()))
        .ok_or("it names no DSN, and there is none beside it; name one with `--dsn`, or set SENTRY_DSN")?;
    let to = match known.get(&dsn) {
        Some(to) => Arc::clone(to),
        None => {
            let parsed: Dsn = dsn.trim().parse().map_err(|error| format!("the DSN cannot be used: {error}"))?;
            let to = Arc::new(Destination::new(parsed).map_err(str::to_owned)?);
            known.insert(dsn, Arc::clone(&to));
            to
        }
    };
    if form == BodyForm::Traces {
        let body = compress(Compression::GZIP.with_level(1), &body).map_err(|error| error.to_string())?;
        return Ok(Unsent { form, to, body });
    }
    // The time that an envelope spent in the file must not look like a wrong clock.
    let since = fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::now());
    let waited = SystemTime::now().duration_since(since).unwrap_or(Duration::ZERO);
    let gzip = Compression::GZIP.with_level(1);
    let named = TraceHeader::with_public_key(header, to.dsn.public_key());
    let body = named.map_or_else(|| body.clone(), |named| [&named[..], &body[header.len()..]].concat().into());
    let header = body.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let received = EnvelopeBody { body: body.clone(), content_encoding: None, changed: false };
    let moved = sent_later(&received, header, waited, gzip).map_err(|error| error.to_string())?;
    let body = moved.map_or_else(|| compress(gzip, &body).map_err(|error| error.to_string()), Ok)?;
    Ok(Unsent { form, to, body })
}

/// Posts the content of a file. If the server has no OTLP endpoint, its spans are sent as transactions. Those get the
/// same ids if they are sent again.
async fn deliver_one(client: &HttpClient, unsent: Unsent, path: &Path) -> Result<(), Undelivered> {
    let Unsent { form, to, body } = unsent;
    match post(client, &to, form, body.clone()).await {
        Err(Undelivered::NotFound(_)) if form == BodyForm::Traces => {}
        answered => return answered,
    }
    let encoding = Compression::GZIP.content_encoding();
    let written =
        as_transactions(body, encoding, &to.dsn, settings).map_err(|error| Undelivered::Refused(error.to_string()))?;
    for message in written.messages {
        post(client, &to, BodyForm::Envelope, message.body).await?;
    }
    if !written.report.losses.is_none() {
        let path = shown(path);
        terminal::say(format!("{path}: the server takes transactions only: {} are lost", written.report.losses));
    }
    Ok(())
}

/// The settings for transactions of these spans: the exporter that wrote them named its environment in each span.
fn settings(spans: &Spans) -> Settings {
    let environment = spans.spans().first().and_then(|span| {
        SpanView::of(spans, span).attribute("sentry.environment").and_then(|environment| environment.into_text())
    });
    let default = Settings::default();
    Settings { environment: environment.unwrap_or(default.environment), ..default }
}

async fn post(client: &HttpClient, to: &Destination, form: BodyForm, body: Bytes) -> Result<(), Undelivered> {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(auth::HEADER), to.auth.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let dsn = &to.dsn;
    let answered = client.post(form.url(to), headers, body).await.map_err(|error| {
        let error = dsn.redact(&error_chain(&error));
        Undelivered::Outage(format!("{} cannot be reached: {error}", dsn.authority()))
    })?;
    let status = answered.status.as_u16();
    let says = detail(&answered.body, dsn).map(|says| format!(" (it says: {says})")).unwrap_or_default();
    let message = format!("{} answers {status}: {}{says}", dsn.authority(), meaning(status));
    match Verdict::of(status) {
        Verdict::Accepted => Ok(()),
        Verdict::Outage | Verdict::RateLimited => Err(Undelivered::Outage(message)),
        _ if status == 404 => Err(Undelivered::NotFound(message)),
        _ => Err(Undelivered::Refused(message)),
    }
}
