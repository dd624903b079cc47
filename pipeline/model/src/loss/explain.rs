//! The meaning of each reason to the reader of a report, and the remedy.

use super::{Loss, Reason};

impl Reason {
    /// What happened and what to do about it, as one or two sentences that follow the reason's name.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Malformed => {
                "it broke a rule of its format, which the message beside it names; upgrade or report the profiler \
                 that wrote it"
            }
            Self::LimitExceeded => {
                "it was larger or deeper than profbridge takes, or would have become so; let the profiler send less \
                 at a time"
            }
            Self::Resent => {
                "an equal profile with an equal time had come before, as after a retry; nothing is missing. To keep \
                 both, set `resends: keep` on the processor `dedup`"
            }
            Self::RedundantType => {
                "another profile of the same process already covers this time; `prefer` of the exporter chooses which \
                 one is shown"
            }
            Self::OtherType => {
                "the output shows one type of value, and these are of another type, which is named beside it; `--type` \
                 chooses, and speedscope, pprof and OTLP hold all types"
            }
            Self::NegativeValue => {
                "the value is below zero, as in a difference of two profiles, which the output format cannot contain; \
                 pprof, OTLP and the Firefox Profiler can"
            }
            Self::NoTimeUnit => {
                "Sentry shows where time goes, and this profile has neither timestamps with a period nor values in \
                 a unit of time (it counts allocations or events, perhaps); let the profiler record wall or CPU \
                 time. The formats otlp and folded take it"
            }
            Self::OffCpu => {
                "it is time for which a thread was blocked, which is not shown unless `off_cpu: true` is set on the \
                 exporter"
            }
            Self::LoneSample => {
                "it was the only observation of its thread in a chunk, and `lone_samples: drop` is set; `split` \
                 keeps it"
            }
            Self::TooShort => {
                "the process was active for less time in its window than `min_active_time` asks for; lower that"
            }
            Self::SampleRate => {
                "the processor `sample` decided against it, by `traces_rules`, `traces_sample_rate` or \
                 `profile_session_sample_rate`, or by a decision that its program had made; raise the rate to keep more"
            }
            Self::NoSampledSpan => {
                "`profile_lifecycle: trace` keeps profiles while a sampled root span of their process is open, and none \
                 was known; see whether the spans come to the same pipeline and name the same container or host and \
                 process id, or set `manual` on the processor `sample`"
            }
            Self::NoFrames => {
                "it had no stack, so it would be shown as idle time; see the profiler's own log for why it could \
                 not read the stack"
            }
            Self::ChunkRule => {
                "the chunk broke a rule, so Sentry would have dropped it without an error; the log names the \
                 rule. Before exporters to Sentry the processor `chunk` has to run"
            }
            Self::TooLarge => {
                "a single item was larger than what the destination takes and could not be split; shorten names or \
                 stacks at the profiler"
            }
            Self::Unroutable => "no destination is configured for it; name one for its attribute, or a default `dsn`",
            Self::OwnRequests => {
                "an SDK of Sentry's traced its own posts to the receiver `sentry`, as Python's does if the DSN has a \
                 port; nothing is wrong. `ignore_spans` in the SDK ends it at the source, and `drop_own_requests: false` \
                 keeps them"
            }
            Self::OtherSignal => "the exporter's `signals` leave it out; nothing is wrong",
            Self::NoTransaction => {
                "a processor left out the transaction that it belongs to, and Sentry takes neither a V1 profile nor the \
                 spans of a transaction without it; nothing is wrong"
            }
            Self::QueueFull => {
                "the queue in front of the exporter was full, since the destination took less than what arrived; where it \
                 answers slowly (profbridge_exporter_attempt_seconds_total), raise `sending_queue.num_consumers`, for \
                 bursts and outages `sending_queue.queue_size`; where it fails, the log names the error"
            }
            Self::MemoryLimit => "the memory limit was reached; raise `service.limits.memory`, or let less arrive",
            Self::RateLimited => {
                "the destination said that its quota is used up; see the quota and the spike protection of the \
                 project in Sentry"
            }
            Self::RejectedByPeer => {
                "the destination refused it permanently; the log names its answer (401: the DSN or token is wrong, 403: \
                 it is disabled or has no right to that project, 404: the address is wrong, 413: larger than the server \
                 takes, 400: it broke a rule of the server's, which its answer says)"
            }
            Self::RetriesExhausted => {
                "the destination could not be reached, or was overloaded, until the retries were used up; the log \
                 names the last error, and `retry_on_failure.max_elapsed_time` how long it is tried"
            }
            Self::WriteFailed => "it could not be written to disk; the log names the path and what the system said",
            Self::Shutdown => {
                "it was still held when the time for the shutdown was over; raise `service.shutdown_timeout`, and \
                 see whether the destination answers. The exporter `sentry` writes it to disk instead where \
                 `on_shutdown` names a folder, and `profbridge send` delivers it"
            }
            Self::KeptOnDisk => {
                "it could not be sent before the end, and is in the folder that `on_shutdown` of the exporter names; \
                 `profbridge send FOLDER` delivers it"
            }
            Self::Loop => {
                "it had left this process before and came back: an exporter sends, directly or through another \
                 profbridge, to a receiver whose pipeline it belongs to; correct the `endpoint` or `dsn` of one of them"
            }
            Self::Internal => {
                "a part of profbridge failed while it held it, which is a defect; please report it with the log"
            }
        }
    }
}

impl Loss {
    /// What happened and what to do about it, see [`Reason::explanation`].
    pub const fn explanation(&self) -> &'static str {
        match self.reason {
            // Exporters other than Sentry's send only the views of an envelope.
            Reason::Unroutable if self.quantities.observations == 0 => {
                "no destination is configured for it, or nothing was read of it that the exporter could send; name a \
                 destination for its attribute, a default `dsn`, or an exporter that forwards envelopes"
            }
            // `dedup` compares profiles, `transactions` compares spans.
            Reason::Resent if self.quantities.observations == 0 => {
                "an equal span with the same id had come before, as after a retry; nothing is missing"
            }
            reason => reason.explanation(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantities;

    /// Guarantees: the explanation for unroutable items alone names both possible reasons, and that for resent spans
    /// does not mention a configuration key that applies to profiles.
    #[test]
    fn explanations_of_a_unit() {
        for (reason, quantities, text) in [
            (Reason::Unroutable, Quantities::items(1), "forwards envelopes"),
            (Reason::Resent, Quantities::spans(1), "equal span"),
        ] {
            assert!(Loss { reason, quantities }.explanation().contains(text));
            let of_profiles = Loss { reason, quantities: Quantities::observations(1) };
            assert_eq!(of_profiles.explanation(), reason.explanation());
        }
    }

    /// Guarantees: each reason has its own explanation, which does more than repeat its name.
    #[test]
    fn every_reason_is_explained() {
        let mut all: Vec<&str> = Reason::ALL.iter().map(|reason| reason.explanation()).collect();
        assert!(all.iter().all(|text| text.len() > 50 && !text.ends_with('.') && !text.contains("  ")), "{all:#?}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Reason::ALL.len());
    }
}
