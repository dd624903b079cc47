//! Links without profiles.

use profbridge_engine::component::{Held, Processor as _};
use profbridge_engine::config::Section;
use profbridge_engine::registry::SPANS;
use profbridge_processor_link_spans::FACTORY;

use crate::pointers::transaction;
use crate::samples_brute_force::observations;
use crate::support::*;

/// Guarantees: a span is linked at once, without any profile, with the id in chunks of a process with its resource; its
/// thread is the system's thread id in the span, or none if the span has another kind of id.
#[test]
fn by_what_a_span_says() {
    let of = |language: &str, attributes: &[(&str, Value)]| {
        let [language, host, pid] = traced_in(language, 7);
        let resource = [host, pid, ("service.name", text("shop")), language];
        let mut processor = link_spans("{stateless: true}");
        let out = process(&mut processor, spans(&resource, vec![span(1, S, 2 * S, attributes)]), at(3 * S));
        assert_eq!((processor.due(), processor.held().bytes), (None, 0));
        out
    };
    let [native] = native(12);
    let out = of("python", &[native, ("thread.name", text("worker"))]);
    let [(1, Some(link))] = &profiler_links(&out)[..] else { panic!("{:?}", out.telemetry) };
    let seen = profiles(&web(7), &[(7, "main", &[S])]);
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
    let out = process(&mut processor, spans(&traced(7), vec![span(1, 0, S, &named)]), at(S));
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
    process(&mut processor, spans(&traced(7), vec![span(1, 0, S, &native(8))]), at(S));
    let out = process(&mut processor, profiles(&web(7), &[(8, "", &[MS])]), at(S));
    assert_eq!(observations(&out), [(7, 8, MS, 1, 0)]);
    assert_eq!((processor.held(), processor.due()), (Held::default(), None));
}

/// Guarantees: if the receiver found the client of spans, they belong to that process and host, whatever host they
/// name.
#[test]
fn the_client_names_the_process() {
    let envelope = from_client(transaction("python", "shop.example", "1", 100, 200));
    let out = process(&mut link_spans("{stateless: true}"), envelope, at(S));
    let seen = profiles(&web(7), &[(7, "main", &[S])]);
    let ids = profiler_links(&out).into_iter().map(|(id, link)| (id, link.map(|link| link.profiler_id)));
    assert_eq!(ids.collect::<Vec<_>>(), [1, 2].map(|id| (id, Some(profiler_of(&seen, T)))));
}
