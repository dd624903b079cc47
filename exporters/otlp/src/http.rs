//! Makes one POST of a request.

use std::time::{SystemTime, UNIX_EPOCH};

use ::http::StatusCode;
use ::http::header::{self, HeaderValue};
use bytes::Bytes;
use profbridge_codec::otlp::Encoding;
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_engine::http_out::{HttpAnswer, HttpOut};
use profbridge_model::Reason;
use profbridge_net::compression::ACCEPT_ENCODING;
use prost::Message as _;

use crate::answer::{self, FailedAttempt};
use crate::prepare::OtlpMeta;
use crate::settings::{MAX_RESPONSE_BYTES, Settings};

/// Media types of requests and their answers.
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Makes one attempt.
pub(crate) async fn export(
    out: &HttpOut,
    settings: &Settings,
    request: &Request<OtlpMeta>,
) -> Result<Accepted, FailedAttempt> {
    let signal = request.meta.batch.signal;
    // `prepare` creates no requests for signals without a URL.
    let url = settings.target.url(signal).ok_or_else(|| SendError {
        retry: Retry::Never,
        reason: Reason::Internal,
        message: format!("{}: no URL takes {}", settings.peer.host, signal.names().name),
    })?;
    let media = match request.meta.encoding {
        Encoding::Protobuf => PROTOBUF,
        Encoding::Json => JSON,
    };
    let mut headers = settings.peer.headers.clone();
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    let coding = request.meta.compression.content_encoding();
    let answer = out.post(url, signal.names().kind, headers, media, coding, request.body.clone()).await;
    let answer = answer.map_err(|failure| settings.peer.failed(&failure))?;
    if answer.status.is_success() {
        return Ok(success(settings, request, &answer));
    }
    let (status, text) = (answer.status, text(&answer));
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut error = answer.refused(&settings.peer, &text, since_epoch);
    if status == StatusCode::NOT_FOUND {
        error.message.push_str(&format!("; it may not take {}, or under another path", signal.names().name));
    }
    // The specification asks for 413; the Collector's receiver sends 400.
    let too_large = answer.body.is_ok() && (status == 413 || (status == 400 && answer::says_too_large(&text)));
    Err(FailedAttempt { error, too_large })
}

fn success(settings: &Settings, request: &Request<OtlpMeta>, answer: &HttpAnswer) -> Accepted {
    // An empty body is an empty answer, whatever its content type and encoding.
    if answer.body.as_ref().is_ok_and(Bytes::is_empty) {
        return answer::accepted(settings, request, &[]);
    }
    // An answer should have the type of its request, but the other type is decoded as well.
    let is_json = match answer.media_type() {
        _ if answer.body.is_err() => false,
        PROTOBUF => false,
        JSON => true,
        _ => return answer::unreadable(settings, "it is neither protobuf nor JSON; this may not be an OTLP receiver"),
    };
    match answer.unpacked(MAX_RESPONSE_BYTES) {
        Ok(message) if is_json => answer::accepted_json(settings, request, &message),
        Ok(message) => answer::accepted(settings, request, &message),
        Err(why) => answer::unreadable(settings, &why),
    }
}

/// The error text of a body: the message of a `google.rpc.Status`, as the specification asks for, or plain text.
fn text(answer: &HttpAnswer) -> String {
    let Ok(body) = answer.unpacked(MAX_RESPONSE_BYTES) else { return String::new() };
    match answer.media_type() {
        PROTOBUF => tonic_types::Status::decode(body).map(|status| status.message).unwrap_or_default(),
        JSON => {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            body.get("message").and_then(|message| message.as_str()).unwrap_or_default().to_owned()
        }
        "text/plain" => String::from_utf8_lossy(&body).into_owned(),
        _ => String::new(),
    }
}
