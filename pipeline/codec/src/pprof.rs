//! pprof: batches become profiles for `go tool pprof` and others, several of them where a batch holds more than one.

use profbridge_model::{Profiles, Quantities, Reason};
use profbridge_net::compression::Compression;
use profbridge_wire::pprof::{encode, groups};

use crate::compressor::compress;
use crate::message::{Encoded, Message};

/// Samples whose times pprof has no place for.
pub const LEFT_OUT_TIMES: &str = "pprof_samples_without_their_times";

/// Attributes of samples that no label can say: lists and bytes.
pub const LEFT_OUT_ATTRIBUTES: &str = "pprof_attributes_left_out";

/// Makes a message of each pprof profile in a batch, compressed with gzip, as Go writes them and all tools read them.
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
