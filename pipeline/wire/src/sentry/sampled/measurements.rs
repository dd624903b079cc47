//! The rules of measurements that both formats share (getsentry/relay `relay-profiling/src/measurements.rs`).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::text::{Entries, Text};

/// The units that Relay knows. It rejects the profile for any other.
pub(in crate::sentry) const UNITS: [&str; 8] =
    ["nanosecond", "ns", "hertz", "hz", "byte", "percent", "nanojoule", "nj"];

/// Maximum number of measurements in a profile.
pub(in crate::sentry) const MAX_MEASUREMENTS: usize = 256;

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Measurement<'a> {
    unit: Text<'a>,
    values: Vec<Measured<'a>>,
}

#[derive(Deserialize)]
struct Measured<'a> {
    #[serde(rename = "timestamp")]
    _timestamp: Option<f64>,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// Whether Relay accepts the JSON of a chunk's measurements.
pub(in crate::sentry) fn are_valid(json: &str) -> bool {
    serde_json::from_str::<Entries<'_, Measurement<'_>, MAX_MEASUREMENTS>>(json).is_ok_and(|all| {
        all.0.iter().all(|(_, measurement)| {
            UNITS.contains(&measurement.unit.as_str())
                && measurement.values.iter().all(|measured| is_number(measured.value.get()))
        })
    })
}

/// Whether JSON is a finite number, or a string with any number, including infinity and NaN.
pub(in crate::sentry) fn is_number(json: &str) -> bool {
    match serde_json::from_str::<Text<'_>>(json) {
        Ok(text) => text.as_str().parse::<f64>().is_ok(),
        Err(_) => json.parse().is_ok_and(f64::is_finite),
    }
}
