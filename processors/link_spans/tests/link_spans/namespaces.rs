//! Processes whose spans and profiles have different ids for them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use profbridge_engine::component::Processor as _;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_processor_link_spans::{Config, IdsAnswer, IdsQuestion, InnermostIds, LinkSpans, Namespaces};

use crate::support::*;

/// The questions asked, and the prepared answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel {
    asked: Arc<Mutex<Vec<IdsQuestion>>>,
    answers: Arc<Mutex<Vec<IdsAnswer>>>,
    is_full: Arc<AtomicBool>,
}

impl Namespaces for Kernel {
    fn ask(&mut self, question: IdsQuestion) -> Result<(), IdsQuestion> {
        if self.is_full.load(Relaxed) {
            return Err(question);
        }
        self.asked.lock().unwrap().push(question);
        Ok(())
    }

    fn answers(&mut self) -> Vec<IdsAnswer> {
        std::mem::take(&mut self.answers.lock().unwrap())
    }
}

impl Kernel {
    pub(crate) fn asked(&self) -> Vec<IdsQuestion> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    pub(crate) fn answer(&self, process: u128, ids: Option<InnermostIds>) {
        self.answers.lock().unwrap().push(IdsAnswer { process, ids });
    }
}

fn with(kernel: &Kernel) -> LinkSpans {
    with_settings(kernel, "{main_thread: true}")
}

/// A processor with these settings, in YAML.
pub(crate) fn with_settings(kernel: &Kernel, yaml: &str) -> LinkSpans {
    let section = Section::from_yaml(yaml).unwrap();
    let settings = section.extract::<Config>().unwrap().check(&section).unwrap();
    LinkSpans::with_namespaces(settings, &Rules::default(), Box::new(kernel.clone()))
}

/// The resource as sent by the eBPF profiler on the host.
pub(crate) const OUTSIDE: [(&str, Any<'_>); 3] =
    [("host.name", Any::Str("node-1")), ("process.pid", Any::Int(4711)), ("container.id", Any::Str("c1c1c1c1c1c1"))];

/// The resource as sent by an SDK in the container.
pub(crate) fn inside(language: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("telemetry.sdk.language", text(language)),
        ("host.name", text("shop-7f9")),
        ("container.id", text("c1c1c1c1c1c1")),
        ("process.pid", IntValue(7)),
    ]
}

/// Guarantees: the inner ids of a container's process are asked for once, those of its threads as they appear; with
/// these ids spans find the process and their thread, which is named by its id in profiles; the host's thread ids have
/// no meaning in such a span.
#[test]
fn own_ids_meet_the_machines() {
    let kernel = Kernel::default();
    let mut processor = with(&kernel);
    let times = ticks(0, 950);
    process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &times), (4712, "worker", &times)]), at(S));
    let mut asked = kernel.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let mut question = asked.remove(0);
    question.threads.sort_unstable();
    assert_eq!((question.pid, &question.threads[..]), (4711, &[4711, 4712][..]));
    assert_eq!(question.containers, ["c1c1c1c1c1c1".into()]);

    let batch = vec![span(1, 0, 100 * MS, &native(8)), span(2, 0, 100 * MS, &native(4712)), span(3, 0, 100 * MS, &[])];
    assert!(process(&mut processor, spans(&inside("nodejs"), batch), at(S)).telemetry.is_empty(), "nobody knows yet");
    kernel.answer(question.process, Some(InnermostIds { pid: 7, threads: vec![(4711, 7), (4712, 8)] }));
    process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &times), (4713, "new", &times)]), at(2 * S));
    let out = advance(&mut processor, at(3 * S));
    assert_eq!(links(&out), [(1, linked("4712")), (2, Some(None)), (3, linked("4711"))]);
    let counted = ["spans_linked_by_native_id", "spans_linked_without_thread", "spans_linked_to_main_thread"];
    assert_eq!(counted.map(|name| note(&out, name)), [1, 1, 1]);

    let [IdsQuestion { threads, .. }] = &kernel.asked()[..] else { panic!("the new thread is asked for") };
    assert_eq!(threads[..], [4713]);
    kernel.answer(question.process, Some(InnermostIds { pid: 7, threads: vec![(4713, 9)] }));
    let out = process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native(9))]), at(3 * S));
    assert_eq!(links(&out), [(1, linked("4713"))]);
}

/// Guarantees: a process on another machine, and one with the host's ids, is asked about once and matched by its
/// attributes; a process with a known inner id, as from the built-in sampler, or without a container, is not asked
/// about.
#[test]
fn what_is_not_asked() {
    let times = [0, 500 * MS];
    for ids in [None, Some(InnermostIds { pid: 4711, threads: vec![] })] {
        let kernel = Kernel::default();
        let mut processor = with(&kernel);
        process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &times)]), at(S));
        kernel.answer(kernel.asked()[0].process, ids);
        process(&mut processor, spans(&inside("python"), vec![]), at(S));
        process(&mut processor, profiles(&OUTSIDE, &[(4712, "shop", &times)]), at(S));
        assert_eq!(kernel.asked(), []);
        let native = native(4711);
        let mut resource = inside("python");
        resource[3].1 = IntValue(4711);
        let out = process(&mut processor, spans(&resource, vec![span(1, 0, 100 * MS, &native)]), at(S));
        assert_eq!(links(&out), [(1, linked("4711"))]);
    }
    let kernel = Kernel::default();
    let mut processor = with(&kernel);
    process(&mut processor, profiles(&OUTSIDE[..2], &[(4711, "shop", &times)]), at(S));
    let mut own = OUTSIDE.to_vec();
    own.push(("process.vpid", Any::Int(7)));
    process(&mut processor, profiles(&own, &[(7, "shop", &times)]), at(S));
    assert_eq!(kernel.asked(), []);
    let native = native(7);
    let out = process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native)]), at(S));
    assert_eq!(links(&out), [(1, linked("7"))]);
}

/// Guarantees: a process whose container becomes known after its first profiles is asked about then, and found by its
/// inner ids.
#[test]
fn a_container_that_is_said_later() {
    let kernel = Kernel::default();
    let mut processor = with(&kernel);
    let id = ("sentry.profiler_id", Any::Str("00112233445546778899aabbccddeeff"));
    let times = ticks(0, 950);
    let mut seen = |resource: &[(&str, Any<'_>)]| {
        process(&mut processor, profiles(resource, &[(4711, "shop", &times), (4712, "worker", &times)]), at(S));
        kernel.asked()
    };
    assert_eq!(seen(&[id, OUTSIDE[0], OUTSIDE[1]]), []);
    let asked = seen(&[id, OUTSIDE[0], OUTSIDE[1], OUTSIDE[2]]);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((&asked[0].containers[..], asked[0].threads.len()), (&["c1c1c1c1c1c1".into()][..], 2));
    assert_eq!(seen(&[id, OUTSIDE[0], OUTSIDE[1], OUTSIDE[2]]), []);
    kernel.answer(asked[0].process, Some(InnermostIds { pid: 7, threads: vec![(4711, 7), (4712, 8)] }));
    let native = native(8);
    let out = process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native)]), at(S));
    assert_eq!(links(&out), [(1, linked("4712"))]);
    // The same attributes as before change nothing.
    let batch = profiles(&[id, OUTSIDE[0], OUTSIDE[1], OUTSIDE[2]], &[(4711, "shop", &times)]);
    process(&mut processor, batch, at(S));
    let out = process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native)]), at(S));
    assert_eq!(links(&out), [(1, linked("4712"))]);
}

/// Guarantees: refused questions are counted and asked with the next profiles of the process: about the process, and
/// about the threads that were not asked for yet.
#[test]
fn what_could_not_be_asked_is_asked_later() {
    let kernel = Kernel::default();
    let mut processor = with(&kernel);
    let times = ticks(0, 950);
    let mut seen = |is_full: bool, threads: &[i64]| {
        kernel.is_full.store(is_full, Relaxed);
        let threads: Vec<(i64, &str, &[u64])> = threads.iter().map(|id| (*id, "", &times[..])).collect();
        let out = process(&mut processor, profiles(&OUTSIDE, &threads), at(S));
        let mut asked: Vec<u32> = kernel.asked().into_iter().flat_map(|question| question.threads).collect();
        asked.sort_unstable();
        (note(&out, "namespace_questions_put_off"), asked)
    };
    assert_eq!(seen(true, &[4711, 4712]), (1, vec![]));
    assert_eq!(seen(true, &[4711]), (1, vec![]));
    assert_eq!(seen(false, &[4711, 4712]), (0, vec![4711, 4712]));
    assert_eq!(seen(true, &[4712, 4713]), (1, vec![]));
    assert_eq!(seen(false, &[4712]), (0, vec![]));
    assert_eq!(seen(false, &[4713, 4712]), (0, vec![4713]));
}

/// Guarantees: answers about a process also apply to spans that arrive after its end, even if its last thread could not
/// be asked about any more.
#[test]
fn ended_processes() {
    let kernel = Kernel::default();
    let mut processor = with(&kernel);
    let times = [0, 500 * MS];
    process(&mut processor, profiles(&OUTSIDE, &[(4711, "shop", &times), (4712, "worker", &times)]), at(S));
    let question = kernel.asked().remove(0);
    kernel.answer(question.process, Some(InnermostIds { pid: 7, threads: vec![(4711, 7), (4712, 8)] }));
    process(&mut processor, profiles(&OUTSIDE, &[(4713, "last", &times)]), at(S));
    assert_eq!(kernel.asked().len(), 1);
    kernel.answer(question.process, None);
    let native = native(8);
    let out = process(&mut processor, spans(&inside("python"), vec![span(1, 0, 100 * MS, &native)]), at(S));
    assert_eq!(links(&out), [(1, linked("4712"))]);
}

/// Guarantees: questions and answers about ids inside containers count as held memory.
#[test]
fn own_ids_are_counted() {
    let kernel = Kernel::default();
    let held = |resource: &[(&str, Any<'_>)]| {
        let mut processor = with(&kernel);
        let threads: Vec<(i64, &str, &[u64])> = (4711..5711).map(|id| (id, "", &[0][..])).collect();
        process(&mut processor, profiles(resource, &threads), at(S));
        let before = processor.held().bytes;
        for IdsQuestion { process: of, threads, .. } in kernel.asked() {
            kernel.answer(
                of,
                Some(InnermostIds { pid: 7, threads: threads.iter().map(|id| (*id, id - 4704)).collect() }),
            );
        }
        process(&mut processor, profiles(&[], &[]), at(S));
        (before, processor.held().bytes - before)
    };
    let (asked, known) = held(&OUTSIDE);
    let (alone, nothing) = held(&OUTSIDE[..2]);
    assert!(asked - alone > 4 * 1000 && known > 8 * 1000, "{asked} {alone} {known}");
    assert_eq!(nothing, 0);
}
