//! Chooses the project for telemetry.

use std::sync::Arc;

use profbridge_model::Profiles;
use profbridge_model::envelope::RequestMeta;
use profbridge_wire::sentry::ResourceAttributes;

use crate::Settings;
use crate::destination::Destination;
use crate::destinations::TooMany;

/// Destination of an envelope.
pub(crate) enum Route {
    /// The client's own project and key.
    Own(Arc<Destination>),
    /// The configured DSN at this index.
    Configured(usize),
}

impl Route {
    /// Resolves the destination.
    pub(crate) fn destination(self, settings: &Settings) -> Arc<Destination> {
        match self {
            Self::Own(destination) => destination,
            Self::Configured(position) => Arc::clone(settings.destinations.configured(position)),
        }
    }
}

/// The destination of a client's envelope with these profiles; `None` if neither the client nor the configuration has
/// one.
///
/// # Errors
///
/// If too many other clients' projects are in use.
pub(crate) fn of_client<'a>(
    settings: &Settings,
    meta: &RequestMeta,
    profiles: impl IntoIterator<Item = &'a Profiles>,
) -> Result<Option<Route>, TooMany> {
    match settings.destinations.of_client(meta) {
        Some(own) => own.map(|destination| Some(Route::Own(destination))),
        None => Ok(of_profiles(settings, profiles).map(Route::Configured)),
    }
}

/// Destination of profiles: the first batch with the routing attribute decides. Attributes that only the profiled
/// program vouches for are ignored, so that no program chooses its project.
pub(crate) fn of_profiles<'a>(settings: &Settings, batches: impl IntoIterator<Item = &'a Profiles>) -> Option<usize> {
    project(
        settings,
        batches.into_iter().find_map(|batch| value(settings, &ResourceAttributes::of(batch).without_claims())),
    )
}

/// Destination of a process's telemetry.
pub(crate) fn of_process(settings: &Settings, attributes: &ResourceAttributes<'_>) -> Option<usize> {
    project(settings, value(settings, attributes))
}

/// The routing attribute of a process: its own resource attribute, or one from its environment. A service name is
/// normalized as for the release, see [`ResourceAttributes::service`].
fn value(settings: &Settings, attributes: &ResourceAttributes<'_>) -> Option<String> {
    if settings.routes.is_empty() {
        return None;
    }
    match settings.from_attribute.as_str() {
        "service.name" => attributes.service(),
        key => attributes.text(key),
    }
}

/// Destination for a value of the routing attribute.
fn project(settings: &Settings, value: Option<String>) -> Option<usize> {
    value.and_then(|value| settings.routes.get(&value).copied()).or(settings.default)
}
