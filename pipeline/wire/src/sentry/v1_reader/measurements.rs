//! Converts the measurements of a profile to those of a chunk.

use super::model::Measurement;
use crate::sentry::sampled::ProfileError;
use crate::sentry::sampled::measurements::{MAX_MEASUREMENTS, UNITS, is_number};
use crate::sentry::sampled::text::Entries;

/// The JSON of measurements with absolute times, in seconds with six decimal places. `start` is the profile's start in
/// nanoseconds since the Unix epoch. Values are written unmodified.
///
/// # Errors
///
/// Relay does not know a unit, or a value is not a number.
pub(super) fn absolute(
    measurements: &Entries<'_, Measurement<'_>, MAX_MEASUREMENTS>,
    start: u64,
) -> Result<String, ProfileError> {
    let mut out = String::from("{");
    for (position, (name, measurement)) in measurements.0.iter().enumerate() {
        let name = name.as_str();
        let refuse = |place: &str, rule: String| {
            let rule = format!("{rule} (profiling_invalid_json)");
            Err(ProfileError::rule(format!("measurements.{}{place}", short(name)), rule))
        };
        let unit = measurement.unit.as_str();
        if !UNITS.contains(&unit) {
            return refuse(".unit", format!("{:?} is no unit that Sentry knows", short(unit)));
        }
        let comma = if position > 0 { "," } else { "" };
        out.push_str(&format!("{comma}{}:{{\"unit\":\"{unit}\",\"values\":[", serde_json::Value::from(name)));
        let mut comma = "";
        for (at, measured) in measurement.values.iter().enumerate() {
            let Some(measured) = measured else { continue };
            let value = measured.value.get();
            if !is_number(value) {
                return refuse(&format!(".values[{at}].value"), "is no number".to_owned());
            }
            let seconds = match measured.timestamp.filter(|seconds| seconds.is_finite()) {
                Some(seconds) => format!("{seconds:.6}"),
                None => seconds(start.saturating_add(measured.elapsed_since_start_ns.unwrap_or_default().0)),
            };
            out.push_str(&format!("{comma}{{\"timestamp\":{seconds},\"value\":{value}}}"));
            comma = ",";
        }
        out.push_str("]}");
    }
    out.push('}');
    Ok(out)
}

/// A time in nanoseconds as seconds, rounded to microseconds.
fn seconds(nanos: u64) -> String {
    let micros = nanos.saturating_add(500) / 1_000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The first characters of a name, for an error message.
fn short(name: &str) -> &str {
    name.char_indices().nth(40).map_or(name, |(end, _)| &name[..end])
}
