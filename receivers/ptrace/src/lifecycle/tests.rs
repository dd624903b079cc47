use proptest::prelude::*;

use super::*;

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
