//! Links without profiles.

use opentelemetry_proto::tonic::common::v1::any_value::Value::{self, IntValue};
use profbridge_engine::component::{Held, Processor as _};
use profbridge_engine::config::Section;
use profbridge_engine::registry::SPANS;
use profbridge_model::builder::Any;
use profbridge_model::envelope::ClientProcess;
use profbridge_model::{Envelope, Telemetry, View};
use profbridge_processor_link_spans::FACTORY;

use crate::pointers::transaction;
use crate::samples_brute_force::observations;
use crate::support::*;

/// Guarantees: a span is linked at once, without any profile, with the id in chunks of a process with its resource; its
/// thread is the system's thread id in the span, or none if the span has another kind of id.
#[test]
fn by_what_a_span_says() {
    let of = |language: &str, attributes: &[(&str, Value)]| {
        let resource = [
            ("host.name", text("web")),
            ("process.pid", IntValue(7)),
            ("service.name", text("shop")),
            ("telemetry.sdk.language", text(language)),
        ];
        let mut processor = link_spans("{stateless: true}");
        let out = process(&mut processor, spans(&resource, vec![span(1, S, 2 * S, attributes)]), at(3 * S));
        assert_eq!((processor.due(), processor.held().bytes), (None, 0));
        out
    };
    let out = of("python", &[("thread.native_id", IntValue(12)), ("thread.name", text("worker"))]);
    let [Telemetry::Spans(left)] = &out.telemetry[..] else { panic!("{:?}", out.telemetry) };
    let link = left.spans()[0].changes.as_ref().unwrap().profiler.as_ref().unwrap();
    let resource = [("host.name", Any::Str("web")), ("process.pid", Any::Int(7))];
    let seen = profiles(&resource, &[(7, "main", &[S])]);
    assert_eq!(link.profiler_id, profiler_of(&seen, T + S));
    assert_eq!((link.thread_id.as_deref(), link.thread_name.as_deref()), (Some("12"), Some("worker")));
    assert_eq!(note(&out, "spans_linked_by_native_id"), 1);
    for (language, expected, counted) in [
        ("cpp", Some("12"), "spans_linked_by_thread_id"),
        ("python", None, "spans_linked_without_thread"),
        ("java", None, "spans_linked_without_thread"),
    ] {
        let out = of(language, &[("thread.id", IntValue(12))]);
        assert_eq!((links(&out), note(&out, counted)), (vec![(1, Some(expected.map(str::to_owned)))], 1), "{language}");
    }
}

/// Guarantees: spans without a process are not linked, and a profiler already named by a span stays.
#[test]
fn what_is_left_alone() {
    let mut processor = link_spans("{stateless: true}");
    let out = process(&mut processor, spans(&[("service.name", text("shop"))], vec![span(1, 0, S, &[])]), at(S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_unnamed_process")), (vec![(1, None)], 1));
    let named = [("sentry.profiler_id", text("00112233445546778899aabbccddeeff"))];
    let resource = [("host.name", text("web")), ("process.pid", IntValue(7))];
    let out = process(&mut processor, spans(&resource, vec![span(1, 0, S, &named)]), at(S));
    assert_eq!((links(&out), note(&out, "spans_with_profiler")), (vec![(1, None)], 1));
}

/// Guarantees: this mode needs no profiles, and warns of ids that cannot be known without them.
#[test]
fn what_is_said_of_it() {
    let description = FACTORY.description;
    let section = Section::from_yaml("{stateless: true}").unwrap();
    assert_eq!((description.wants)(&section), SPANS);
    let warning = link_spans("{stateless: true}").goes_to(&[], false).unwrap();
    for unknown in ["profbridge.session.id", "process.creation.time", "PID namespace"] {
        assert!(warning.message.contains(unknown), "{}", warning.message);
    }
    let section = Section::from_yaml("{}").unwrap();
    let warning = link_spans("{}").goes_to(&[], false);
    assert_eq!(((description.wants)(&section).len(), warning), (2, None));
}

/// Guarantees: profiles that arrive anyway pass at once and unchanged, even with `profile_wait`, and nothing is
/// remembered.
#[test]
fn profiles_pass() {
    let mut processor = link_spans("{stateless: true, profile_wait: 5s}");
    let resource = [("host.name", text("web")), ("process.pid", IntValue(7))];
    let native = [("thread.native_id", IntValue(8))];
    process(&mut processor, spans(&resource, vec![span(1, 0, S, &native)]), at(S));
    let of_web = profiles(&[("host.name", Any::Str("web")), ("process.pid", Any::Int(7))], &[(8, "", &[MS])]);
    let out = process(&mut processor, of_web, at(S));
    assert_eq!(observations(&out), [(7, 8, MS, 1, 0)]);
    assert_eq!((processor.held(), processor.due()), (Held::default(), None));
}

/// Guarantees: if the receiver found the client of spans, they belong to that process and host, whatever host they
/// name.
#[test]
fn the_client_names_the_process() {
    let mut envelope = Envelope::default();
    envelope.meta.client_process = Some(ClientProcess { pid: 7, host: "web".into() });
    envelope.views.push(View::spans(0, transaction("python", "shop.example", "1", 100, 200)));
    let out = process(&mut link_spans("{stateless: true}"), envelope, at(S));
    let [Telemetry::Envelope(left)] = &out.telemetry[..] else { panic!("{:?}", out.telemetry) };
    let seen = profiles(&[("host.name", Any::Str("web")), ("process.pid", Any::Int(7))], &[(7, "main", &[S])]);
    let all: Vec<_> = left.spans().flat_map(|spans| spans.spans()).collect();
    assert_eq!(all.len(), 2);
    for span in all {
        let link = span.changes.as_ref().and_then(|changes| changes.profiler.as_ref());
        assert_eq!(link.map(|link| link.profiler_id), Some(profiler_of(&seen, T)));
    }
}
