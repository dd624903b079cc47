//! `profbridge demo`: shows a result within a minute, without a profiler, an account or a server.
//!
//! The profile takes the normal path: over OTLP/HTTP into a pipeline, and out as an envelope. The flame graph is drawn
//! from that envelope, so it shows what Sentry would receive.

mod delivered;
mod profile;
mod running;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use profbridge_codec::decode::{DecodeOptions, Findings, decode};
use profbridge_engine::clock::Clock;
use profbridge_engine::config::{self, Source};
use profbridge_engine::plan::Plan;
use profbridge_engine::run;
use profbridge_model::Profiles;
use profbridge_wire::folded::CountUnit;
use profbridge_wire::otlp::{EncodeOptions, encode};
use tracing::level_filters::LevelFilter;

use crate::args::DemoArgs;
use crate::components::REGISTRY;
use crate::files::write_file;
use crate::terminal::{self, Progress, shown};
use crate::views::flamegraph::{self, GraphStyle};
use crate::views::sums::Sums;
use crate::{Failure, commands, logging};

use running::RunningPipeline;

/// Generates a profile, sends it, and prints where to find the results.
pub(crate) fn run(arguments: &DemoArgs) -> Result<ExitCode, Failure> {
    logging::start(LevelFilter::WARN);
    if arguments.output.exists() && !arguments.output.is_dir() {
        let hint = "`-o` names the folder for the flame graph and the envelope";
        return Err(Failure(format!("error: {} is no folder\nhint: {hint}", shown(&arguments.output))));
    }
    let now = Clock::system().now().unix_nano;
    let instance = format!("demo-{:016x}", fastrand::u64(..));
    let profiles = profile::generate(arguments.seconds, now, now, &instance)
        .map_err(|error| Failure::new("the demo's profile", &error))?;
    terminal::say(format!(
        "generated {} s of `{}`: {} observations",
        arguments.seconds,
        profile::SERVICE,
        profiles.observations()
    ));
    let body = Bytes::from(encode(&profiles, &EncodeOptions::default()));
    let runtime = commands::runtime()?;
    let find = || {
        let found = runtime.block_on(RunningPipeline::find(&arguments.config));
        found.inspect_err(|why| terminal::say(format!("no running pipeline is used: {why}"))).ok()
    };
    let (envelopes, delivered) = match (!arguments.own).then(find).flatten() {
        Some(running) => through_running(&runtime, &running, &profiles, body)?,
        None => (through_own(&runtime, &arguments.output, body)?, true),
    };
    let graph = arguments.output.join("flamegraph.svg");
    if envelopes.is_empty() {
        terminal::say("the running configuration has no `file` exporter with `format: sentry`: no envelope to show");
        draw(&[profiles], &graph)?;
    } else {
        let shown: Result<Vec<_>, _> = envelopes.iter().map(|path| read_back(path)).collect();
        draw(&shown?.concat(), &graph)?;
    }
    for path in &envelopes {
        terminal::result(format!("envelope:    {}", shown(path)));
    }
    terminal::result(format!("flame graph: {}", shown(&graph)));
    if !delivered {
        let message = "error: not every exporter is known to have delivered all of the demo's profile; see above";
        return Err(Failure(message.to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the profile to the running pipeline. Waits for its envelopes, if it writes any (several if a window ends
/// within the demo's time), and until its exporters have sent or dropped the profile. Returns the envelopes, and
/// whether every exporter is known to have delivered all of it.
fn through_running(
    runtime: &tokio::runtime::Runtime,
    running: &RunningPipeline,
    profiles: &Profiles,
    body: Bytes,
) -> Result<(Vec<PathBuf>, bool), Failure> {
    let before = running.envelopes.as_deref().map(listing).unwrap_or_default();
    let counted_before = runtime.block_on(running.counters());
    runtime.block_on(running::post(&running.endpoint, body))?;
    terminal::say(format!("sent to the pipeline that runs at {}", running.endpoint));
    let (wanted, windows) = running.windows(profiles)?;
    let start = Instant::now();
    let mut progress = Progress::new();
    let most = running.closes_within + Duration::from_secs(10);
    let closing = if windows == 1 { "its window closes" } else { "its windows close" };
    terminal::say(format!("{closing} in at most {} s; `--own` does not wait", running.closes_within.as_secs()));
    let mut found: Vec<PathBuf> = Vec::new();
    let mut counted = None;
    while start.elapsed() < most {
        counted = if counted_before.is_some() { runtime.block_on(running.counters()) } else { None };
        let both = counted_before.as_ref().zip(counted.as_ref());
        let settled = both.map(|(before, after)| delivered::is_settled(profiles.observations(), before, after));
        let mut complete = true;
        // The envelopes are looked for after the counters are read, so that none is missing once all is sent.
        if let Some(folder) = &running.envelopes {
            found = listing(folder).difference(&before).filter(|path| mentions(path, &wanted)).cloned().collect();
            complete = found.len() >= if settled.is_some() { 1 } else { windows };
        }
        if complete && settled.unwrap_or(true) {
            break;
        }
        progress.show(format!("waiting until it is sent: {} s", start.elapsed().as_secs()));
        std::thread::park_timeout(Duration::from_millis(200));
    }
    drop(progress);
    found.sort();
    let delivered = match (&counted_before, &counted) {
        (Some(before), Some(after)) => {
            let (lines, delivered) = delivered::describe(profiles.observations(), before, after);
            lines.iter().for_each(terminal::say);
            delivered
        }
        _ => {
            terminal::say("error: it serves no metrics, so only its log says what became of the profile");
            false
        }
    };
    match &running.envelopes {
        Some(folder) if found.is_empty() => Err(Failure(format!(
            "error: no envelope of the demo appeared in {} within {} s; the log of the running profbridge says why",
            shown(folder),
            most.as_secs()
        ))),
        _ => Ok((found, delivered)),
    }
}

/// Sends the profile through a private pipeline and returns its envelopes.
fn through_own(runtime: &tokio::runtime::Runtime, output: &Path, body: Bytes) -> Result<Vec<PathBuf>, Failure> {
    let folder = output.join("envelopes");
    let before = listing(&folder);
    let text = OWN.replace("FOLDER", &serde_json::Value::from(folder.display().to_string()).to_string());
    let source = Source::Text { name: "the demo's configuration".to_owned(), text };
    let plan = config::load(&[source], &|_| None)
        .and_then(|config| Plan::new(&config, &REGISTRY))
        .map_err(|problems| Failure(problems.to_string()))?;
    let report = runtime.block_on(async {
        let running = run::start(plan).await.map_err(|error| Failure(format!("error: {error}")))?;
        let sent = match running.addresses().iter().find(|address| address.protocol == "http") {
            Some(found) => running::post(&found.address.to_string(), body).await,
            None => Err(Failure("error: the demo's pipeline does not listen".to_owned())),
        };
        let report = running.stop().await;
        sent.map(|()| report)
    })?;
    terminal::say("sent through a pipeline of the demo's own");
    for explanation in report.losses().explanations() {
        terminal::say(explanation);
    }
    let mut envelopes: Vec<_> = listing(&folder).difference(&before).cloned().collect();
    if envelopes.is_empty() {
        return Err(Failure(format!("error: the demo's pipeline wrote no envelope:\n{report}")));
    }
    envelopes.sort();
    Ok(envelopes)
}

/// A pipeline that only receives the demo's profile.
const OWN: &str = "
receivers:
  otlp: {protocols: {http: {endpoint: '127.0.0.1:0'}}}
processors: {dedup: , chunk: }
exporters:
  file: {path: FOLDER, format: sentry}
service:
  telemetry: {metrics: {level: none}, health: {enabled: false}}
  pipelines:
    profiles: {receivers: [otlp], processors: [dedup, chunk], exporters: [file]}
";

/// The files in a folder; none if it does not exist yet.
fn listing(folder: &Path) -> HashSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "envelope"))
        .collect()
}

/// Whether an envelope file contains a text.
fn mentions(path: &Path, text: &str) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// Parses the profiles of an envelope file.
fn read_back(path: &Path) -> Result<Vec<Profiles>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::new(shown(path), &error))?;
    let (mut findings, mut profiles) = (Findings::default(), Vec::new());
    let options = DecodeOptions { limit: usize::MAX, counted: CountUnit::default() };
    let read = decode(&shown(path), bytes.into(), options, &mut findings, |telemetry| {
        profiles.extend(telemetry.into_profiles());
    });
    match read.err().or(findings.refused.pop()) {
        None => Ok(profiles),
        Some(refused) => Err(Failure(format!("error: {refused}"))),
    }
}

fn draw(profiles: &[Profiles], path: &Path) -> Result<(), Failure> {
    let mut sums = Sums::default();
    profiles.iter().for_each(|profiles| sums.add(profiles));
    let title = format!("{}, generated by profbridge demo", profile::SERVICE);
    write_file(path, |file| flamegraph::draw(&mut sums, &title, GraphStyle::default(), file)).map(drop)
}
