//! Uses the pipeline that already runs on this machine with the same configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use profbridge_engine::config::{self, Config, Section};
use profbridge_engine::plan::Plan;
use profbridge_identity::Rules;
use profbridge_model::Profiles;
use profbridge_net::client::{HttpClient, HttpClientConfig, Proxies};

use super::delivered::{self, Counters};
use crate::Failure;
use crate::args::ConfigArgs;
use crate::components::REGISTRY;
use crate::configuration;
use crate::output::{self, Stage};

/// Timeout for requests on the loopback interface.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest metrics page that is read, in bytes.
const LARGEST_PAGE: usize = 16 << 20;

/// What the demo needs to know about a running pipeline.
#[derive(Debug)]
pub(super) struct RunningPipeline {
    /// Its OTLP/HTTP endpoint.
    pub(super) endpoint: String,
    /// The folder to which it writes envelopes.
    pub(super) envelopes: Option<PathBuf>,
    /// How long until a window with data is closed.
    pub(super) closes_within: Duration,
    /// The exporters that receive data from the OTLP receiver, each with the pipelines between.
    exporters: BTreeMap<String, Vec<String>>,
    /// Address of its metrics, if it serves any.
    metrics: Option<String>,
    chunk: Section,
    identity: Rules,
}

impl RunningPipeline {
    /// The pipeline that runs with this configuration, or why the demo cannot use one.
    pub(super) async fn find(arguments: &ConfigArgs) -> Result<Self, String> {
        let config =
            configuration::load(arguments).map_err(|_| "there is no configuration to look it up in".to_owned())?;
        let plan = Plan::new(&config, &REGISTRY).map_err(|_| "the configuration is not valid".to_owned())?;
        let health = plan.service.health.clone().ok_or("the configuration switches health off")?;
        if !get(&health, "/").await.is_some_and(|page| page.contains("\"receivers/otlp")) {
            return Err(format!("no profbridge with an `otlp` receiver answers at {health}"));
        }
        let chunk = section(&config.processors, "chunk").unwrap_or_else(Section::defaults);
        let times = profbridge_processor_chunk::Config::read(&chunk)
            .map_err(|_| "the configuration is not valid".to_owned())?;
        let identity = plan.service.identity.clone();
        Ok(Self {
            endpoint: endpoint(&config).ok_or("it takes no OTLP over plain HTTP, which the demo speaks")?,
            envelopes: envelopes(&config),
            closes_within: Duration::from_nanos(identity.window) + times.lateness.get(),
            exporters: exporters(&config, &plan),
            metrics: plan.service.metrics.clone(),
            chunk,
            identity,
        })
    }

    /// The current counters of its exporters; `None` if they are not available.
    pub(super) async fn counters(&self) -> Option<Counters> {
        let page = get(self.metrics.as_ref()?, "/metrics").await?;
        Some(delivered::read(&page, &self.exporters))
    }

    /// The profiler id that the running pipeline gives to the process of a batch, and the number of its windows: both
    /// derive them by the same rules.
    pub(super) fn windows(&self, profiles: &Profiles) -> Result<(String, usize), Failure> {
        let mut chunk = Stage::new(profbridge_processor_chunk::FACTORY, &self.chunk, &self.identity)?;
        let out = [chunk.take(profiles.clone()), chunk.flush()].map(|out| output::profiles(out.telemetry));
        let windows: Vec<_> = out.into_iter().flatten().filter_map(|profiles| profiles.window).collect();
        let starts: BTreeSet<_> = windows.iter().map(|window| window.start_unix_nano).collect();
        let first = windows.first().map(|window| (window.profiler_id.to_string(), starts.len()));
        first.ok_or_else(|| Failure("error: the demo's profile has no process".to_owned()))
    }
}

/// The section of the first component of a type.
fn section(components: &config::Ordered<config::ComponentId, Section>, kind: &str) -> Option<Section> {
    components.iter().find(|(id, _)| id.kind == kind).map(|(_, section)| section.clone())
}

/// The enabled exporters that receive data from the OTLP receiver, each with the pipelines between.
fn exporters(config: &Config, plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let fed =
        config.pipelines.iter().filter(|(_, pipeline)| pipeline.receivers.iter().any(|from| from.id.kind == "otlp"));
    let mut exporters = BTreeMap::<String, Vec<String>>::new();
    for (name, pipeline) in fed {
        for exporter in &pipeline.exporters {
            exporters.entry(exporter.id.to_string()).or_default().push(name.to_string());
        }
    }
    exporters.retain(|id, _| plan.disabled.iter().all(|(disabled, _)| disabled != id));
    exporters
}

fn endpoint(config: &Config) -> Option<String> {
    let http = profbridge_receiver_otlp::Settings::read(&section(&config.receivers, "otlp")?).ok()?.http?;
    http.tls.is_none().then_some(http.endpoint)
}

fn envelopes(config: &Config) -> Option<PathBuf> {
    let mut files = config.exporters.iter().filter(|(id, _)| id.kind == "file");
    files.find_map(|(_, section)| {
        let config = profbridge_exporter_file::Config::read(section).ok()?;
        (config.format == profbridge_exporter_file::Format::Sentry).then_some(config.path)
    })
}

/// An HTTP client for the loopback interface: no proxy, no TLS.
fn client() -> Result<HttpClient, Failure> {
    let config = HttpClientConfig {
        tls: None,
        proxies: Proxies::none(),
        timeout: PATIENCE,
        max_response_bytes: LARGEST_PAGE,
        ..Default::default()
    };
    HttpClient::new(&config).map_err(|error| Failure::new("no client", &error))
}

/// Fetches a page over the loopback interface.
async fn get(address: &str, path: &str) -> Option<String> {
    let url = format!("http://{address}{path}").parse::<Uri>().ok()?;
    let response = client().ok()?.send(Method::GET, &url, HeaderMap::new(), Bytes::new()).await.ok()?;
    (response.status == StatusCode::OK).then(|| String::from_utf8_lossy(&response.body).into_owned())
}

/// Sends a request to an OTLP/HTTP endpoint.
pub(super) async fn post(endpoint: &str, body: Bytes) -> Result<(), Failure> {
    let url: Uri = format!("http://{endpoint}/v1development/profiles")
        .parse()
        .map_err(|error: http::uri::InvalidUri| Failure::new(endpoint, &error))?;
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
    let response = client()?.post(&url, headers, body).await.map_err(|error| Failure::new(endpoint, &error))?;
    if response.status.is_success() {
        return Ok(());
    }
    Err(Failure(format!("error: {endpoint} answered {}", response.status)))
}
