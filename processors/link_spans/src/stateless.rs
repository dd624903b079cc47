//! Links by what a span says alone, without having seen a profile: for a profbridge that carries spans and no profiles, such
//! as one of several replicas.
//!
//! The profiler's id is made of the process's identity, so whoever is told the same of the process computes the same id. What
//! only the profiler knows is not part of it here: the built-in sampler's session (`profbridge.session.id`), the start of the
//! process, ids of other PID namespaces. Whether there is a profile nobody knows.

use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_identity::{Identity, Rules};
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{IdentityStrength, Spans};
use profbridge_wire::spans::{self, SpanView};

use crate::thread::{Runtime, Way, said_id};
use crate::waiting::notes;

/// Links all spans of a batch that name no profiler.
pub(crate) fn link(spans: &mut Spans, rules: &Rules, out: &mut Outbox) {
    let mut programs: Vec<Option<(Identity, Runtime)>> = vec![None; spans.resources().len()];
    for position in 0..spans.spans().len() {
        let Some(span) = spans.spans().get(position) else { break };
        let view = SpanView::of(spans, span);
        if view.profiler_id().is_some() {
            out.note(notes::HAD_PROFILER, 1);
            continue;
        }
        let resource = spans.scope_of(span).resource as usize;
        let program = programs[resource].or_else(|| program(&view, rules));
        programs[resource] = program;
        let Some((identity, runtime)) = program.filter(|(identity, _)| identity.strength == IdentityStrength::Strong)
        else {
            out.note(notes::UNNAMED, 1);
            continue;
        };
        let thread = said_id(&view, runtime);
        let name = view.attribute("thread.name").and_then(|name| name.into_text());
        out.note(
            match thread {
                Some((_, Way::NativeId)) => notes::BY_NATIVE_ID,
                Some(_) => notes::BY_ID,
                None => notes::NO_THREAD,
            },
            1,
        );
        let link = ProfilerLink {
            profiler_id: rules.profiler_id(identity, rules.cell(identity, span.start_unix_nano)),
            thread_name: name.filter(|_| thread.is_some()).map(Arc::from),
            thread_id: thread.map(|(id, _)| Arc::from(id)),
        };
        spans.change(position, |changes| changes.profiler = Some(link));
    }
}

/// Who made a span, by its resource.
fn program(view: &SpanView<'_>, rules: &Rules) -> Option<(Identity, Runtime)> {
    let process = spans::process(view)?;
    let identity = rules.identify(&process.dictionary, process.attributes.iter(), None);
    Some((identity, Runtime::of(view.language().as_deref())))
}
