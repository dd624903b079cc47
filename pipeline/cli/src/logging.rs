//! The log: one line per event on standard error, so that standard output stays free for results.
//!
//! Two things are kept for all lines in one place. Nothing that a peer or a process chose can act on a terminal or look
//! like a line of its own ([`mod@line`]). And nothing can fill a disk with the same line ([`repeats`]).

mod line;
mod repeats;

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::repeats::Repeats;

/// Starts the log at a level. Libraries only speak up when something is wrong.
pub(crate) fn start(level: LevelFilter) -> Log {
    let filter = filter(level);
    let colors = std::io::stderr().is_terminal();
    let log = Log(Arc::new(Shared { colors, state: Mutex::default(), write: Box::new(to_standard_error) }));
    // A second start is only possible in tests, where the first one stands.
    tracing_subscriber::registry().with(filter).with(log.clone()).try_init().ok();
    log
}

/// All crates of profbridge at a level: a target is one where it starts with the name.
fn filter(level: LevelFilter) -> Targets {
    Targets::new().with_default(LevelFilter::WARN.min(level)).with_target("profbridge", level)
}

fn to_standard_error(line: &str) {
    // Nobody is there to be told.
    std::io::stderr().lock().write_all(line.as_bytes()).ok();
}

/// The log. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct Log(Arc<Shared>);

struct Shared {
    colors: bool,
    state: Mutex<State>,
    write: Box<dyn Fn(&str) + Send + Sync>,
}

#[derive(Default)]
struct State {
    repeats: Repeats,
    /// A thread waits for the time at which lines that were not written are summed up.
    waiting: bool,
}

impl Log {
    /// Sums up what was not written and is not due yet, since there will be no more lines.
    pub(crate) fn finish(&self) {
        self.sum_up(|repeats| repeats.take_all());
    }

    fn sum_up(&self, take: impl FnOnce(&mut Repeats) -> Vec<repeats::Summary>) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(take(&mut state.repeats));
    }

    /// Called with the lock held, so that lines stay in order.
    fn write(&self, summaries: Vec<repeats::Summary>) {
        for summary in summaries {
            (self.0.write)(&line::of(summary.level, self.0.colors, |text| text.push_str(&summary.to_string())));
        }
    }

    /// Waits for the next time at which something is due, on a thread that ends when nothing is.
    fn wait(&self, first: Duration) {
        let log = self.clone();
        let wait = move || {
            let mut pause = first;
            loop {
                std::thread::sleep(pause);
                let mut state = log.0.state.lock().unwrap_or_else(PoisonError::into_inner);
                let due = state.repeats.take_due(Instant::now());
                log.write(due);
                match state.repeats.next_due(Instant::now()) {
                    Some(next) => pause = next,
                    None => {
                        state.waiting = false;
                        return;
                    }
                }
            }
        };
        // Without a thread the next line or the end sums up.
        std::thread::Builder::new().name("log".to_owned()).spawn(wait).ok();
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let ours = metadata.target().starts_with("profbridge");
        let now = Instant::now();
        let mut text = String::new();
        // A library's place in its code is enough, and spares writing what is not shown.
        if ours {
            line::fields(&mut text, self.0.colors, event);
        }
        let place = metadata.callsite();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if ours { state.repeats.of_text(&place, &text) } else { state.repeats.of_place(&place) };
        let due = state.repeats.take_due(now);
        self.write(due);
        if state.repeats.admits(key, now) {
            if !ours {
                line::fields(&mut text, self.0.colors, event);
            }
            state.repeats.written(key, *metadata.level(), &text);
            (self.0.write)(&line::of(*metadata.level(), self.0.colors, |line| line.push_str(&text)));
        } else if !std::mem::replace(&mut state.waiting, true)
            && let Some(first) = state.repeats.next_due(now)
        {
            self.wait(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: every crate of profbridge, one that is added later as well, is heard at the level that was asked
    /// for; others only when something is wrong.
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

    /// A log whose lines are kept.
    fn log() -> (Log, Arc<Mutex<Vec<String>>>, impl Subscriber + Send + Sync) {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let write = move |line: &str| kept.lock().unwrap().push(line.to_owned());
        let log = Log(Arc::new(Shared { colors: false, state: Mutex::default(), write: Box::new(write) }));
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, lines, subscriber)
    }

    /// The lines without their times.
    fn taken(lines: &Mutex<Vec<String>>) -> Vec<String> {
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        lines.iter().map(|line| line.split_once("Z ").unwrap().1.to_owned()).collect()
    }

    /// Guarantees: a line has its level, its words and its fields.
    #[test]
    fn a_line() {
        let (_, lines, subscriber) = log();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(peer = "a b", count = 3, took = ?Duration::from_millis(20), "it failed: {}", "why");
            tracing::info!(error = %"gone", "ended");
        });
        assert_eq!(
            taken(&lines),
            [" WARN it failed: why peer=\"a b\" count=3 took=20ms\n", " INFO ended error=gone\n"]
        );
    }

    /// Guarantees: no text that somebody chose acts on a terminal, turns text around or makes a line of its own,
    /// whichever way it comes into a line.
    #[test]
    fn names_do_nothing() {
        let (_, lines, subscriber) = log();
        let name = "x\u{1b}[2J\n2026-01-01T00:00:00Z ERROR all is lost \u{202e}y";
        let shown = "x\\u{1b}[2J\\n2026-01-01T00:00:00Z ERROR all is lost \\u{202e}y";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(display = %name, "said");
            tracing::info!("said {name}");
            tracing::info!(name, debug = ?name, "said");
        });
        let lines = taken(&lines);
        assert_eq!(lines[0], format!(" INFO said display={shown}\n"));
        assert_eq!(lines[1], format!(" INFO said {shown}\n"));
        assert_eq!(lines[2], format!(" INFO said name=\"{shown}\" debug=\"{shown}\"\n"));
    }

    /// Guarantees: a flood of a library's lines is some lines and one that says how many there were; so is a flood of
    /// one line of our own, and lines of our own that differ are all written.
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
        log.finish();
        let lines = taken(&lines);
        let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        assert_eq!(lines.len(), 5 + 20 + 100 + 2);
        assert_eq!(count("another"), 100);
        let summary = " WARN ... and 12,345 more like this within 60 s: recv PING ack that we never sent number=4\n";
        assert!(lines.iter().any(|line| line == summary), "{lines:#?}");
        assert!(lines.iter().any(|line| line == " WARN ... and 5 more like this within 60 s: the same peer=1\n"));
    }
}
