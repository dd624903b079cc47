//! Forwards requests of types that no receiver parses to the upstream, unchanged.

use std::sync::Arc;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use profbridge_engine::component::BoxFuture;
use profbridge_engine::peer_limits::RequestForwarder;
use profbridge_engine::via::{self, Via};
use profbridge_model::TelemetryKind;
use profbridge_net::client::{ForwardingClient, PartlyReadBody};

use crate::destinations::Destinations;

/// Forwards to the upstreams of an exporter.
#[derive(Debug)]
pub(crate) struct ToUpstream {
    pub(crate) destinations: Arc<Destinations>,
    pub(crate) forwarding: ForwardingClient,
    /// Detects a loop of forwarding processes.
    pub(crate) via: Via,
}

impl RequestForwarder for ToUpstream {
    fn knows(&self, server: &str) -> bool {
        self.destinations.upstream_of(Some(server)).is_some()
    }

    fn pass<'a>(
        &'a self,
        server: Option<&'a str>,
        mut request: Request<PartlyReadBody>,
    ) -> BoxFuture<'a, Result<Response<Incoming>, String>> {
        Box::pin(async move {
            let (_, upstream) = self.destinations.upstream_of(server).ok_or("it is no upstream of this exporter")?;
            let behind = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let url: Uri = upstream.url(behind).parse().map_err(|_| "the path makes no valid URL")?;
            request.headers_mut().insert(via::HEADER, self.via.header(TelemetryKind::Envelopes));
            self.forwarding.pass(url, request).await.map_err(|failure| failure.to_string())
        })
    }
}
