//! Tests that exporters are informed of data that sampling removed.

use profbridge_model::{SampledOutCounts, SampledOutOrigin, Spans};

use super::*;
use crate::component::{Now, Outbox};

/// Removes one span of each batch, and one more at the end.
#[derive(Default)]
struct Sampler {
    is_over: bool,
}

fn one() -> SampledOutCounts {
    SampledOutCounts { spans: 1, ..SampledOutCounts::default() }
}

fn nobody() -> SampledOutOrigin {
    let form = profbridge_model::SpanForm::Otlp;
    SampledOutOrigin::Process(Spans::new(form, bytes::Bytes::new(), vec![], vec![], vec![], false).unwrap())
}

impl Processor for Sampler {
    fn process(&mut self, telemetry: Telemetry, _now: Now, out: &mut Outbox) {
        out.report_sampled_out(nobody(), one());
        out.report_sampled_out(nobody(), SampledOutCounts::default());
        out.send(telemetry);
    }

    fn flush(&mut self, _now: Now, out: &mut Outbox) -> bool {
        if !std::mem::replace(&mut self.is_over, true) {
            out.report_sampled_out(nobody(), one());
        }
        false
    }
}

/// Guarantees: every exporter of a pipeline is informed at once of the data that sampling removed: before the remaining
/// data arrives, even if another processor holds that data, and also at the end. Each report comes once, and none comes
/// if nothing was removed.
#[tokio::test]
async fn exporters_learn_what_was_sampled_out() {
    let context = context();
    let fakes = [FakeExporter::always(FakeReply::Accept), FakeExporter::always(FakeReply::Accept)];
    let [one_sink, other_sink] = &fakes;
    let (one_sink, _) = sink(one_sink, &context, 10, Overflow::Refuse).await;
    let (other_sink, _) = sink(other_sink, &context, 10, Overflow::Refuse).await;
    let sampler: Box<dyn Processor> = Box::new(Sampler::default());
    let processors = vec![("sampler".to_owned(), sampler), holder(3600)];
    let mut pipeline = pipeline("profiles", &context, processors, &[&one_sink, &other_sink]);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..2 {
        consume(&intake, 3).await.unwrap();
    }
    pipeline.stop(Instant::now() + Duration::from_secs(60));
    pipeline.ended().await;
    for fake in &fakes {
        assert_eq!(*fake.seen.sampled_out.lock().unwrap(), [(one(), 0), (one(), 0), (one(), 0)]);
        assert_eq!(*fake.seen.prepared.lock().unwrap(), 6);
    }
}
