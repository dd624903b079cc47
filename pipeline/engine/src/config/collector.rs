//! Keys of the Collector that have no equal here: what to do about each, for who copies a configuration.

/// The key that holds the key, the key, and what to do.
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

/// What to do about an unknown key, given its whole path.
pub(super) fn hint(path: &[String]) -> Option<&'static str> {
    let [.., parent, key] = path else { return None };
    KEYS.iter().find(|(above, known, _)| above == parent && known == key).map(|(_, _, hint)| *hint)
}

/// Components of the Collector that are settings here: section, type, and what to do instead.
const COMPONENTS: &[(&str, &str, &str)] = &[(
    "processors",
    "memory_limiter",
    "set `service.limits.memory` instead, such as `256MiB`: it bounds what the whole process holds, and senders are told to \
     come back",
)];

/// What to do instead of a component that is unknown.
pub(super) fn replacement(section: &str, kind: &str) -> Option<&'static str> {
    COMPONENTS.iter().find(|(within, known, _)| *within == section && *known == kind).map(|(.., hint)| *hint)
}
