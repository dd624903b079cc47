//! Finishes a batch that was read from a profile.

use profbridge_model::builder::Any;
use profbridge_model::dictionary::Invalid;
use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId, Profiles};
use uuid::Uuid;

use super::ProfileImages;

/// Sets the attributes of the open profile, including the measurements' JSON and the images without frames, and the
/// window of the batch: from the first to the last sample, in nanoseconds since the Unix epoch.
///
/// # Errors
///
/// The batch breaks a rule of the model.
pub(in crate::sentry) fn finish<'a>(
    mut builder: Builder,
    attributes: Vec<(&'a str, Any<'a>)>,
    measurements: Option<&'a str>,
    images: &ProfileImages<'a>,
    profiler_id: Uuid,
    (first, last): (u64, u64),
) -> Result<Profiles, Invalid> {
    let others = images.others();
    let mut attributes: Vec<(&str, Any<'_>)> = attributes; // As short-lived as `others`.
    if let Some(measurements) = measurements {
        attributes.push(("sentry.measurements", measurements.into()));
    }
    if !others.is_empty() {
        attributes.push(("sentry.images", Any::Array(&others)));
    }
    let attributes = builder.attributes(&attributes);
    if let Some(profile) = builder.open_profile() {
        profile.attributes = attributes;
    }
    let mut profiles = builder.finish()?;
    profiles.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_uuid(profiler_id),
        strength: IdentityStrength::Strong,
        start_unix_nano: first,
        end_unix_nano: last,
    });
    Ok(profiles)
}
