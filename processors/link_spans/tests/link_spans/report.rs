//! The log message about a minute in which nothing was linked.

use std::sync::{Arc, Mutex};

use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_processor_link_spans::LinkSpans;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::*;

/// Collects warnings.
#[derive(Clone, Default)]
struct WarningLog(Arc<Mutex<Vec<String>>>);

impl Visit for WarningLog {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for WarningLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The warnings that a processor logs during `run`.
fn warnings(run: impl FnOnce(&mut LinkSpans)) -> Vec<String> {
    let log = WarningLog::default();
    tracing::subscriber::with_default(log.clone(), || run(&mut link_spans("{span_wait: 2s}")));
    let lines = log.0.lock().unwrap();
    lines.clone()
}

/// Profiles of a process, observed for ten seconds.
fn profile(processor: &mut LinkSpans, pid: i64, second: u64) {
    let times = ticks(second * 1000, second * 1000 + 9950);
    process(processor, profiles(&web(pid), &[(pid, "main", &times)]), at((second + 10) * S));
}

/// A span of a process, or of an unnamed one.
fn trace(processor: &mut LinkSpans, host: &str, pid: Option<i64>, second: u64) {
    let mut resource = vec![("host.name", text(host)), ("service.name", text("shop"))];
    resource.extend(pid.map(|pid| ("process.pid", IntValue(pid))));
    let batch = spans(&resource, vec![span(1, second * S, (second + 1) * S, &[])]);
    process(processor, batch, at((second + 10) * S));
}

/// Guarantees: a minute in which a host had spans and profiles but no link is reported once, with the number of spans,
/// an example, the most frequent cause and the remedy; a second such minute is reported again.
#[test]
fn a_minute_without_a_link() {
    let lines = warnings(|processor| {
        for minute in 0..2 {
            for second in 0..6 {
                profile(processor, 7, minute * 60 + second * 10);
                trace(processor, "web", None, minute * 60 + second * 10);
            }
            trace(processor, "web", Some(8), minute * 60 + 50);
            advance(processor, at((minute * 60 + 69) * S));
            assert_eq!(processor.due(), Some(5 * S + (minute * 60 + 70) * S));
            advance(processor, at((minute * 60 + 70) * S));
            assert_eq!(processor.due(), None);
        }
    });
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(first, second);
    assert!(
        first.contains("none of 7 spans was linked: 6 (such as `work, shop`) do not say of which process"),
        "{first}"
    );
    assert!(first.contains("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"), "{first}");
}

/// Guarantees: on request the processor reports how many spans and observations of the last minute had each outcome,
/// with the remedy if none was linked.
#[test]
fn the_last_minute_for_who_asks() {
    let minute = |pid: Option<i64>| {
        let mut processor = link_spans("{span_wait: 2s}");
        let mut resource = vec![("host.name", text("web"))];
        resource.extend(pid.map(|pid| ("process.pid", IntValue(pid))));
        let batch = spans(&resource, vec![span(1, 0, S, &[("thread.id", IntValue(7))])]);
        process(&mut processor, batch, at(0));
        profile(&mut processor, 7, 0);
        advance(&mut processor, at(30 * S));
        let mut out = Outbox::default();
        processor.advance(at(150 * S), &mut out);
        out.summary.expect("a minute has passed")
    };
    let linked = minute(Some(7));
    assert!(linked.starts_with("of 1 spans in a minute: 1 spans_linked"), "{linked}");
    assert!(linked.contains("20 observations_linked") && !linked.contains("DETECTORS"), "{linked}");
    let unlinked = minute(None);
    assert!(unlinked.contains("200 observations_unlinked_no_span"), "{unlinked}");
    assert!(unlinked.contains("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"), "{unlinked}");
}

/// Guarantees: there is no report if a span of the host was linked, if spans and profiles are of different hosts,
/// without profiles, or before a minute has passed.
#[test]
fn nothing_to_say() {
    let minute = |what: &dyn Fn(&mut LinkSpans)| {
        warnings(|processor| {
            what(processor);
            advance(processor, at(90 * S));
        })
    };
    let one_linked = minute(&|processor| {
        profile(processor, 7, 0);
        trace(processor, "web", None, 0);
        trace(processor, "web", Some(7), 0);
    });
    let elsewhere = minute(&|processor| {
        profile(processor, 7, 0);
        trace(processor, "db", Some(9), 0);
    });
    let no_profiles = minute(&|processor| trace(processor, "web", None, 0));
    let short = warnings(|processor| {
        profile(processor, 7, 0);
        trace(processor, "web", None, 0);
        advance(processor, at(69 * S));
        flush(processor, at(69 * S));
        assert_eq!(processor.due(), None);
    });
    assert_eq!([one_linked, elsewhere, no_profiles, short].concat(), Vec::<String>::new());
}

/// Guarantees: each cause has its own advice.
#[test]
fn causes() {
    let no_profile = |processor: &mut LinkSpans| {
        profile(processor, 7, 0);
        trace(processor, "web", Some(8), 0);
    };
    let too_late = |processor: &mut LinkSpans| {
        profile(processor, 7, 0);
        trace(processor, "web", Some(7), 15);
    };
    let unobserved = |processor: &mut LinkSpans| {
        profile(processor, 7, 10);
        trace(processor, "web", Some(7), 1);
    };
    let forked = |processor: &mut LinkSpans| {
        profile(processor, 7, 0);
        process(processor, spans(&traced(7), vec![span(1, 0, S, &native(99))]), at(10 * S));
    };
    let ambiguous = |processor: &mut LinkSpans| {
        for pod in ["a", "b"] {
            let [host, pid] = web(7);
            let resource = [host, pid, ("k8s.pod.uid", Any::Str(pod))];
            process(processor, profiles(&resource, &[(7, "main", &[0, 10 * S])]), at(S));
        }
        trace(processor, "web", Some(7), 0);
    };
    type Case<'a> = (&'a dyn Fn(&mut LinkSpans), &'a str);
    let causes: [Case<'_>; 5] = [
        (&no_profile, "name a process that no profile is of"),
        (&too_late, "raise span_wait"),
        (&unobserved, "not in the time of the spans"),
        (&forked, "the process they were forked from, or their thread was not observed"),
        (&ambiguous, "could be of several profiled processes"),
    ];
    for (cause, advice) in causes {
        let lines = warnings(|processor| {
            cause(processor);
            advance(processor, at(30 * S));
            advance(processor, at(150 * S));
        });
        assert!(matches!(&lines[..], [line] if line.contains(advice)), "{lines:?}");
    }
}
