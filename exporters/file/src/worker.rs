//! The thread that accesses the disk.
//!
//! A hanging file system, or a pipe without a reader, can block a writer forever. The thread must not belong to the
//! async runtime, which waits for its own threads at shutdown.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A handle to the thread. Once the handle is dropped, the thread ends after its last job, without anybody waiting for
/// it.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system cannot start another thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, waiting) = channel::<Job>();
        let work = move || {
            for job in waiting {
                // If a job panics, its caller sees the channel close, and the thread continues.
                drop(catch_unwind(AssertUnwindSafe(job)));
            }
        };
        std::thread::Builder::new().name("file writer".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread. Dropping the future does not stop the job.
    ///
    /// # Errors
    ///
    /// The error of `job`, or an error if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move || drop(answer.send(job())));
        let gone = || io::Error::other("writing failed inside of profbridge");
        self.jobs.send(job).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: if a job panics, its caller gets an error, and the next job is run.
    #[tokio::test]
    async fn survives_a_panic() {
        let worker = Worker::start().unwrap();
        let broken: io::Result<()> = worker.run(|| panic!("told to")).await;
        assert!(broken.unwrap_err().to_string().contains("inside of profbridge"));
        assert_eq!(worker.run(|| Ok(7)).await.unwrap(), 7);
    }
}
