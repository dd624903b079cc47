//! Keys of windows.

use std::fmt::Debug;

use profbridge_model::Profile;

/// The key of a window. Keys of one group are adjacent in their order. A store has no shared state, so it is `Send` and
/// `Sync` if its keys are.
///
/// ```
/// use profbridge_windows::WindowKey;
///
/// /// A process in a minute.
/// #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
/// struct Minute {
///     process: u128,
///     minute: u64,
/// }
///
/// impl WindowKey for Minute {
///     fn is_in_group_of(&self, other: &Self) -> bool {
///         self.process == other.process
///     }
///
///     fn first_of_group(&self) -> Self {
///         Self { minute: 0, ..*self }
///     }
/// }
/// ```
pub trait WindowKey: Ord + Clone + Debug {
    /// Whether two keys belong to the same group, such as the keys of one process.
    fn is_in_group_of(&self, other: &Self) -> bool {
        self == other
    }

    /// A key that is not greater than any other key of its group.
    fn first_of_group(&self) -> Self {
        self.clone()
    }

    /// The part of a profile's time range that its samples in this window cover, in nanoseconds since the Unix epoch:
    /// `0..0` if the profile has no time.
    fn range_of(&self, profile: &Profile) -> std::ops::Range<u64> {
        match profile.time_unix_nano {
            0 => 0..0,
            start => start..start.saturating_add(profile.duration_nano),
        }
    }
}
