//! What tells windows apart.

use std::fmt::Debug;

use profbridge_model::Profile;

/// The key of a window. Keys of one group stand side by side in order. A store shares nothing, so it is `Send` and
/// `Sync` where its keys are.
///
/// ```
/// use profbridge_windows::Key;
///
/// /// A process in a minute.
/// #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
/// struct Minute {
///     process: u128,
///     minute: u64,
/// }
///
/// impl Key for Minute {
///     fn is_in_group_of(&self, other: &Self) -> bool {
///         self.process == other.process
///     }
///
///     fn first_of_group(&self) -> Self {
///         Self { minute: 0, ..*self }
///     }
/// }
/// ```
pub trait Key: Ord + Clone + Debug {
    /// Whether two keys are of one group, such as those of one process.
    fn is_in_group_of(&self, other: &Self) -> bool {
        self == other
    }

    /// A key that comes before no other of its group.
    fn first_of_group(&self) -> Self {
        self.clone()
    }

    /// The part of a profile's range that its samples in this window are of, in nanoseconds since the Unix epoch:
    /// `0..0` where the profile does not say when it was.
    fn range_of(&self, profile: &Profile) -> std::ops::Range<u64> {
        match profile.time_unix_nano {
            0 => 0..0,
            start => start..start.saturating_add(profile.duration_nano),
        }
    }
}
