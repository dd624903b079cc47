//! Who sent a request.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The peer of a connection; every request carries it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the peer's socket. Behind a proxy this is the proxy.
    pub addr: SocketAddr,
    /// The address of this end; `None` where the system does not tell.
    pub own: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// What a service keeps with a connection, until that ends; every request carries it as an extension. Empty at first,
/// and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl Kept {
    /// What is kept, the default where nothing is yet. `None` where something of another type is kept.
    pub fn get<T: Any + Default + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.0.get_or_init(|| Arc::new(T::default()))).downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Guarantees: what one request of a connection keeps the next one finds, and it is gone with the connection.
    #[test]
    fn kept_with_the_connection() {
        let connection = Kept::default();
        let first = connection.clone().get::<Mutex<u32>>().unwrap();
        *first.lock().unwrap() = 7;
        assert_eq!(*connection.get::<Mutex<u32>>().unwrap().lock().unwrap(), 7);
        assert!(connection.get::<u32>().is_none());
        let gone = Arc::downgrade(&first);
        drop((first, connection));
        assert!(gone.upgrade().is_none());
    }
}
