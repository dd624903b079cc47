//! Visits the samples of a request, with pauses.

use profbridge_model::{Position, Profile, Profiles, ResourceProfiles, Sample, ScopeProfiles};

/// A profile with its scope and resource.
#[derive(Debug, Clone, Copy)]
pub struct ScopedProfile<'a> {
    /// Index of the resource in its batch.
    pub resource_at: u32,
    /// Index of the scope in its resource.
    pub scope_at: u32,
    /// The resource.
    pub resource: &'a ResourceProfiles,
    /// The scope.
    pub scope: &'a ScopeProfiles,
    /// The profile.
    pub profile: &'a Profile,
}

/// Receives the samples of a request. Called within [`walk()`] by the calling thread.
pub trait Visitor<'a> {
    /// Starts a profile, or continues one after a pause. Returns whether to visit the profile's samples now.
    fn profile(&mut self, place: ScopedProfile<'a>, at: Position) -> bool;

    /// Visits the rest of a sample, after the timestamps and values that `at` counts. Advances `at` before a pause.
    /// Returns whether the sample is finished.
    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool;

    /// Ends a profile.
    fn end_profile(&mut self) {}

    /// Ends a resource.
    fn end_resource(&mut self) {}
}

/// Visits the rest of a request from `at` on, until the visitor pauses. Returns whether the request is finished.
pub fn walk<'a>(profiles: &'a Profiles, at: &mut Position, visitor: &mut impl Visitor<'a>) -> bool {
    while let Some(resource) = profiles.resources().get(at.resource) {
        while let Some(scope) = resource.scopes.get(at.scope) {
            while let Some(profile) = scope.profiles.get(at.profile) {
                let (resource_at, scope_at) = (at.resource as u32, at.scope as u32);
                let place = ScopedProfile { resource_at, scope_at, resource, scope, profile };
                if !visitor.profile(place, *at) {
                    return false;
                }
                let rows = profile.samples.clone();
                while let Some(row) = rows.start.checked_add(at.sample).filter(|row| rows.contains(row)) {
                    if !visitor.sample(place, &profiles.sample(row), at) {
                        return false;
                    }
                    *at = at.next_sample();
                }
                visitor.end_profile();
                *at = at.next_profile();
            }
            *at = at.next_scope();
        }
        *at = at.next_resource();
        visitor.end_resource();
    }
    true
}
