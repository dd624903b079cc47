//! The process metadata of a profile.

use profbridge_model::Builder;
use profbridge_model::builder::Any;
use profbridge_model::whole_chunk::PROFILER_ID;
use uuid::Uuid;

/// The process of a profile.
pub(in crate::sentry) struct OriginalProcess<'a> {
    pub(in crate::sentry) profiler_id: Uuid,
    pub(in crate::sentry) platform: &'a str,
    /// The release and the environment; empty if unknown.
    pub(in crate::sentry) release: &'a str,
    pub(in crate::sentry) environment: &'a str,
}

impl OriginalProcess<'_> {
    /// Starts the resource, with further attributes.
    pub(in crate::sentry) fn write(&self, builder: &mut Builder, more: &[(&str, Any<'_>)]) {
        let mut attributes: Vec<(&str, Any<'_>)> = Vec::new();
        match self.release.rsplit_once('@') {
            Some((name, version)) if !name.is_empty() && !version.is_empty() => {
                attributes.push(("service.name", name.into()));
                attributes.push(("service.version", version.into()));
            }
            _ if self.release.is_empty() => {}
            _ => attributes.push(("sentry.release", self.release.into())),
        }
        if !self.environment.is_empty() {
            attributes.push(("deployment.environment.name", self.environment.into()));
        }
        let profiler_id = self.profiler_id.simple().to_string();
        attributes.push(("sentry.platform", self.platform.into()));
        attributes.push((PROFILER_ID, profiler_id.as_str().into()));
        attributes.extend_from_slice(more);
        builder.resource(&attributes);
    }
}
