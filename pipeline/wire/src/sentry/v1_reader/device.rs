//! Maps a profile's device, operating system and runtime to OpenTelemetry's semantic conventions (registry, `host`,
//! `os`, `device`, `process`).

use profbridge_model::builder::Any;
use serde_json::value::RawValue;

use super::model::{MAX_KEYS, V1Profile};
use crate::sentry::sampled::ProfileError;
use crate::sentry::sampled::text::{Entries, Text};

/// Maximum length of a device's value, in bytes.
const MAX_VALUE: usize = 4096;

/// The data of a device.
pub(super) struct Device<'a> {
    pub(super) architecture: Text<'a>,
    /// The other keys: attribute name, and value as text or as raw JSON.
    others: Vec<(String, DeviceValue<'a>)>,
}

enum DeviceValue<'a> {
    Text(Text<'a>),
    Bool(bool),
    Json(&'a str),
}

impl<'a> Device<'a> {
    /// Reads a device.
    ///
    /// # Errors
    ///
    /// It has no architecture, or a key that Relay reads has the wrong type.
    pub(super) fn read(device: &Entries<'a, &'a RawValue, MAX_KEYS>) -> Result<Self, ProfileError> {
        let mut architecture = None;
        let mut others = Vec::new();
        for (key, raw) in &device.0 {
            let (key, raw) = (key.as_str(), raw.get());
            let wrong = |_| ProfileError::rule(format!("device.{key}"), "has another type (profiling_invalid_json)");
            match key {
                "architecture" => architecture = Some(serde_json::from_str(raw).map_err(wrong)?),
                "locale" | "manufacturer" | "model" => {
                    if let Some(text) = serde_json::from_str::<Option<Text<'a>>>(raw).map_err(wrong)? {
                        others.push((attribute(key), DeviceValue::Text(text)));
                    }
                }
                "is_emulator" => {
                    if let Some(flag) = serde_json::from_str::<Option<bool>>(raw).map_err(wrong)? {
                        others.push((attribute(key), DeviceValue::Bool(flag)));
                    }
                }
                // Relay reads no lists and objects, and they are not kept as attributes.
                _ if raw.len() > MAX_VALUE || key.len() > 64 || matches!(raw.as_bytes()[0], b'[' | b'{' | b'n') => {}
                _ => match serde_json::from_str(raw) {
                    Ok(text) => others.push((attribute(key), DeviceValue::Text(text))),
                    Err(_) => others.push((attribute(key), DeviceValue::Json(raw))),
                },
            }
        }
        let missing = || ProfileError::rule("device.architecture", "is missing (profiling_invalid_json)");
        Ok(Self { architecture: architecture.ok_or_else(missing)?, others })
    }

    /// Whether all keys that Relay requires of a cocoa device are present.
    fn is_complete(&self) -> bool {
        let keys = ["is_emulator", "locale", "manufacturer", "model"];
        keys.iter().all(|key| self.others.iter().any(|(known, _)| *known == attribute(key)))
    }
}

/// The attribute for a device's key. Keys without an OpenTelemetry name keep Sentry's.
fn attribute(key: &str) -> String {
    match key {
        "manufacturer" => "device.manufacturer".to_owned(),
        "model" => "device.model.identifier".to_owned(),
        key => format!("sentry.device.{key}"),
    }
}

/// Checks Relay's requirements for profiles of Apple's SDK.
///
/// # Errors
///
/// A key is missing.
pub(super) fn check(profile: &V1Profile<'_>, device: &Device<'_>) -> Result<(), ProfileError> {
    if profile.platform.as_str() == "cocoa" && !(profile.os.build_number.is_some() && device.is_complete()) {
        let rule = "a profile of cocoa needs os.build_number and is_emulator, locale, manufacturer and model \
             (profiling_invalid_profile_metadata)";
        return Err(ProfileError::rule("device", rule));
    }
    Ok(())
}

/// The attributes of the resource.
pub(super) fn attributes<'b>(profile: &'b V1Profile<'_>, device: &'b Device<'_>) -> Vec<(&'b str, Any<'b>)> {
    let architecture = device.architecture.as_str();
    let known = host_arch(architecture);
    let mut all: Vec<(&str, Any<'_>)> = vec![("host.arch", known.into())];
    if known != architecture {
        all.push(("sentry.device.architecture", architecture.into()));
    }
    all.push(("os.name", profile.os.name.as_str().into()));
    all.push(("os.version", profile.os.version.as_str().into()));
    if let Some(build) = &profile.os.build_number {
        all.push(("os.build_id", build.as_str().into()));
    }
    if let Some(runtime) = &profile.runtime {
        all.push(("process.runtime.name", runtime.name.as_str().into()));
        all.push(("process.runtime.version", runtime.version.as_str().into()));
    }
    for (position, (key, value)) in device.others.iter().enumerate() {
        // A duplicate key would give a duplicate attribute, which OTLP forbids.
        if all.iter().any(|(known, _)| known == key) || device.others[..position].iter().any(|(known, _)| known == key)
        {
            continue;
        }
        let value = match value {
            DeviceValue::Text(text) => text.as_str().into(),
            DeviceValue::Bool(flag) => Any::Bool(*flag),
            DeviceValue::Json(json) => match (json.parse(), json.parse()) {
                (Ok(number), _) => Any::Int(number),
                (_, Ok(flag)) => Any::Bool(flag),
                _ => (*json).into(),
            },
        };
        all.push((key, value));
    }
    all
}

/// The conventions' name for an architecture (registry, `host.arch`).
fn host_arch(name: &str) -> &str {
    match name {
        "x64" | "x86_64" | "x86-64" | "AMD64" | "amd64" => "amd64",
        "aarch64" | "arm64" | "arm64e" | "ARM64" => "arm64",
        "arm" | "armv6l" | "armv7l" | "armv7" | "arm32" => "arm32",
        "ia32" | "i386" | "i486" | "i586" | "i686" | "x86" => "x86",
        "ppc64le" | "ppc64" => "ppc64",
        other => other,
    }
}
