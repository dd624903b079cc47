//! Simulates the memory use of a gateway: 200 hosts, each with a request every five seconds, windows of 60 seconds, on
//! a simulated clock.
//!
//! ```text
//! cargo run --release -p profbridge-processor-chunk --example gateway [SHAPE] [HOSTS] [SECONDS]
//! ```
//!
//! Prints the memory of `chunk` every five seconds; and at the end the maximum, the memory of the distinct elements of
//! the dictionaries, and the rest per observation. All allocations count: logs, windows, tables, hash tables, reserved
//! capacity. The result must be at most 16 bytes per observation.

// Prints its results, and may panic on broken input.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use profbridge_engine::component::{Now, Outbox, Processor, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::Telemetry;
use profbridge_processor_chunk::{ChunkProcessor, Config};
use profbridge_testkit::T0;
use profbridge_testkit::workload::{Host, Shape};
use profbridge_wire::otlp;
use prost::Message;

const SECOND: u64 = 1_000_000_000;
const REPORT: u64 = 5 * SECOND;

/// The data held at one moment.
#[derive(Clone, Copy, Default)]
struct Moment {
    observations: u64,
    bytes: u64,
    distinct: u64,
}

impl Moment {
    fn of(chunk: &ChunkProcessor) -> Self {
        let held = chunk.held();
        Self { observations: held.quantities.observations, bytes: held.bytes, distinct: chunk.distinct_bytes() }
    }

    fn per_observation(self) -> f64 {
        (self.bytes - self.distinct) as f64 / self.observations.max(1) as f64
    }
}

/// Adds the host's name to the resources, so that its processes differ from those of others.
fn named(mut request: profbridge_testkit::ExportProfilesServiceRequest, host: usize) -> Vec<u8> {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
    for resource in request.resource_profiles.iter_mut().filter_map(|profiles| profiles.resource.as_mut()) {
        let value = Some(AnyValue { value: Some(Value::StringValue(format!("host-{host}"))) });
        resource.attributes.push(KeyValue { key: "host.id".to_owned(), value, ..KeyValue::default() });
    }
    request.encode_to_vec()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let shape: Shape = arguments.next().map_or(Shape::Avg, |shape| shape.parse().unwrap());
    let hosts: usize = arguments.next().map_or(200, |hosts| hosts.parse().unwrap());
    let seconds: u64 = arguments.next().map_or(180, |seconds| seconds.parse().unwrap());

    let section = Section::from_yaml("max_bytes: 8GiB").unwrap();
    let settings = Config::read(&section).unwrap().check(&section, &Rules::default()).unwrap();
    let mut chunk = ChunkProcessor::new(settings);
    let mut machines: Vec<Host> = (0..hosts).map(|seed| Host::new(shape, seed as u64).starting_at(T0)).collect();
    let (mut most, mut worst) = (Moment::default(), Moment::default());
    let (mut taken, mut sent, mut batches) = (0, 0, 0);
    println!(
        "{shape}, {hosts} hosts: second, observations held, bytes held, of that distinct, the rest per observation"
    );
    for n in 0..seconds * SECOND / REPORT {
        for (host, machine) in machines.iter_mut().enumerate() {
            // Requests of different hosts arrive at different moments.
            let since = (n + 1) * REPORT + host as u64 * REPORT / hosts as u64;
            let now = Now { monotonic_nano: since, unix_nano: T0 + since };
            let request = named(machine.report(n as usize), host);
            let mut profiles = otlp::decode(request.into(), &otlp::Limits::default()).unwrap().profiles;
            profiles.peer = Some(format!("host-{host}").into());
            taken += profiles.observations();
            let mut out = Outbox::default();
            process_all(&mut chunk, profiles.into(), now, &mut out);
            sent += out.telemetry.iter().map(Telemetry::observations).sum::<u64>();
            batches += out.telemetry.len();
        }
        let moment = Moment::of(&chunk);
        if moment.bytes > most.bytes {
            most = moment;
        }
        // While windows fill, the figure is meaningless; only the steady state counts.
        if n * REPORT >= 60 * SECOND && moment.per_observation() > worst.per_observation() {
            worst = moment;
        }
        println!(
            "{:>5} {:>11} {:>13} {:>13} {:>7.2}",
            (n + 1) * REPORT / SECOND,
            moment.observations,
            moment.bytes,
            moment.distinct,
            moment.per_observation()
        );
    }
    assert_eq!(taken, sent + chunk.held().quantities.total());
    println!("most held: {} bytes for {} observations; {batches} batches were sent", most.bytes, most.observations);
    println!("distinct dictionary then: {} bytes", most.distinct);
    println!(
        "held per observation besides: {:.2} bytes then, {:.2} at worst",
        most.per_observation(),
        worst.per_observation()
    );
}
