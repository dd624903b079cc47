//! The thread that touches the disk.
//!
//! A file system that hangs, or a pipe that nobody reads, can stop whoever writes for ever. Such a thread must be
//! none of the runtime's: the runtime waits for its own when it ends, and the shutdown of profbridge with it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends by itself behind the last job once this is dropped; nobody waits for it.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system allows no more threads.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, waiting) = channel::<Job>();
        let work = move || {
            for job in waiting {
                // Whoever waits for a job that panicked learns of it, and the thread serves the next one.
                drop(catch_unwind(AssertUnwindSafe(job)));
            }
        };
        std::thread::Builder::new().name("file writer".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Does something on the thread. Dropping the future does not stop it.
    ///
    /// # Errors
    ///
    /// What `job` says, or that it panicked.
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

    /// Guarantees: a job that panics is told to whoever waits for it, and the next one is done.
    #[tokio::test]
    async fn survives_a_panic() {
        let worker = Worker::start().unwrap();
        let broken: io::Result<()> = worker.run(|| panic!("told to")).await;
        assert!(broken.unwrap_err().to_string().contains("inside of profbridge"));
        assert_eq!(worker.run(|| Ok(7)).await.unwrap(), 7);
    }
}
