//! The ids of processes and threads in their own PID namespaces.
//!
//! A profiler outside a container sends the host's ids for a process and its threads, but the spans of that process
//! carry what `getpid` and `gettid` return inside. The kernel knows both (proc(5), `/proc/PID/status`, `NSpid`).

/// A question about a profiled process, as its profiles describe it. None of this is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdsQuestion {
    /// Identifies the process in the answer.
    pub process: u128,
    /// `process.pid`.
    pub pid: u32,
    /// `container.id` and `k8s.pod.uid`: they allow checking whether a process of this machine is the one meant.
    pub containers: Vec<Box<str>>,
    /// The threads in question.
    pub threads: Vec<u32>,
}

/// The answer to a question about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdsAnswer {
    /// [`IdsQuestion::process`].
    pub process: u128,
    /// `None` if the process is not on this machine, or has ended.
    pub ids: Option<InnermostIds>,
}

/// Ids in the innermost PID namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InnermostIds {
    /// The id of the process.
    pub pid: u32,
    /// The threads of the question that still exist: the id asked for, and the id in the namespace.
    pub threads: Vec<(u32, u32)>,
}

/// Finds the ids of processes and threads in their own namespaces, in the background. No method blocks. It is `Send`
/// but not `Sync`: the processor that owns it moves to the pipeline's thread, and only that thread calls it.
pub trait Namespaces: std::fmt::Debug + Send {
    /// Asks about a process. If it is asked about twice, both questions are answered.
    ///
    /// # Errors
    ///
    /// Returns the question if too many already wait for an answer; it should be asked again later.
    fn ask(&mut self, question: IdsQuestion) -> Result<(), IdsQuestion>;

    /// The answers found since the last call.
    fn answers(&mut self) -> Vec<IdsAnswer>;
}
