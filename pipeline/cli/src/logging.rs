//! The log: one line per event on standard error. Standard output is only for results.
//!
//! Two guarantees hold for all lines. Text from peers and processes cannot control a terminal or forge a line
//! ([`mod@line`]). A repeated line cannot fill a disk ([`repeats`]).

mod line;
mod repeats;

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::repeats::Repeats;
use crate::terminal;

/// The most bytes of lines that wait to be written. Further lines are dropped and counted.
const MOST_WAITING: usize = 1 << 20;

/// How long the process waits at its end for its last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The log of this process, once started.
static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log at a level. Libraries log only warnings and errors.
pub(crate) fn start(level: LevelFilter) {
    let colors = std::io::stderr().is_terminal();
    let log = LOG.get_or_init(|| Log::new(colors, to_standard_error));
    // Only tests start it twice; the first one stays active.
    tracing_subscriber::registry().with(filter(level)).with(log.clone()).try_init().ok();
}

/// Prints a message like [`terminal::say`], but never blocks. The log must have been started.
pub(crate) fn say(text: impl std::fmt::Display) {
    if let Some(log) = LOG.get() {
        log.put(&mut log.lock(), &format!("{}\n", terminal::escaped(&text.to_string())));
    }
}

/// Waits until all previous lines are written, but only briefly if nobody reads them.
pub(crate) fn flush() {
    LOG.get().inspect(|log| log.flush());
}

/// Logs the pending summaries of repeated lines, since no more lines will follow, and waits until all is written, but
/// only briefly if nobody reads it.
pub(crate) fn finish() {
    LOG.get().inspect(|log| log.finish());
}

/// Enables all crates of profbridge at a level: a target matches by prefix.
fn filter(level: LevelFilter) -> Targets {
    Targets::new().with_default(LevelFilter::WARN.min(level)).with_target("profbridge", level)
}

fn to_standard_error(line: &str) {
    // There is no place to report a failure.
    std::io::stderr().lock().write_all(line.as_bytes()).ok();
}

/// The log. A separate thread writes the lines: standard error may be a pipe that nobody reads, and callers must not
/// block on it. Clones share the log.
#[derive(Clone)]
struct Log(Arc<SharedLog>);

struct SharedLog {
    colors: bool,
    state: Mutex<LogState>,
    /// Signalled when there are lines to write or summaries to make, and when lines were written.
    changed: Condvar,
    write: Box<dyn Fn(&str) + Send + Sync>,
}

#[derive(Default)]
struct LogState {
    repeats: Repeats,
    /// Lines that wait to be written.
    lines: String,
    /// Size in bytes of the lines being written.
    writing: usize,
    /// Number of lines dropped for lack of room.
    dropped: u64,
    has_writer: bool,
}

impl Log {
    fn new(colors: bool, write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::default());
        Self(Arc::new(SharedLog { colors, state, changed, write: Box::new(write) }))
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) {
        let unwritten = |state: &mut LogState| state.writing > 0 || !state.lines.is_empty();
        drop(self.0.changed.wait_timeout_while(self.lock(), LAST_LINES, unwritten));
    }

    fn finish(&self) {
        let mut state = self.lock();
        let summaries = state.repeats.take_all();
        self.sum_up(&mut state, summaries);
        drop(state);
        self.flush();
    }

    fn sum_up(&self, state: &mut LogState, summaries: Vec<repeats::Summary>) {
        for summary in summaries {
            self.put(
                state,
                &line::format_line(summary.level, self.0.colors, |text| text.push_str(&summary.to_string())),
            );
        }
    }

    /// Appends a line, if there is room.
    fn put(&self, state: &mut LogState, line: &str) {
        if state.lines.len() + state.writing + line.len() > MOST_WAITING {
            state.dropped += 1;
            return;
        }
        state.lines.push_str(line);
        self.wake_writer(state);
    }

    /// Starts the writer with the first line, since the process may need to have a single thread until then.
    fn wake_writer(&self, state: &mut LogState) {
        if !state.has_writer {
            let log = self.clone();
            let writer = std::thread::Builder::new().name("log".to_owned()).spawn(move || log.write_lines());
            state.has_writer = writer.is_ok();
        }
        self.0.changed.notify_all();
    }

    /// Writes lines as they come, and summaries of repeated lines when they are due.
    fn write_lines(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let due = state.repeats.take_due(now);
            self.sum_up(&mut state, due);
            if state.lines.is_empty() {
                // If no summary is due, a line or the end of the process wakes the thread.
                let pause = state.repeats.next_due(now).unwrap_or(Duration::MAX);
                state = self.0.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let lines = std::mem::take(&mut state.lines);
            state.writing = lines.len();
            drop(state);
            lines.split_inclusive('\n').for_each(|line| (self.0.write)(line));
            state = self.lock();
            state.writing = 0;
            if state.dropped > 0 {
                // This line follows those that had found room.
                let text = format!("{} lines were dropped: nobody read the log in time", state.dropped);
                state.lines.push_str(&line::format_line(Level::WARN, self.0.colors, |line| line.push_str(&text)));
                state.dropped = 0;
            }
            self.0.changed.notify_all();
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let ours = metadata.target().starts_with("profbridge");
        let now = Instant::now();
        let mut text = String::new();
        // For libraries, their place in the code identifies a line, which avoids formatting lines that are not written.
        if ours {
            line::fields(&mut text, self.0.colors, event);
        }
        let place = metadata.callsite();
        let mut state = self.lock();
        let key = if ours { state.repeats.of_text(&place, &text) } else { state.repeats.of_place(&place) };
        let due = state.repeats.take_due(now);
        self.sum_up(&mut state, due);
        if state.repeats.admits(key, now) {
            if !ours {
                line::fields(&mut text, self.0.colors, event);
            }
            state.repeats.written(key, *metadata.level(), &text);
            let line = line::format_line(*metadata.level(), self.0.colors, |line| line.push_str(&text));
            self.put(&mut state, &line);
        } else {
            self.wake_writer(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: every crate of profbridge, including future ones, logs at the requested level; others log only
    /// warnings and errors.
    #[test]
    fn own_crates() {
        let filter = filter(LevelFilter::INFO);
        for target in ["profbridge", "profbridge_codec", "profbridge_exporter_kafka::send"] {
            assert!(filter.would_enable(target, &tracing::Level::INFO), "{target}");
            assert!(!filter.would_enable(target, &tracing::Level::DEBUG), "{target}");
        }
        assert!(filter.would_enable("hyper", &tracing::Level::WARN));
        assert!(!filter.would_enable("hyper", &tracing::Level::INFO));
    }

    /// A log that collects its lines.
    fn log() -> (Log, Arc<Mutex<Vec<String>>>, impl Subscriber + Send + Sync) {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let log = Log::new(false, move |line| kept.lock().unwrap().push(line.to_owned()));
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, lines, subscriber)
    }

    /// The lines without their times, once all are written.
    fn taken(log: &Log, lines: &Mutex<Vec<String>>) -> Vec<String> {
        log.finish();
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        lines.iter().map(|line| line.split_once("Z ").unwrap().1.to_owned()).collect()
    }

    /// Guarantees: a line has its level, its message and its fields.
    #[test]
    fn a_line() {
        let (log, lines, subscriber) = log();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(peer = "a b", count = 3, took = ?Duration::from_millis(20), "it failed: {}", "why");
            tracing::info!(error = %"gone", "ended");
        });
        assert_eq!(
            taken(&log, &lines),
            [" WARN it failed: why peer=\"a b\" count=3 took=20ms\n", " INFO ended error=gone\n"]
        );
    }

    /// Guarantees: no text from outside controls a terminal, changes the text direction or forges a line, in any part
    /// of a line.
    #[test]
    fn names_do_nothing() {
        let (log, lines, subscriber) = log();
        let name = "x\u{1b}[2J\n2026-01-01T00:00:00Z ERROR all is lost \u{202e}y";
        let shown = "x\\u{1b}[2J\\n2026-01-01T00:00:00Z ERROR all is lost \\u{202e}y";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(display = %name, "said");
            tracing::info!("said {name}");
            tracing::info!(name, debug = ?name, "said");
        });
        let lines = taken(&log, &lines);
        assert_eq!(lines[0], format!(" INFO said display={shown}\n"));
        assert_eq!(lines[1], format!(" INFO said {shown}\n"));
        assert_eq!(lines[2], format!(" INFO said name=\"{shown}\" debug=\"{shown}\"\n"));
    }

    /// Guarantees: a flood of a library's lines becomes some lines and a summary, and so does a flood of one equal line
    /// of profbridge. Different lines of profbridge are all written.
    #[test]
    fn floods_are_summed_up() {
        let (log, lines, subscriber) = log();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..12_350 {
                tracing::warn!(target: "h2::proto", number, "recv PING ack that we never sent");
            }
            for _ in 0..25 {
                tracing::warn!(peer = 1, "the same");
            }
            for number in 0..100 {
                tracing::warn!(number, "another");
            }
        });
        log.finish();
        let lines = taken(&log, &lines);
        let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        assert_eq!(lines.len(), 5 + 20 + 100 + 2);
        assert_eq!(count("another"), 100);
        let summary = " WARN ... and 12,345 more like this within 60 s: recv PING ack that we never sent number=4\n";
        assert!(lines.iter().any(|line| line == summary), "{lines:#?}");
        assert!(lines.iter().any(|line| line == " WARN ... and 5 more like this within 60 s: the same peer=1\n"));
    }

    /// Attack: if nobody reads, lines are accepted without blocking, up to a limit. Those beyond are counted, and the
    /// count is logged after the accepted lines and before later ones.
    #[test]
    fn nobody_reads() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let log = Log::new(false, move |line| {
            // The first line waits for the reader; afterwards the other end is gone.
            released.lock().unwrap().recv().ok();
            kept.lock().unwrap().push(line.to_owned());
        });
        let subscriber = tracing_subscriber::registry().with(log.clone());
        let long = "x".repeat(1000);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..5_000 {
                tracing::warn!(number, "{long}");
            }
            let state = log.lock();
            assert!(state.lines.len() + state.writing <= MOST_WAITING);
            drop((state, release));
            log.flush();
            tracing::warn!("read again");
        });
        let lines = taken(&log, &lines);
        let written = lines.iter().filter(|line| line.contains(&long)).count();
        assert!((900..1_048).contains(&written), "{written} of 5,000");
        let dropped = 5_000 - written;
        let said = format!(" WARN {dropped} lines were dropped: nobody read the log in time\n");
        assert_eq!(lines[written..], [said, " WARN read again\n".to_owned()]);
    }
}
