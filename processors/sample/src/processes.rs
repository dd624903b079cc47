//! Whose spans they are.

use std::collections::HashMap;
use std::sync::Arc;

use profbridge_identity::{Rules, profiler_name};
use profbridge_model::{Span, Spans};
use profbridge_wire::spans::{SpanView, process};
use xxhash_rust::xxh3::Xxh3;

/// So many resources are remembered; then all are forgotten, and found again.
const MOST: usize = 4096;

/// The process of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Equal for equal processes.
    pub(crate) identity: u128,
    /// By what profiles of it can be found.
    pub(crate) names: Arc<[u128]>,
}

/// The processes of resources that came before: a process says the same resource in each request.
#[derive(Debug)]
pub(crate) struct Processes {
    rules: Rules,
    known: HashMap<u128, Known>,
}

impl Processes {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self { rules: rules.clone(), known: HashMap::new() }
    }

    /// The process of a span, as its resource says it.
    pub(crate) fn of(&mut self, spans: &Spans, span: &Span) -> Known {
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

    fn find(&self, spans: &Spans, span: &Span, content: u128) -> Known {
        let Some(said) = process(&SpanView::of(spans, span)) else {
            return Known { identity: content, names: Arc::default() };
        };
        let attributes = said.attributes.iter();
        let identity = self.rules.identify(&said.dictionary, attributes.clone(), spans.peer.as_deref());
        Known { identity: identity.hash, names: self.rules.names(&said.dictionary, attributes).into() }
    }

    /// By what profiles of a root span's process can be found, the profiler that it names among that.
    pub(crate) fn names(&mut self, view: &SpanView<'_>, spans: &Spans) -> Vec<u128> {
        let mut names = self.of(spans, view.span()).names.to_vec();
        names.extend(view.profiler_id().map(profiler_name));
        names
    }

    /// The memory of it, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(u128, Known)>() + 1 + 64)
    }
}
