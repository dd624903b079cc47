//! Which samples were taken on a thread that runs an event loop, as their stacks show.
//!
//! An event loop runs the requests of many traces in turns. Where some traces are not sampled, the only span that is
//! known to be open on its thread is mostly not the one whose request runs, and no span shows that: it may take minutes
//! until two sampled traces overlap. The function that calls whatever is due is on the stack of each sample.
//!
//! Other signs are weaker. A thread that runs while no span is known to be open may as well be one of a pool, whose
//! links are right. That all ids of traces are small shows a sampler by ratio only. Spans that did not overlap for long
//! make wrong links rare, not impossible. A sampling probability says nothing of a thread.

use hashbrown::HashMap;
use profbridge_model::dictionary::Location;
use profbridge_model::{Dictionary, StackId, Value};

/// Functions that call whatever an event loop runs: a part of the function's name, and the end of its file's.
const FUNCTIONS: [(&str, &str); 6] = [
    ("_run_once", "asyncio/base_events.py"),
    ("unrolled_run", "trio/_core/_run.py"),
    ("mainLoop", "twisted/internet/base.py"),
    ("main", "eventlet/greenthread.py"),
    // Netty's: `NioEventLoop.run`, `EpollEventLoop.run`, `SingleThreadIoEventLoop.run`.
    ("EventLoop.run", ""),
    ("tokio::runtime::scheduler::", ""),
];

/// Libraries that switch between tasks on one thread: a part of their files' names.
const LIBRARIES: [&str; 3] = ["/uvloop/", "/gevent/", "/greenlet/"];

/// The program each of whose threads that run JavaScript runs an event loop, as the end of its file's name, and the
/// `profile.frame.type` of its functions.
const NODE: &str = "/node";
const JAVASCRIPT: &str = "v8js";

/// The stacks of a dictionary.
#[derive(Debug)]
pub(super) struct EventLoopStacks {
    /// Whether a location is the code of an event loop.
    locations: Vec<bool>,
    known: HashMap<StackId, bool>,
}

impl EventLoopStacks {
    /// `None` where no location is the code of an event loop.
    pub(super) fn new(dictionary: &Dictionary) -> Option<Self> {
        let tables = dictionary.tables();
        let is_loop_function =
            |(name, file): (&str, &str)| FUNCTIONS.iter().any(|(part, end)| file.ends_with(end) && name.contains(part));
        let text = |id| dictionary.string(id);
        let functions: Vec<bool> =
            tables.functions.iter().map(|of| is_loop_function((text(of.name), text(of.filename)))).collect();
        let is_library = |file: &str| file.ends_with(NODE) || LIBRARIES.iter().any(|part| file.contains(part));
        let mappings: Vec<bool> = tables.mappings.iter().map(|of| is_library(text(of.filename))).collect();
        let is_loop = |location: &Location| {
            let mut called = dictionary.lines(location).iter().filter_map(|line| line.function);
            called.any(|function| functions[function.index()])
                || location.mapping.is_some_and(|mapping| mappings[mapping.index()])
                || dictionary
                    .find(location.attributes, "profile.frame.type")
                    .is_some_and(|kind| matches!(kind, Value::String(kind) if text(*kind) == JAVASCRIPT))
        };
        let locations: Vec<bool> = tables.locations.iter().map(is_loop).collect();
        locations.contains(&true).then(|| Self { locations, known: HashMap::default() })
    }

    /// Whether a stack is one of an event loop.
    pub(super) fn has(&mut self, dictionary: &Dictionary, stack: Option<StackId>) -> bool {
        let Some(stack) = stack else { return false };
        let locations = &self.locations;
        *self
            .known
            .entry(stack)
            .or_insert_with(|| dictionary.stack(Some(stack)).flatten().any(|location| locations[location.index()]))
    }
}
