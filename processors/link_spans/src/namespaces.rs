//! What processes and threads are called in PID namespaces of their own.
//!
//! A profiler outside of a container says the machine's ids of a process and its threads, and a span of the process
//! what `getpid` and `gettid` say inside. The kernel knows both (proc(5), `/proc/PID/status`, `NSpid`).

/// A process that profiles are of, as they describe it. Everything in here is what somebody claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What the answer is for.
    pub process: u128,
    /// `process.pid`.
    pub pid: u32,
    /// `container.id` and `k8s.pod.uid`: by these it can be found out whether a process of this machine is the one.
    pub containers: Vec<Box<str>>,
    /// Threads of it.
    pub threads: Vec<u32>,
}

/// What was found out about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// [`Question::process`].
    pub process: u128,
    /// `None` where it is no process of this machine, or it has ended.
    pub ids: Option<OwnIds>,
}

/// Ids in the innermost PID namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnIds {
    /// Its own.
    pub pid: u32,
    /// Those of the threads that were asked for and are still there: the id that was asked for, and the own one.
    pub threads: Vec<(u32, u32)>,
}

/// Finds out in the background what processes and threads are called in their own namespaces. No method waits. `Send`
/// and not `Sync`: the processor owns it, which moves to the pipeline's thread and is called by that alone.
pub trait Namespaces: std::fmt::Debug + Send {
    /// Asks about a process. Of two questions about one process both are answered.
    ///
    /// # Errors
    ///
    /// Gives back what is not taken, since too much waits for an answer: it is to be asked later.
    fn ask(&mut self, question: Question) -> Result<(), Question>;

    /// What was found out since the last call.
    fn answers(&mut self) -> Vec<Answer>;
}
