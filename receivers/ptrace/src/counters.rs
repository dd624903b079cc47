//! The sampler's counters for a process that can be summed over processes and over time.

use profbridge_sampler::message::Status;

/// A counter: its metric name, and its field.
pub type Counter = (&'static str, fn(&mut Status) -> &mut u64);

/// All these counters, except observations, which pipelines count, and lost observations, which are counted by reason.
pub const COUNTERS: [Counter; 27] = [
    ("sampler_ticks", |status| &mut status.ticks),
    ("sampler_missed_ticks", |status| &mut status.missed_ticks),
    ("sampler_lowered_ticks", |status| &mut status.lowered_ticks),
    ("sampler_stops", |status| &mut status.stops),
    ("sampler_refused_stops", |status| &mut status.refused_stops),
    ("sampler_stopped_nanoseconds", |status| &mut status.stopped_nano),
    ("sampler_complete_stacks", |status| &mut status.complete),
    ("sampler_truncated_stacks", |status| &mut status.truncated),
    ("sampler_guessed_stacks", |status| &mut status.guessed),
    ("sampler_lost_samples", |status| &mut status.lost_samples),
    ("sampler_not_sampled_nanoseconds", |status| &mut status.not_sampled_nano),
    ("sampler_recorded_nanoseconds", |status| &mut status.recorded_nano),
    ("sampler_counted_nanoseconds", |status| &mut status.counted_nano),
    ("sampler_not_placed_nanoseconds", |status| &mut status.not_placed_nano),
    ("sampler_switches_sampled_nanoseconds", |status| &mut status.switches_sampled_nano),
    ("sampler_pooled_nanoseconds", |status| &mut status.pooled_nano),
    ("sampler_cut_calls", |status| &mut status.cut_calls),
    ("sampler_interpreted_stacks", |status| &mut status.interpreted),
    ("sampler_unproven_frames", |status| &mut status.unproven_frames),
    ("sampler_missing_callers", |status| &mut status.missing_callers),
    ("sampler_unknown_functions", |status| &mut status.unknown_functions),
    ("sampler_positioned_frames", |status| &mut status.positioned_frames),
    ("sampler_unpositioned_frames", |status| &mut status.unpositioned_frames),
    ("sampler_inlining_frames", |status| &mut status.inlining_frames),
    ("sampler_contexts", |status| &mut status.contexts),
    ("sampler_torn_contexts", |status| &mut status.torn_contexts),
    ("sampler_unproven_contexts", |status| &mut status.unproven_contexts),
];
