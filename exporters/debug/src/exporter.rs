//! The implementation of the engine's `Exporter`.

use std::time::Duration;

use profbridge_engine::component::{Accepted, BoxFuture, Exporter, Now, Prepared, Request, SendError};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, DynExporter, QueueConfig, RetryConfig, deliver};
use profbridge_engine::registry::{Description, ExporterFactory};
use profbridge_model::{Profiles, Telemetry, TelemetryKind};

use crate::config::{Config, Verbosity};
use crate::summary;

/// The registry entry of the exporter `debug`.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter("debug", "says in the log what arrives", TelemetryKind::ALL),
    create,
};

fn create(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let Config { verbosity } = section.extract()?;
    let delivery = DeliverySettings {
        queue: QueueConfig::default(),
        retry: RetryConfig::disabled(),
        // Writing a log line does not block.
        timeout: Duration::from_secs(30),
    };
    Ok(deliver(DebugExporter { verbosity }, delivery))
}

/// Writes log lines.
struct DebugExporter {
    verbosity: Verbosity,
}

impl Exporter for DebugExporter {
    type Meta = ();

    fn prepare(&self, telemetry: &Telemetry, _: Now) -> Prepared<()> {
        let samples = |batch: &Profiles| batch.profiles().map(|profile| profile.samples.len() as u64).sum::<u64>();
        let request = Request {
            body: summary::summarize(telemetry, self.verbosity).into(),
            quantities: telemetry.quantities(),
            samples: telemetry.profiles().map(samples).sum(),
            meta: (),
        };
        Prepared { requests: vec![request], ..Prepared::default() }
    }

    fn send<'a>(&'a self, request: &'a Request<()>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        tracing::info!("{}", String::from_utf8_lossy(&request.body));
        Box::pin(std::future::ready(Ok(Accepted::default())))
    }
}

#[cfg(test)]
mod tests {
    use profbridge_testkit as testing;

    use super::*;

    /// Guarantees: no data is lost on the way into the log, and each batch results in one line at every verbosity.
    #[test]
    fn conserves() {
        for verbosity in [Verbosity::Basic, Verbosity::Normal, Verbosity::Detailed] {
            let exporter = DebugExporter { verbosity };
            testing::check_prepare(&exporter, 11, |random, now| testing::telemetry(random, 60, now));
            testing::check_prepare(&exporter, 11, |random, now| {
                let telemetry = testing::telemetry(random, 60, now);
                assert_eq!(exporter.prepare(&telemetry, now).requests.len(), 1);
                telemetry
            });
        }
    }

    /// Guarantees: telemetry is logged as one event.
    #[tokio::test]
    async fn logs() {
        let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let writer = std::sync::Arc::clone(&log);
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || LogBuffer(writer.clone())).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let exporter = DebugExporter { verbosity: Verbosity::Basic };
        let now = testing::ManualClock::default().now();
        let batch = testing::profiles(&mut fastrand::Rng::with_seed(3), 40, now);
        let expected = format!("{} observations", batch.observations());
        for request in exporter.prepare(&batch.into(), now).requests {
            exporter.send(&request).await.unwrap();
        }
        let text = String::from_utf8(log.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("INFO") && text.contains(&expected), "{text}");
    }

    struct LogBuffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
