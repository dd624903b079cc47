//! An encoded request whose times can be moved without encoding it anew.
//!
//! A load generator that sent the same bytes again and again would measure how fast resends are dropped.

/// An encoded `ExportProfilesServiceRequest` and where its times stand in it.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Of every `time_unix_nano` of a profile and `timestamps_unix_nano` of a sample.
    times: Vec<u32>,
}

/// The fields that lead from a request to a profile's samples, by their numbers (opentelemetry-proto
/// `profiles/v1development/profiles.proto`): `resource_profiles`, `scope_profiles`, `profiles`, `samples`.
const PATH: [u64; 4] = [1, 2, 2, 2];

/// The number of `Profile.time_unix_nano` and the depth at which it stands.
const TIME: (usize, u64) = (3, 3);

/// The number of `Sample.timestamps_unix_nano` and the depth at which it stands.
const TIMESTAMPS: (usize, u64) = (4, 5);

impl Template {
    /// Finds the times in a request that prost has encoded.
    ///
    /// # Errors
    /// The bytes are no protobuf.
    pub fn new(bytes: Vec<u8>) -> Result<Self, super::Error> {
        let mut times = Vec::new();
        find(&bytes, 0, 0, &mut times).ok_or("the request is no protobuf")?;
        Ok(Self { bytes, times })
    }

    /// The request as it is.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many times it holds.
    pub fn times(&self) -> usize {
        self.times.len()
    }

    /// The request with every time `nanos` later.
    pub fn later(&self, nanos: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &at in &self.times {
            let place = &mut bytes[at as usize..at as usize + 8];
            let mut time = [0; 8];
            time.copy_from_slice(place);
            place.copy_from_slice(&u64::from_le_bytes(time).wrapping_add(nanos).to_le_bytes());
        }
        bytes
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Looks through a message that starts at `base` of the request.
fn find(message: &[u8], base: usize, depth: usize, times: &mut Vec<u32>) -> Option<()> {
    let mut at = 0;
    while at < message.len() {
        let key = varint(message, &mut at)?;
        let field = (depth, key >> 3);
        match key & 7 {
            0 => {
                varint(message, &mut at)?;
            }
            1 => {
                if field == TIME || field == TIMESTAMPS {
                    times.push(u32::try_from(base + at).ok()?);
                }
                at += 8;
            }
            2 => {
                let len = usize::try_from(varint(message, &mut at)?).ok()?;
                let inner = message.get(at..at.checked_add(len)?)?;
                if field == TIMESTAMPS {
                    for place in (0..len / 8).map(|number| base + at + number * 8) {
                        times.push(u32::try_from(place).ok()?);
                    }
                } else if PATH.get(depth) == Some(&field.1) {
                    find(inner, base + at, depth + 1, times)?;
                }
                at += len;
            }
            5 => at += 4,
            _ => return None,
        }
    }
    (at == message.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{ExportProfilesServiceRequest, figures, workload};

    /// Guarantees: every time of a request moves, and nothing else.
    #[test]
    fn all_times_move() {
        for shape in [workload::Shape::Tiny, workload::Shape::Avg, workload::Shape::Adversarial] {
            let mut request = workload::request(shape);
            let template = Template::new(request.encode_to_vec()).unwrap();
            let profiles =
                request.resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles).count();
            assert_eq!(template.times(), figures::Figures::of(&request).observations + profiles);
            let moved = ExportProfilesServiceRequest::decode(&template.later(7_000_000_001)[..]).unwrap();
            for profile in
                request.resource_profiles.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles)
            {
                profile.time_unix_nano += 7_000_000_001;
                profile
                    .samples
                    .iter_mut()
                    .flat_map(|sample| &mut sample.timestamps_unix_nano)
                    .for_each(|time| *time += 7_000_000_001);
            }
            assert!(moved == request, "{shape}");
        }
    }

    /// Guarantees: what is no protobuf is refused.
    #[test]
    fn no_protobuf() {
        assert!(Template::new(b"\x0a\xff".to_vec()).is_err());
    }
}
