//! Encodes batches as pprof profiles for `go tool pprof` and other tools; a batch may give several.

use profbridge_model::{Profiles, Quantities, Reason};
use profbridge_net::compression::Compression;
use profbridge_wire::pprof::{encode, groups};

use crate::compressor::compress;
use crate::message::{Encoded, Message};

/// Counts samples whose times were left out, because pprof has no place for them.
pub const LEFT_OUT_TIMES: &str = "pprof_samples_without_their_times";

/// Counts attributes of samples that cannot be labels: lists and bytes.
pub const LEFT_OUT_ATTRIBUTES: &str = "pprof_attributes_left_out";

/// Encodes each pprof profile of a batch as a message, compressed with gzip, as Go does and all tools expect.
pub fn profiles(batch: &Profiles) -> Encoded<()> {
    let mut made = Encoded::default();
    for group in groups(batch) {
        let profiles = group.profiles();
        let observations = profiles.iter().map(|profile| batch.observations_of(profile)).sum();
        if observations == 0 {
            continue;
        }
        let encoded = encode(batch, &group);
        for (name, count) in
            [(LEFT_OUT_TIMES, encoded.left_out_times), (LEFT_OUT_ATTRIBUTES, encoded.left_out_attributes)]
        {
            if count > 0 {
                made.report.note(name, count);
            }
        }
        match compress(Compression::GZIP, &encoded.bytes) {
            Ok(body) => {
                let samples = profiles.iter().map(|profile| profile.samples.len() as u64).sum();
                let quantities = Quantities::observations(observations);
                made.messages.push(Message { body, quantities, samples, meta: () });
            }
            Err(error) => {
                made.report.losses.add_observations(Reason::WriteFailed, observations);
                made.report.error = Some(error);
            }
        }
    }
    made
}
