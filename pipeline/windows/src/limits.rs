//! The limits of a window store.

use profbridge_model::arena;

/// The limits of a [`Store`](crate::Store). At each of them a window is closed early; nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// How long a window is open, in nanoseconds.
    pub open_for: u64,
    /// A window with this many observations is closed.
    pub max_observations: u64,
    /// A window of this size is closed, not counting its arena. In bytes.
    pub max_window_bytes: u64,
    /// How many groups of keys may have an open window. Twice as many windows may be open. Beyond that, the oldest is
    /// closed.
    pub max_groups: usize,
    /// Size of all windows and arenas in bytes. Beyond it, the windows that free the most are closed.
    pub max_bytes: u64,
    /// How long the windows of a sender share an arena, in nanoseconds. 0: each window has its own.
    pub max_arena_age: u64,
    /// Size of an arena in bytes above which no further window shares it. At twice this size, a window is closed.
    pub max_arena_bytes: u64,
    /// Hard limits of an arena.
    pub arena: arena::Limits,
}
