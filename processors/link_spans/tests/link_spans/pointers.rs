//! Spans of Python SDKs, which name their thread by its pointer.

use std::collections::BTreeSet;

use profbridge_engine::component::Processor as _;
use profbridge_model::{Envelope, ItemView, Spans};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::{span_v2_reader, transaction_reader};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::*;

/// Thread pointers like those of glibc.
pub(crate) const ONE: i64 = 0x7f12_3456_7740;
pub(crate) const OTHER: i64 = 0x7f12_2c00_06c0;

/// Seconds since the Unix epoch.
fn seconds(millis: u64) -> String {
    format!("{}.{:03}", (T / S) + millis / 1000, millis % 1000)
}

/// A transaction with one child as written by Sentry's SDK for a platform, in milliseconds after [`T`]. Both contain
/// their thread, except for Node, whose spans have none.
pub(crate) fn transaction(platform: &str, host: &str, ident: &str, from: u64, to: u64) -> Spans {
    let thread = match platform {
        "node" => "{}".to_owned(),
        _ => format!(r#"{{"thread.id":"{ident}","thread.name":"MainThread"}}"#),
    };
    let times = format!(r#""start_timestamp":{},"timestamp":{}"#, seconds(from), seconds(to));
    let trace = "11111111111111111111111111111111";
    let child = format!(
        r#"{{"trace_id":"{trace}","span_id":"0200000000000000","parent_span_id":"0100000000000000",{times},"data":{thread}}}"#
    );
    let json = format!(
        r#"{{"type":"transaction","platform":"{platform}","server_name":"{host}",{times},"spans":[{child}],
            "contexts":{{"trace":{{"trace_id":"{trace}","span_id":"0100000000000000","data":{thread}}}}}}}"#
    );
    transaction_reader::read(&json.into_bytes().into(), &TraceHeader::default()).unwrap().spans
}

/// Guarantees: a transaction of Sentry's Python SDK, which names host and thread but no process, waits for profiles and
/// is linked, with all of its spans, with the only thread of its host that has this pointer; not with one of another
/// host, in another language, or if forked workers share the pointer.
/// rule: profiles-sdk#linking-profiler, profiles-sdk#linking-thread
#[test]
fn the_pointer_names_the_process() {
    let times = ticks(0, 1950);
    let mut processor = link_spans("{}");
    let out = process(&mut processor, transaction("python", "web", &ONE.to_string(), 100, 200), at(300 * MS));
    assert!(out.telemetry.is_empty(), "it waits");
    process(&mut processor, profiles_of_threads(&web(7), &[(12, "", ONE, &times)]), at(2 * S));
    process(&mut processor, profiles_of_threads(&on_host("db", 7), &[(13, "", OTHER, &times)]), at(2 * S));
    let out = advance(&mut processor, at(3 * S));
    assert_eq!(links(&out), [(1, linked("12")), (2, linked("12"))]);
    assert_eq!(note(&out, "spans_linked_by_python_ident_on_host"), 2);

    let mut now = |platform, host, ident: i64| {
        let asked = transaction(platform, host, &ident.to_string(), 100, 200);
        process_and_wait(&mut processor, asked, at(3 * S), at(30 * S))
    };
    let out = now("python", "web", OTHER);
    assert_eq!((links(&out), note(&out, "spans_unlinked_no_profiles")), (vec![(1, None), (2, None)], 2));
    let out = now("native", "web", ONE);
    assert_eq!((links(&out), note(&out, "spans_unlinked_unnamed_process")), (vec![(1, None), (2, None)], 2));

    process(&mut processor, profiles_of_threads(&web(8), &[(22, "", ONE, &times)]), at(3 * S));
    let out = process(&mut processor, transaction("python", "web", &ONE.to_string(), 100, 200), at(3 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_ambiguous")), (vec![(1, None), (2, None)], 2));
}

/// Guarantees: of forked workers only one observed exactly during the span counts, even if it is known later and all
/// were observed shortly before; if none was, being near proves nothing.
#[test]
fn nearness_tells_no_workers_apart() {
    let observed = |pid: i64, millis: &[u64]| {
        let times: Vec<u64> = millis.iter().map(|milli| milli * MS).collect();
        profiles_of_threads(&web(pid), &[(pid, "", ONE, &times)])
    };
    let mut processor = link_spans("{}");
    process(&mut processor, observed(7, &[970]), at(S));
    process(&mut processor, observed(8, &[970]), at(S));
    let out = process(&mut processor, transaction("python", "web", &ONE.to_string(), 1000, 1020), at(S));
    assert!(out.telemetry.is_empty(), "{:?}", out.notes);
    process(&mut processor, observed(7, &[1300]), at(2 * S));
    process(&mut processor, observed(8, &[1010, 1300]), at(2 * S));
    assert_eq!(links(&advance(&mut processor, at(3 * S))), [(1, linked("8")), (2, linked("8"))]);

    let mut processor = link_spans("{}");
    process(&mut processor, observed(7, &[960, 1400]), at(2 * S));
    process(&mut processor, observed(8, &[500, 1400]), at(2 * S));
    let out = process(&mut processor, transaction("python", "web", &ONE.to_string(), 1000, 1005), at(2 * S));
    assert_eq!((links(&out), note(&out, "spans_unlinked_unobserved")), (vec![(1, None), (2, None)], 2));
}

/// Guarantees: spans in an envelope with a known client belong to that process, whatever host they name: for Python
/// with the thread of the pointer, though forked workers share it; for Node on the main thread, if that option is set.
#[test]
fn the_client_names_the_process() {
    let times = ticks(0, 1950);
    for (platform, expected, counted) in [
        ("python", Some("12"), "spans_linked_by_python_ident"),
        ("node", Some("7"), "spans_linked_to_main_thread"),
        ("ruby", None, "spans_linked_without_thread"),
    ] {
        let mut processor = link_spans("{main_thread: true}");
        for (pid, thread) in [(7, 12), (8, 22)] {
            let threads: [(i64, &str, i64, &[u64]); 2] = [(thread, "", ONE, &times), (pid, "", OTHER, &times)];
            process(&mut processor, profiles_of_threads(&web(pid), &threads), at(2 * S));
        }
        let envelope = from_client(transaction(platform, "shop.example", &ONE.to_string(), 100, 200));
        let out = process(&mut processor, envelope, at(2 * S));
        let expected = Some(expected.map(str::to_owned));
        assert_eq!(links(&out), [(1, expected.clone()), (2, expected)], "{platform}");
        assert_eq!(note(&out, counted), 2, "{platform} {:?}", out.notes);
    }
}

/// The id of a span in JSON.
pub(crate) fn hex(id: u8) -> String {
    format!("{id:02x}").repeat(8)
}

/// A text attribute in a container.
pub(crate) fn attribute(key: &str, value: &str) -> String {
    format!(r#""{key}":{{"value":"{value}","type":"string"}}"#)
}

/// A container of spans as Sentry's SDKs stream it, in milliseconds after [`T`]: each span with its id, whether it is a
/// segment, and its attributes.
pub(crate) fn container(spans: &[(u8, bool, Vec<String>)], from: u64, to: u64) -> Envelope {
    let times = format!(r#""start_timestamp":{},"end_timestamp":{}"#, seconds(from), seconds(to));
    let element = |(id, is_segment, attributes): &(u8, bool, Vec<String>)| {
        format!(
            r#"{{"trace_id":"{}","span_id":"{}","parent_span_id":"ffffffffffffffff","name":"x","status":"ok",{times},
                "is_segment":{is_segment},"attributes":{{{}}}}}"#,
            "01".repeat(16),
            hex(*id),
            attributes.join(",")
        )
    };
    let items: Vec<String> = spans.iter().map(element).collect();
    let json = format!(r#"{{"version":2,"items":[{}]}}"#, items.join(","));
    let read = span_v2_reader::read(&json.into_bytes().into(), Some(spans.len() as u64), &TraceHeader::default());
    let mut envelope = Envelope::default();
    envelope.views.push(ItemView::spans(0, read.unwrap().spans));
    envelope
}

/// Guarantees: the span of a request that a program serves names the web server as its `server.address`, so its host is
/// that of the other spans in its container, whatever their order, or else the host that the client sent from; without
/// either it is not linked.
#[test]
fn lone_http_segments() {
    const SERVER: (u8, &str, &str) = (1, "127.0.0.1", "http.server");
    const CHILD: (u8, &str, &str) = (2, "web", "db");
    let times = ticks(0, 1950);
    let mut processor = link_spans("{}");
    process(&mut processor, profiles_of_threads(&web(7), &[(12, "", ONE, &times)]), at(2 * S));
    let mut links_of = |spans: &[(u8, &str, &str)], host: Option<&str>| {
        let of = |(id, server, op): &(u8, &str, &str)| {
            let server = [attribute("server.address", server), attribute("sentry.op", op)];
            let sdk = attribute("sentry.sdk.name", "sentry.python.flask");
            let more = [attribute("thread.id", &ONE.to_string()), sdk];
            (*id, false, server.into_iter().chain(more).collect())
        };
        let mut envelope = container(&spans.iter().map(of).collect::<Vec<_>>(), 100, 200);
        envelope.meta.client_host = host.map(Into::into);
        links(&process_and_wait(&mut processor, envelope, at(2 * S), at(30 * S)))
    };
    assert_eq!(links_of(&[SERVER], Some("web")), [(1, linked("12"))]);
    assert_eq!(links_of(&[SERVER, CHILD], None), [(1, linked("12")), (2, linked("12"))]);
    assert_eq!(links_of(&[CHILD, SERVER], Some("db")), [(2, linked("12")), (1, linked("12"))]);
    assert_eq!(links_of(&[SERVER], None), [(1, None)]);
    assert_eq!(links_of(&[SERVER], Some("db")), [(1, None)]);
}

/// Guarantees: the memory for thread pointers is counted, bounded and released with the threads.
#[test]
fn pointers_are_forgotten() {
    let mut processor = link_spans("{}");
    let mut most = 0;
    for second in 0..600 {
        // One thread per second, each with another pointer.
        let threads: [(i64, &str, i64, &[u64]); 1] = [(100 + second, "", ONE + second * 64, &[second as u64 * S])];
        process(&mut processor, profiles_of_threads(&web(7), &threads), at(second as u64 * S));
        most = most.max(processor.held().bytes);
    }
    // Two and a half minutes of threads.
    assert!(most < 160 * 300, "{most}");
}

/// A thread: host, process, pointer, and the seconds in which it was observed.
type HostThread = (usize, i64, i64, BTreeSet<u64>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Guarantees: with any hosts, processes and threads, a transaction is linked with the thread found by trying all
    /// of them: the only one of its host that has this pointer and was observed in its second.
    #[test]
    fn as_by_trying_everything(
        seen in vec((0usize..2, 1i64..4, 0i64..3, proptest::collection::btree_set(0u64..5, 1..4)), 0..8),
        asked in vec((0usize..2, 0i64..3, 0u64..5), 1..10),
    ) {
        let hosts = ["web", "db"];
        let mut seen: Vec<HostThread> = seen;
        // Only one thread of a process has a pointer at a time.
        seen.sort_unstable();
        seen.dedup_by_key(|(host, pid, pointer, _)| (*host, *pid, *pointer));
        let mut processor = link_spans("{span_wait: 0s}");
        for (number, (host, pid, pointer, seconds)) in seen.iter().enumerate() {
            let times: Vec<u64> = seconds.iter().map(|second| second * 10 * S).collect();
            let threads: [(i64, &str, i64, &[u64]); 1] = [(100 + number as i64, "", ONE + pointer * 64, &times)];
            process(&mut processor, profiles_of_threads(&on_host(hosts[*host], *pid), &threads), at(0));
            // Every process is observed to the end, by an irrelevant thread.
            let threads: [(i64, &str, i64, &[u64]); 1] = [(1, "", OTHER, &[100 * S])];
            process(&mut processor, profiles_of_threads(&on_host(hosts[*host], *pid), &threads), at(0));
        }
        for (host, pointer, second) in asked {
            let right: Vec<usize> = (0..seen.len())
                .filter(|at| {
                    let (of_host, _, of_pointer, seconds) = &seen[*at];
                    (*of_host, *of_pointer) == (host, pointer) && seconds.contains(&second)
                })
                .collect();
            let expected = match right[..] {
                [at] => linked(&(100 + at).to_string()),
                _ => None,
            };
            let ident = (ONE + pointer * 64).to_string();
            let transaction = transaction("python", hosts[host], &ident, second * 10_000 - second.min(1), second * 10_000 + 1);
            let out = links(&process(&mut processor, transaction, at(0)));
            prop_assert_eq!(&out, &vec![(1, expected.clone()), (2, expected)], "{:?}", &seen);
        }
    }
}
