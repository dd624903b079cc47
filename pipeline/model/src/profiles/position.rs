//! How far a batch was processed by code that works in steps.

/// The position of the next sample of a batch, and how much of that sample was processed.
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
    /// The number of processed timestamps of the sample.
    pub timestamps: usize,
    /// The number of bytes of the sample's values that belong to the processed timestamps.
    pub values: usize,
}

impl Position {
    /// Whether no sample of the profile was processed yet.
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
