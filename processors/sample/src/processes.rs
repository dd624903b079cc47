//! Identifies the process of a span.

use std::collections::HashMap;
use std::sync::Arc;

use profbridge_identity::{Rules, profiler_name};
use profbridge_model::envelope::RequestMeta;
use profbridge_model::{Span, Spans};
use profbridge_wire::spans::{SpanView, process};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The maximum number of cached resources. Beyond that, the cache is cleared.
const MOST: usize = 4096;

/// A hash of a client of Sentry: its project and its key.
pub(crate) fn client(meta: &RequestMeta) -> u128 {
    xxh3_128(format!("{:?} {:?}", meta.project_id, meta.public_key.as_ref().map(|key| &*key.0)).as_bytes())
}

/// The process of a resource.
#[derive(Debug, Clone)]
pub(crate) struct ProcessIdentity {
    /// A hash that identifies the process.
    pub(crate) identity: u128,
    /// The names of the process that its profiles may use.
    pub(crate) names: Arc<[u128]>,
}

/// Caches the process of each resource, since a process sends the same resource in each request.
#[derive(Debug)]
pub(crate) struct ProcessCache {
    rules: Rules,
    known: HashMap<u128, ProcessIdentity>,
}

impl ProcessCache {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self { rules: rules.clone(), known: HashMap::new() }
    }

    /// The process of a span, from the span's resource.
    pub(crate) fn identify(&mut self, spans: &Spans, span: &Span) -> ProcessIdentity {
        let resource = spans.resource_of(span);
        let mut content = Xxh3::new();
        let mut put = |bytes: &[u8]| {
            content.update(&bytes.len().to_le_bytes());
            content.update(bytes);
        };
        resource.parts.iter().for_each(|part| put(spans.get(*part)));
        for (key, value) in &resource.added {
            put(key.as_bytes());
            put(value.as_bytes());
        }
        put(spans.peer.as_deref().unwrap_or_default().as_bytes());
        let content = content.digest128();
        if let Some(known) = self.known.get(&content) {
            return known.clone();
        }
        let found = self.find(spans, span, content);
        if self.known.len() >= MOST {
            self.known = HashMap::new();
        }
        self.known.insert(content, found.clone());
        found
    }

    fn find(&self, spans: &Spans, span: &Span, content: u128) -> ProcessIdentity {
        let Some(described) = process(&SpanView::of(spans, span), None) else {
            return ProcessIdentity { identity: content, names: Arc::default() };
        };
        let attributes = described.attributes.iter();
        let identity = self.rules.identify(&described.dictionary, attributes.clone(), spans.peer.as_deref());
        ProcessIdentity { identity: identity.hash, names: self.rules.names(&described.dictionary, attributes).into() }
    }

    /// All names of a root span's process that profiles may use, including the profiler id in the span.
    pub(crate) fn names(&mut self, view: &SpanView<'_>, spans: &Spans) -> Vec<u128> {
        let mut names = self.identify(spans, view.span()).names.to_vec();
        names.extend(view.profiler_id().map(profiler_name));
        names
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(u128, ProcessIdentity)>() + 1 + 64)
    }
}
