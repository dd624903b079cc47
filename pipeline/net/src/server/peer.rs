//! The sender of a request.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The peer of a connection; every request carries it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the peer's socket. Behind a proxy it is the proxy's.
    pub addr: SocketAddr,
    /// The local address; `None` if the system does not report it.
    pub own: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// State that a service keeps for a connection until it ends; every request carries it as an extension. Initially
/// empty, and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ConnectionState(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl ConnectionState {
    /// The stored value; stores the default if there is none yet. `None` if a value of another type is stored.
    pub fn get<T: Any + Default + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.0.get_or_init(|| Arc::new(T::default()))).downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Guarantees: all requests of a connection see the same stored value, and it is dropped with the connection.
    #[test]
    fn state_lives_with_the_connection() {
        let connection = ConnectionState::default();
        let first = connection.clone().get::<Mutex<u32>>().unwrap();
        *first.lock().unwrap() = 7;
        assert_eq!(*connection.get::<Mutex<u32>>().unwrap().lock().unwrap(), 7);
        assert!(connection.get::<u32>().is_none());
        let gone = Arc::downgrade(&first);
        drop((first, connection));
        assert!(gone.upgrade().is_none());
    }
}
