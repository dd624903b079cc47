//! Links spans by their own attributes alone, for a profbridge that receives spans but no profiles, such as one of
//! several replicas.
//!
//! The profiler id is computed from the identity of the process, so two instances with the same attributes compute the
//! same id. Attributes that only the profiler knows cannot be part of it here: the session of the built-in sampler
//! (`profbridge.session.id`), the start of the process, and ids of other PID namespaces. Whether a profile exists is
//! unknown. If the receiver found the client process of a span, that process and its host are used.

use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_identity::{Identity, Rules};
use profbridge_model::envelope::ClientProcess;
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Builder, IdentityStrength, Spans};
use profbridge_wire::spans::{self, SpanView};

use crate::notes;
use crate::thread::{MatchKind, SdkRuntime, ThreadHints};

/// Links all spans of a batch that name no profiler. `client` is the process that sent it, if known.
pub(crate) fn link(spans: &mut Spans, client: Option<&ClientProcess>, rules: &Rules, out: &mut Outbox) {
    let mut programs: Vec<Option<(Identity, SdkRuntime)>> = vec![None; spans.resources().len()];
    for position in 0..spans.spans().len() {
        let Some(span) = spans.spans().get(position) else { break };
        let view = SpanView::of(spans, span);
        if view.profiler_id().is_some() {
            out.note(notes::HAD_PROFILER, 1);
            continue;
        }
        let resource = spans.scope_of(span).resource as usize;
        let program = programs[resource].or_else(|| program(&view, client, rules));
        programs[resource] = program;
        let Some((identity, runtime)) = program.filter(|(identity, _)| identity.strength == IdentityStrength::Strong)
        else {
            out.note(notes::UNNAMED, 1);
            continue;
        };
        let hints = ThreadHints::of(&view, runtime);
        let thread = hints.claimed_id();
        out.note(
            match thread {
                Some((_, MatchKind::NativeId)) => notes::BY_NATIVE_ID,
                Some(_) => notes::BY_ID,
                None => notes::NO_THREAD,
            },
            1,
        );
        let link = ProfilerLink {
            profiler_id: rules.profiler_id(identity, rules.cell(identity, span.start_unix_nano)),
            thread_name: hints.name.filter(|_| thread.is_some()).map(Arc::from),
            thread_id: thread.map(|(id, _)| Arc::from(id)),
        };
        spans.change(position, |changes| changes.profiler = Some(link));
    }
}

/// The program that made a span, from its resource or from the client process.
fn program(view: &SpanView<'_>, client: Option<&ClientProcess>, rules: &Rules) -> Option<(Identity, SdkRuntime)> {
    let identity = match client {
        None => {
            let process = spans::process(view, None)?;
            rules.identify(&process.dictionary, process.attributes.iter(), None)
        }
        Some(client) => {
            let mut builder = Builder::new();
            builder.resource(&[("host.name", (&*client.host).into()), ("process.pid", i64::from(client.pid).into())]);
            let batch = builder.finish().ok()?;
            rules.identify(batch.dictionary(), batch.resources().first()?.resource.attributes.iter(), None)
        }
    };
    Some((identity, SdkRuntime::of(view.language().as_deref())))
}
