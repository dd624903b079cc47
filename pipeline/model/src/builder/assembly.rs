//! Assembles resources, their scopes, their profiles, and their samples.

use std::sync::Arc;

use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, Invalid, Tables};
use crate::profiles::{Profile, Profiles, ResourceProfiles, SampleIds, Samples, ScopeProfiles};

/// A batch without its dictionary. Missing parents are created empty.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    resources: Vec<ResourceProfiles>,
    samples: Samples,
}

impl Assembly {
    /// Creates an empty batch with capacity for this many samples.
    pub(crate) fn with_samples(count: usize) -> Self {
        Self { resources: Vec::new(), samples: Samples::with_capacity(count) }
    }

    /// Starts a resource.
    pub(crate) fn resource(&mut self, resource: ResourceProfiles) {
        self.resources.push(resource);
    }

    /// Starts a scope.
    pub(crate) fn scope(&mut self, scope: ScopeProfiles) {
        if self.resources.is_empty() {
            self.resource(ResourceProfiles::default());
        }
        if let Some(resource) = self.resources.last_mut() {
            resource.scopes.push(scope);
        }
    }

    /// Starts a profile; the following rows are its samples.
    pub(crate) fn profile(&mut self, profile: Profile) {
        if self.resources.last().is_none_or(|resource| resource.scopes.is_empty()) {
            self.scope(ScopeProfiles::default());
        }
        let row = self.rows();
        if let Some(scope) = self.resources.last_mut().and_then(|resource| resource.scopes.last_mut()) {
            scope.profiles.push(Profile { samples: row..row, ..profile });
        }
    }

    /// The current profile, to which new rows belong.
    pub(crate) fn open(&mut self) -> Option<&mut Profile> {
        self.resources.last_mut()?.scopes.last_mut()?.profiles.last_mut()
    }

    /// Appends a sample.
    pub(crate) fn row(&mut self, ids: SampleIds, timestamps: ByteRange, values: ByteRange) {
        if self.open().is_none() {
            self.profile(Profile::default());
        }
        self.samples.push(ids, timestamps, values);
        let end = self.rows();
        if let Some(profile) = self.open() {
            profile.samples.end = end;
        }
    }

    fn rows(&self) -> u32 {
        // Each row has at least one byte in the buffer, which is shorter than 4 GiB.
        u32::try_from(self.samples.len()).unwrap_or(u32::MAX)
    }

    /// Returns the batch. Its parts were already validated in another batch or an arena. Debug builds validate again.
    pub(crate) fn finish_checked(self, tables: Tables) -> Profiles {
        Profiles::from_checked(Arc::new(Dictionary::from_checked(tables)), self.resources, self.samples)
    }

    /// Validates everything and returns the batch.
    pub(crate) fn finish(self, tables: Tables) -> Result<Profiles, Invalid> {
        Profiles::new(Arc::new(Dictionary::new(tables)?), self.resources, self.samples)
    }
}
