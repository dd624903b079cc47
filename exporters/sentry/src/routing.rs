//! Which project something goes to.

use std::sync::Arc;

use profbridge_model::Profiles;
use profbridge_model::envelope::RequestMeta;
use profbridge_wire::sentry::Told;

use crate::Settings;
use crate::destination::Destination;
use crate::destinations::TooMany;

/// Where an envelope goes.
pub(crate) enum Place {
    /// To the project and under the key of its client.
    Own(Arc<Destination>),
    /// To a DSN that is configured, by its position.
    Configured(usize),
}

impl Place {
    /// Its destination.
    pub(crate) fn destination(self, settings: &Settings) -> Arc<Destination> {
        match self {
            Self::Own(destination) => destination,
            Self::Configured(position) => Arc::clone(settings.destinations.configured(position)),
        }
    }
}

/// Where a client's envelope goes, of which these profiles were read. `None` where that is nowhere.
///
/// # Errors
///
/// So many other clients are in use that this one cannot be remembered.
pub(crate) fn of_client<'a>(
    settings: &Settings,
    meta: &RequestMeta,
    profiles: impl IntoIterator<Item = &'a Profiles>,
) -> Result<Option<Place>, TooMany> {
    match settings.destinations.of_client(meta) {
        Some(own) => own.map(|destination| Some(Place::Own(destination))),
        None => Ok(of_profiles(settings, profiles).map(Place::Configured)),
    }
}

/// Where profiles go: the first batch that says the attribute decides. What only the profiled program itself vouches
/// for does not, so that no program chooses a project.
pub(crate) fn of_profiles<'a>(settings: &Settings, batches: impl IntoIterator<Item = &'a Profiles>) -> Option<usize> {
    project(settings, batches.into_iter().find_map(|batch| value(settings, &Told::of(batch).without_claims())))
}

/// Where what a process sends goes.
pub(crate) fn of_process(settings: &Settings, told: &Told<'_>) -> Option<usize> {
    project(settings, value(settings, told))
}

/// What a process says of the attribute that decides: itself, else by its environment. A service is called in the same
/// way as in the release, see [`Told::service`].
fn value(settings: &Settings, told: &Told<'_>) -> Option<String> {
    if settings.routes.is_empty() {
        return None;
    }
    match settings.from_attribute.as_str() {
        "service.name" => told.service(),
        key => told.text(key),
    }
}

/// Where the processes go whose attribute has a value.
fn project(settings: &Settings, value: Option<String>) -> Option<usize> {
    value.and_then(|value| settings.routes.get(&value).copied()).or(settings.default)
}
