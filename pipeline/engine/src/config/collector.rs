//! Keys of the Collector that have no equivalent here, each with advice for users who bring a Collector configuration.

/// The parent key, the key, and the advice.
const KEYS: &[(&str, &str, &str)] = &[
    (
        "sending_queue",
        "storage",
        "leave it out: queues are in memory, and what waits in them is gone after a crash; while one is full senders keep \
         what they have",
    ),
    (
        "sending_queue",
        "batch",
        "leave it out: a queue does not put requests together; `chunk` does, by `service.identity.window`, or `dedup` \
         with a `window` where nothing is cut",
    ),
    (
        "sending_queue",
        "wait_for_result",
        "leave it out: an answer cannot wait until a request was sent, since profiles wait in windows before that",
    ),
];

/// Returns advice about an unknown key with this full path.
pub(super) fn hint(path: &[String]) -> Option<&'static str> {
    let [.., parent, key] = path else { return None };
    KEYS.iter().find(|(above, known, _)| above == parent && known == key).map(|(_, _, hint)| *hint)
}

/// Components of the Collector that are settings in profbridge: section, type, and advice.
const COMPONENTS: &[(&str, &str, &str)] = &[
    (
        "processors",
        "memory_limiter",
        "set `service.limits.memory` instead, such as `256MiB`: it bounds what the whole process holds, and senders are \
         told to come back",
    ),
    (
        "processors",
        "batch",
        "leave it out: `chunk` puts together what goes to Sentry, and for OTLP `dedup` with a `window`; many small requests \
         leave at the same time (`sending_queue.num_consumers`)",
    ),
    (
        "processors",
        "resource",
        "write `resource: {insert: {KEY: VALUE}}` in the section of the receiver instead: it adds attributes that resources \
         came without; others are not changed",
    ),
    (
        "processors",
        "resourcedetection",
        "leave it out: receivers name the host of senders on this machine (`resource.local_host`); write others as \
         `resource: {insert: {KEY: VALUE}}` in the section of the receiver",
    ),
    (
        "processors",
        "k8sattributes",
        "leave it out: hand pod and namespace to the programs by OTEL_RESOURCE_ATTRIBUTES (downward API), or to all that comes \
         by `resource: {insert: {k8s.node.name: '${env:NODE}'}}` in the section of the receiver; or let a Collector in \
         front add them",
    ),
];

/// Advice about an unknown component.
pub(super) fn replacement(section: &str, kind: &str) -> Option<&'static str> {
    COMPONENTS.iter().find(|(within, known, _)| *within == section && *known == kind).map(|(.., hint)| *hint)
}
