use proptest::prelude::*;

use super::*;

/// Guarantees: in lifecycle `manual`, start and stop work, and a repeated request reports why it does nothing.
/// rule: profiles-sdk#lifecycle, profiles-sdk#lifecycle-manual
#[test]
fn manual() {
    let mut session = ProfilerLifecycle::launch(LifecycleMode::Manual, true, false, 3);
    assert!(!session.is_running(), "spans do not start it");
    assert_eq!(session.stop(), LifecycleChange::Nothing(Why::NotRunning));
    assert_eq!(session.start(), LifecycleChange::Started);
    assert_eq!(session.start(), LifecycleChange::Nothing(Why::RunsAlready));
    assert_eq!(session.spans_changed(0), LifecycleChange::Nothing(Why::RunsAlready));
    assert!(session.is_running(), "the end of a span does not stop it");
    assert_eq!(session.stop(), LifecycleChange::Stopped);
    assert_eq!(session.start(), LifecycleChange::Started, "it can be started again");
}

/// Guarantees: in lifecycle `trace` the profiler runs from the first to the last sampled root span, and start and stop
/// do nothing.
/// rule: profiles-sdk#lifecycle, profiles-sdk#stop-profiler
#[test]
fn trace() {
    let mut session = ProfilerLifecycle::launch(LifecycleMode::Trace, true, true, 0);
    assert_eq!(session.start(), LifecycleChange::Nothing(Why::TraceMode));
    assert_eq!(session.spans_changed(1), LifecycleChange::Started);
    assert_eq!(session.spans_changed(2), LifecycleChange::Nothing(Why::RunsAlready));
    assert_eq!(session.stop(), LifecycleChange::Nothing(Why::TraceMode));
    assert_eq!(session.spans_changed(1), LifecycleChange::Nothing(Why::RunsAlready));
    assert_eq!(session.spans_changed(0), LifecycleChange::Stopped);
    assert_eq!(session.spans_changed(0), LifecycleChange::Nothing(Why::NotRunning));
}

#[derive(Debug, Clone, Copy)]
enum LifecycleStep {
    Start,
    Stop,
    Spans(usize),
}

proptest! {
    /// Guarantees: from its launch on and for any sequence of requests, a session that is not sampled never runs; in
    /// lifecycle `trace` it runs exactly while spans are open; in `manual`, exactly from a start to a stop; and an
    /// outcome reports exactly what changed.
    /// rule: profiles-sdk#lifecycle-manual, profiles-sdk#lifecycle-trace, profiles-sdk#start-on-app-start
    #[test]
    fn holds_its_laws(
        trace: bool,
        sampled: bool,
        on_launch: bool,
        open in 0usize..3,
        steps in proptest::collection::vec(
            prop_oneof![Just(LifecycleStep::Start), Just(LifecycleStep::Stop), (0usize..3).prop_map(LifecycleStep::Spans)], 0..40),
    ) {
        let mode = if trace { LifecycleMode::Trace } else { LifecycleMode::Manual };
        let mut session = ProfilerLifecycle::launch(mode, sampled, on_launch, open);
        let (mut manual, mut spans) = (on_launch, open);
        prop_assert_eq!(session.is_running(), sampled && if trace { spans > 0 } else { manual });
        for step in steps {
            let before = session.is_running();
            let outcome = match step {
                LifecycleStep::Start => { manual = true; session.start() }
                LifecycleStep::Stop => { manual = false; session.stop() }
                LifecycleStep::Spans(open) => { spans = open; session.spans_changed(open) }
            };
            let wanted = if trace { spans > 0 } else { manual };
            prop_assert_eq!(session.is_running(), sampled && wanted);
            let change = match outcome {
                LifecycleChange::Started => (false, true),
                LifecycleChange::Stopped => (true, false),
                LifecycleChange::Nothing(_) => (before, before),
            };
            prop_assert_eq!(change, (before, session.is_running()));
        }
    }
}
