use proptest::prelude::*;

use super::*;

/// Guarantees: in lifecycle `manual`, start and stop work, and a repeated one says why it does nothing.
/// rule: profiles-sdk#lifecycle, profiles-sdk#lifecycle-manual
#[test]
fn manual() {
    let mut session = Lifecycle::launch(Mode::Manual, true, false, 3);
    assert!(!session.is_running(), "spans do not start it");
    assert_eq!(session.stop(), Outcome::Nothing(Why::NotRunning));
    assert_eq!(session.start(), Outcome::Started);
    assert_eq!(session.start(), Outcome::Nothing(Why::RunsAlready));
    assert_eq!(session.spans_changed(0), Outcome::Nothing(Why::RunsAlready));
    assert!(session.is_running(), "the end of a span does not stop it");
    assert_eq!(session.stop(), Outcome::Stopped);
    assert_eq!(session.start(), Outcome::Started, "it can be started again");
}

/// Guarantees: `start_on_launch` starts a sampled session of lifecycle `manual`, and no other.
#[test]
fn launch() {
    assert!(Lifecycle::launch(Mode::Manual, true, true, 0).is_running());
    assert!(!Lifecycle::launch(Mode::Manual, false, true, 0).is_running());
    assert!(!Lifecycle::launch(Mode::Trace, true, true, 0).is_running());
    assert!(Lifecycle::launch(Mode::Trace, true, false, 1).is_running(), "a span was open before");
}

/// Guarantees: in lifecycle `trace` the profiler runs from the first to the last sampled root span, and start and stop
/// do nothing.
/// rule: profiles-sdk#lifecycle, profiles-sdk#stop-profiler
#[test]
fn trace() {
    let mut session = Lifecycle::launch(Mode::Trace, true, true, 0);
    assert_eq!(session.start(), Outcome::Nothing(Why::TraceMode));
    assert_eq!(session.spans_changed(1), Outcome::Started);
    assert_eq!(session.spans_changed(2), Outcome::Nothing(Why::RunsAlready));
    assert_eq!(session.stop(), Outcome::Nothing(Why::TraceMode));
    assert_eq!(session.spans_changed(1), Outcome::Nothing(Why::RunsAlready));
    assert_eq!(session.spans_changed(0), Outcome::Stopped);
    assert_eq!(session.spans_changed(0), Outcome::Nothing(Why::NotRunning));
}

/// Guarantees: messages for the user use the words of the configuration.
#[test]
fn reasons_name_the_key() {
    assert!(Why::NotSampled.to_string().contains("profile_session_sample_rate"));
    assert!(Why::TraceMode.to_string().contains("profile_lifecycle"));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Start,
    Stop,
    Spans(usize),
}

proptest! {
    /// Guarantees: for any sequence of requests, a session that is not sampled never runs; in lifecycle `trace` it
    /// runs exactly while spans are open; in `manual`, exactly from a start to a stop; and an outcome reports exactly
    /// what changed.
    /// rule: profiles-sdk#lifecycle-manual, profiles-sdk#lifecycle-trace, profiles-sdk#start-on-app-start
    #[test]
    fn holds_its_laws(
        trace: bool,
        sampled: bool,
        on_launch: bool,
        steps in proptest::collection::vec(
            prop_oneof![Just(Step::Start), Just(Step::Stop), (0usize..3).prop_map(Step::Spans)], 0..40),
    ) {
        let mode = if trace { Mode::Trace } else { Mode::Manual };
        let mut session = Lifecycle::launch(mode, sampled, on_launch, 0);
        let (mut manual, mut spans) = (on_launch, 0);
        for step in steps {
            let before = session.is_running();
            let outcome = match step {
                Step::Start => { manual = true; session.start() }
                Step::Stop => { manual = false; session.stop() }
                Step::Spans(open) => { spans = open; session.spans_changed(open) }
            };
            let wanted = if trace { spans > 0 } else { manual };
            prop_assert_eq!(session.is_running(), sampled && wanted);
            let change = match outcome {
                Outcome::Started => (false, true),
                Outcome::Stopped => (true, false),
                Outcome::Nothing(_) => (before, before),
            };
            prop_assert_eq!(change, (before, session.is_running()));
        }
    }
}
