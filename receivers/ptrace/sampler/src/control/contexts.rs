//! Reads the contexts that processes publish in their memory (OTEP 4719), and sends them to the owner and the sampling
//! thread.

use std::sync::Arc;

use crate::context::{AttributeSelection, MAX_PAYLOAD, Unreadable, publication, published_at};
use crate::control::Control;
use crate::message::{AttributeValue, Event, ProblemKind, ProcessId};
use crate::runtime::{Allowance, Bounded};

/// The read limit for one check of a process: a message is read three times at most.
const ALLOWANCE: Allowance = Allowance { reads: 16, bytes: 4 * MAX_PAYLOAD };

/// The context that a process has published.
#[derive(Debug, Default)]
pub(super) struct PublishedContext {
    /// The address at which the context was read, and its publication time.
    read: Option<(u64, u64)>,
    resource: Vec<(String, AttributeValue)>,
    schema: Option<Arc<AttributeSelection>>,
}

impl Control {
    /// Reads the context of a process, if it has changed since the last read. If not, this costs one read of 8 bytes.
    pub(super) fn look_at_context(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get_mut(&process) else { return };
        let mut memory = &*attached.files;
        let mut target = Bounded::new(&mut memory, ALLOWANCE);
        let places = attached.space.publications();
        if let Some((place, at)) = attached.shown.read
            && places.contains(&place)
            && published_at(place, &mut target) == Some(at)
        {
            return;
        }
        let mut found = Err(Unreadable::Missing);
        for &place in places {
            found = publication(place, &mut target).map(|published| (place, published));
            if !matches!(found, Err(Unreadable::Missing)) {
                break;
            }
        }
        let (target, pid) = (attached.target, attached.pid);
        let schema = match found {
            Ok((place, published)) => {
                let asked = self.targets.get(&target).map_or(&[][..], |target| &target.thread_attributes);
                let schema = published.schema(asked);
                attached.shown.read = Some((place, published.at));
                if attached.shown.resource != published.resource {
                    attached.shown.resource.clone_from(&published.resource);
                    self.outbox.push(Event::Resource { process, attributes: published.resource });
                }
                schema.map(Arc::new)
            }
            // The context will be readable at the next check; until then the known one stays valid.
            Err(Unreadable::Changing) => return,
            Err(reason) => {
                attached.shown.read = None;
                if reason != Unreadable::Missing {
                    let message = format!("process {pid}: the process context in its memory is not read: {reason}");
                    self.report(target, Some(pid), ProblemKind::Malformed, message);
                }
                None
            }
        };
        let Some(attached) = self.attached.get_mut(&process) else { return };
        if attached.shown.schema != schema {
            attached.shown.schema.clone_from(&schema);
            self.sampler.set_schema(process, schema);
        }
    }
}
