//! Fake backends in this process that record requests and can misbehave on purpose.

pub(crate) mod otlp;
pub(crate) mod sentry;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::process::PATIENCE;

/// Accepts connections on its own port until it is dropped.
struct Listening {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Listening {
    /// Passes each connection to `serve` in a separate task.
    fn start<F>(mut serve: impl FnMut(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { address, _runtime: runtime }
    }
}

/// A list that one side appends to while a test waits for entries.
#[derive(Debug)]
pub(crate) struct AwaitedList<T>(Arc<(Mutex<Vec<T>>, Condvar)>);

impl<T> Clone for AwaitedList<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for AwaitedList<T> {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(Vec::new()), Condvar::new())))
    }
}

impl<T: Clone> AwaitedList<T> {
    pub(crate) fn push(&self, value: T) {
        self.0.0.lock().unwrap().push(value);
        self.0.1.notify_all();
    }

    /// All entries so far.
    pub(crate) fn all(&self) -> Vec<T> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits for at least `count` entries.
    pub(crate) fn wait(&self, count: usize) -> Vec<T> {
        self.wait_until(|all| all.len() >= count)
    }

    /// Waits until the entries satisfy `enough`.
    pub(crate) fn wait_until(&self, enough: impl Fn(&[T]) -> bool) -> Vec<T> {
        let guard = self.0.0.lock().unwrap();
        let (guard, timeout) = self.0.1.wait_timeout_while(guard, PATIENCE, |all| !enough(all)).unwrap();
        assert!(!timeout.timed_out(), "the backend recorded only {} requests", guard.len());
        guard.clone()
    }
}
