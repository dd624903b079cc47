//! Counters of processes in packets.

use super::numbers::Numbered;
use super::{Violation, wire};
use crate::message::{Level, ProcessId, Status};

/// Makes both directions from one list of counters. A field of [`Status`] that is in neither does not compile.
macro_rules! counters {
    ($($counter:ident),+ $(,)?) => {
        pub(super) fn encode_status(status: &Status) -> wire::Status {
            let Status { process, rate_hertz, stop_lengths, level, read_behind, read_stopped, $($counter),+ } = *status;
            wire::Status {
                process: process.0,
                rate_hertz,
                counters: vec![$($counter),+],
                stop_lengths: stop_lengths.to_vec(),
                level: level.number(),
                read_behind: read_behind.to_vec(),
                read_stopped: read_stopped.to_vec(),
            }
        }

        pub(super) fn decode_status(status: wire::Status) -> Result<Status, Violation> {
            let [$($counter),+] = status
                .counters
                .try_into()
                .map_err(|_| Violation::Nonsense("a status without its counters"))?;
            let stop_lengths = status
                .stop_lengths
                .try_into()
                .map_err(|_| Violation::Nonsense("a status without its 24 stop lengths"))?;
            let [read_behind, read_stopped] = [status.read_behind, status.read_stopped].map(|classes| {
                classes.try_into().map_err(|_| Violation::Nonsense("a status without its 32 classes of reading"))
            });
            if !(0.0..=100_000.0).contains(&status.rate_hertz) {
                return Err(Violation::Nonsense("a rate that is none"));
            }
            let level = Level::from_number(status.level).ok_or(Violation::Nonsense("a level that is none"))?;
            Ok(Status {
                process: ProcessId(status.process),
                rate_hertz: status.rate_hertz,
                stop_lengths,
                level,
                read_behind: read_behind?,
                read_stopped: read_stopped?,
                $($counter),+
            })
        }
    };
}

counters!(
    threads,
    ticks,
    missed_ticks,
    lowered_ticks,
    observations,
    complete,
    truncated,
    guessed,
    stops,
    refused_stops,
    stopped_nano,
    longest_stop_nano,
    sampler_cpu_nano,
    lost_observations,
    lost_samples,
    not_sampled_nano,
    recorded_nano,
    counted_nano,
    not_placed_nano,
    cut_calls,
    interpreted,
    unproven_frames,
    missing_callers,
    unknown_functions,
    positioned_frames,
    unpositioned_frames,
    inlining_frames,
    contexts,
    torn_contexts,
    unproven_contexts,
);
