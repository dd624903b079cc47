//! Goes through the samples of a request, with pauses.

use profbridge_model::{Position, Profile, Profiles, ResourceProfiles, Sample, ScopeProfiles};

/// A profile with what it stands in.
#[derive(Debug, Clone, Copy)]
pub struct ScopedProfile<'a> {
    /// The position of the resource in its batch.
    pub resource_at: u32,
    /// The position of the scope in its resource.
    pub scope_at: u32,
    /// The resource.
    pub resource: &'a ResourceProfiles,
    /// The scope.
    pub scope: &'a ScopeProfiles,
    /// The profile.
    pub profile: &'a Profile,
}

/// What is done with the samples of a request. Called within [`walk()`] by the thread that calls it.
pub trait Visitor<'a> {
    /// Begins a profile, or goes on with one after a pause. Returns whether its samples are to be visited now.
    fn profile(&mut self, place: ScopedProfile<'a>, at: Position) -> bool;

    /// Takes what is left of a sample: what lies behind the timestamps and values of `at`, which says how far this has
    /// come when it pauses. Returns whether that was all of it.
    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool;

    /// Ends a profile.
    fn end_profile(&mut self) {}

    /// Ends a resource.
    fn end_resource(&mut self) {}
}

/// Visits what is left of a request behind `at`, until the visitor wants a pause. Returns whether that was all of it.
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
