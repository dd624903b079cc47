//! Recognises from the stacks of samples whether their thread runs an event loop.
//!
//! An event loop runs the requests of many traces in turns. If some traces are not sampled, the only known open span on
//! the thread is usually not the one that is running, and the spans alone do not show this: it may take minutes until
//! two sampled traces overlap. But the loop function that calls whatever is due is on the stack of each sample.
//!
//! Other signs are weaker. A thread that runs code while no known span is open may just as well belong to a thread
//! pool, whose links are right. Trace ids that are all small only show a ratio-based sampler. If spans have not
//! overlapped for long, wrong links are rare but possible. A sampling probability tells nothing about a thread.

use hashbrown::HashMap;
use profbridge_model::dictionary::Location;
use profbridge_model::{Dictionary, StackId, Value};

/// Functions from which event loops run their tasks: part of the function name, and the end of the file name.
const FUNCTIONS: [(&str, &str); 6] = [
    ("_run_once", "asyncio/base_events.py"),
    ("unrolled_run", "trio/_core/_run.py"),
    ("mainLoop", "twisted/internet/base.py"),
    ("main", "eventlet/greenthread.py"),
    // Netty's: `NioEventLoop.run`, `EpollEventLoop.run`, `SingleThreadIoEventLoop.run`.
    ("EventLoop.run", ""),
    ("tokio::runtime::scheduler::", ""),
];

/// Libraries that switch between tasks on one thread: part of their file names.
const LIBRARIES: [&str; 3] = ["/uvloop/", "/gevent/", "/greenlet/"];

/// Node.js: every thread that runs JavaScript runs an event loop. The end of the program's file name, and the
/// `profile.frame.type` of its functions.
const NODE: &str = "/node";
const JAVASCRIPT: &str = "v8js";

/// Finds the event loop stacks of a dictionary.
#[derive(Debug)]
pub(super) struct EventLoopStacks {
    /// For each location: whether it is code of an event loop.
    locations: Vec<bool>,
    known: HashMap<StackId, bool>,
}

impl EventLoopStacks {
    /// `None` if no location is code of an event loop.
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
            let mut example_name = dictionary.lines(location).iter().filter_map(|line| line.function);
            example_name.any(|function| functions[function.index()])
                || location.mapping.is_some_and(|mapping| mappings[mapping.index()])
                || dictionary
                    .find(location.attributes, "profile.frame.type")
                    .is_some_and(|kind| matches!(kind, Value::String(kind) if text(*kind) == JAVASCRIPT))
        };
        let locations: Vec<bool> = tables.locations.iter().map(is_loop).collect();
        locations.contains(&true).then(|| Self { locations, known: HashMap::default() })
    }

    /// Whether a stack contains code of an event loop.
    pub(super) fn has(&mut self, dictionary: &Dictionary, stack: Option<StackId>) -> bool {
        let Some(stack) = stack else { return false };
        let locations = &self.locations;
        *self
            .known
            .entry(stack)
            .or_insert_with(|| dictionary.stack(Some(stack)).flatten().any(|location| locations[location.index()]))
    }
}
