//! The limits of a window store.

use profbridge_model::arena;

/// The limits of a [`Store`](crate::Store). A window is closed early when one is reached; no data is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// How long a window is open, in nanoseconds.
    pub open_for: u64,
    /// The number of observations at which a window is closed.
    pub max_observations: u64,
    /// The size in bytes at which a window is closed, not counting its arena.
    pub max_window_bytes: u64,
    /// The maximum number of groups of keys with an open window. Twice as many windows may be open. Beyond that, the
    /// oldest is closed.
    pub max_groups: usize,
    /// The maximum size of all windows and arenas in bytes. Beyond it, the windows that free the most memory are
    /// closed.
    pub max_bytes: u64,
    /// How long the windows of a sender share an arena, in nanoseconds. With 0, each window has its own arena.
    pub max_arena_age: u64,
    /// Size of an arena in bytes above which no further window shares it. At twice this size, a window is closed.
    pub max_arena_bytes: u64,
    /// Hard limits of an arena.
    pub arena: arena::ArenaLimits,
}
