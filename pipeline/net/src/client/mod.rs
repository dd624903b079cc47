//! Outgoing connections: one connector, and the HTTP and gRPC clients on top of it.
//!
//! Both clients share TCP_NODELAY, TLS with our roots and `server_name_override`, the proxies of the environment, one
//! deadline for connecting, and errors without secrets.

mod connector;
mod error;
mod forwarding;
mod grpc;
mod http;
mod no_proxy;
mod proxy;
mod stream;

pub use self::connector::host_and_port;
pub use self::error::{ConnectError, EndpointError, Failure};
pub use self::forwarding::{FORWARDING_BYTES, ForwardingClient, PartlyReadBody};
pub use self::grpc::{GrpcClientConfig, grpc_channel, grpc_destination};
pub use self::http::{HttpClient, HttpClientConfig, Response};
pub use self::proxy::Proxies;

#[cfg(test)]
mod tests;
