//! The way out over HTTP, for exporters that post their requests.
//!
//! The client keeps the time of an attempt: once it has the head of an answer it is known what became of the request,
//! however slowly the rest comes. An exporter that sends this way sets no timeout of its own around it.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use profbridge_model::Reason;
use profbridge_net::body::BodyError;
use profbridge_net::client::{EndpointError, Failure, HttpClient, HttpClientConfig};

use crate::component::{Retry, SendError};
use crate::via::{self, Via};

/// Posts requests for an exporter that has started.
#[derive(Debug)]
pub struct HttpOut {
    client: HttpClient,
    via: Via,
}

/// What a server answered; not a redirect.
#[derive(Debug)]
pub struct Answer {
    /// The status, by which it is known what became of the request.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or why it cannot be had.
    pub body: Result<Bytes, BodyError>,
}

impl HttpOut {
    /// Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig, via: Via) -> Result<Self, EndpointError> {
        Ok(Self { client: HttpClient::new(config)?, via })
    }

    /// Posts a body of a type and in a coding, if it has one.
    ///
    /// # Errors
    ///
    /// There is no answer; [`unanswered`] says what to do then.
    pub async fn post(
        &self,
        url: &Uri,
        mut headers: HeaderMap,
        content_type: &'static str,
        coding: Option<&'static str>,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        headers.insert(via::HEADER, self.via.header());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.extend(coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
        match self.client.post(url, headers, body).await {
            Ok(response) => Ok(Answer { status: response.status, headers: response.headers, body: Ok(response.body) }),
            Err(Failure::Response { status, headers, cause }) => {
                Ok(Answer { status, headers: *headers, body: Err(cause) })
            }
            Err(failure) => Err(failure),
        }
    }
}

/// What it means that nobody answered, in these words: another attempt is right, which may make a duplicate, unless the
/// request itself is what is wrong, or it belongs elsewhere.
pub fn unanswered(failure: &Failure, message: String) -> SendError {
    let (retry, reason) = match failure {
        Failure::Unsendable(_) => (Retry::Never, Reason::Internal),
        Failure::Redirected { .. } => (Retry::Never, Reason::RejectedByPeer),
        _ => (Retry::Later, Reason::RetriesExhausted),
    };
    SendError { retry, reason, message }
}

/// The exporter is asked to send before it has started: a defect.
pub fn not_started() -> SendError {
    let message = "the exporter was not started".to_owned();
    SendError { retry: Retry::Never, reason: Reason::Internal, message }
}
