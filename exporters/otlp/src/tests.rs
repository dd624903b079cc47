//! Tests the exporter against peers on real sockets that behave in every way that the specification describes, and in
//! some that it does not.

mod config;
mod delivered;
mod grpc;
mod http;
mod oversize;
mod peer;
mod prepare;
mod secure;

use bytes::Bytes;
use profbridge_codec::otlp::{EncoderOptions, OtlpEncoder};
use profbridge_engine::component::{Accepted, Exporter as _, Request, SendError};
use profbridge_engine::config::Section;
use profbridge_model::{Profiles, Telemetry};
use profbridge_testkit::{ManualClock, batch};
use profbridge_wire::otlp::{self, EncodeOptions, Limits};

use crate::config::Protocol;
use crate::exporter::OtlpExporter;
use crate::prepare::OtlpMeta;
use crate::settings::Settings;

/// An exporter for a valid section.
fn exporter(protocol: Protocol, yaml: &str) -> OtlpExporter {
    OtlpExporter::new(settings(protocol, yaml))
}

fn settings(protocol: Protocol, yaml: &str) -> Settings {
    let section = Section::from_yaml(yaml).unwrap();
    Settings::check(section.extract().unwrap(), protocol, &section).unwrap()
}

/// Starts an exporter, prepares `telemetry` and makes one attempt for each request.
async fn send_all(exporter: &OtlpExporter, telemetry: &Telemetry) -> Vec<Result<Accepted, SendError>> {
    exporter.start(&profbridge_testkit::exporter_context("otlp")).await.unwrap();
    let mut outcomes = Vec::new();
    for request in requests(exporter, telemetry) {
        outcomes.push(exporter.send(&request).await);
    }
    outcomes
}

/// Like [`send_all`], for a batch that becomes one request.
async fn send(exporter: &OtlpExporter, profiles: &Profiles) -> Result<Accepted, SendError> {
    let mut outcomes = send_all(exporter, &profiles.clone().into()).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn requests(exporter: &OtlpExporter, telemetry: &Telemetry) -> Vec<Request<OtlpMeta>> {
    exporter.prepare(telemetry, ManualClock::default().now()).requests
}

/// A request's content, as a receiver parses it.
fn decoded(request: impl Into<Bytes>) -> Profiles {
    otlp::decode(request.into(), &Limits::default()).unwrap().profiles
}

/// The same with an id for each profile.
fn with_ids(profiles: &Profiles) -> Profiles {
    let options = EncoderOptions { fill_profile_id: true, ..EncoderOptions::plain(usize::MAX) };
    let message = OtlpEncoder::new(options).encode(&profiles.clone().into()).messages.remove(0);
    decoded(message.body)
}
