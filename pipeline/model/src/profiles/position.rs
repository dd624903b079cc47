//! How far a batch was processed by code that works in steps.

/// The next sample of a batch, by position, and how much of it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The position of the resource in the batch.
    pub resource: usize,
    /// The position of the scope in the resource.
    pub scope: usize,
    /// The position of the profile in the scope.
    pub profile: usize,
    /// The position of the sample in the profile.
    pub sample: u32,
    /// How many timestamps of the sample are done.
    pub timestamps: usize,
    /// How many bytes of the sample's values belong to them.
    pub values: usize,
}

impl Position {
    /// Whether the profile is not started yet.
    pub fn begins_profile(self) -> bool {
        (self.sample, self.timestamps) == (0, 0)
    }

    /// The beginning of the next sample.
    #[must_use]
    pub fn next_sample(self) -> Self {
        Self { sample: self.sample + 1, timestamps: 0, values: 0, ..self }
    }

    /// The beginning of the next profile.
    #[must_use]
    pub fn next_profile(self) -> Self {
        Self { resource: self.resource, scope: self.scope, profile: self.profile + 1, ..Self::default() }
    }

    /// The beginning of the next scope.
    #[must_use]
    pub fn next_scope(self) -> Self {
        Self { resource: self.resource, scope: self.scope + 1, ..Self::default() }
    }

    /// The beginning of the next resource.
    #[must_use]
    pub fn next_resource(self) -> Self {
        Self { resource: self.resource + 1, ..Self::default() }
    }
}
