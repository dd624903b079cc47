//! What a store of windows may hold.

use profbridge_model::arena;

/// The bounds of a [`Store`](crate::Store). At each of them a window is closed early; nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For how long a window is open, in nanoseconds.
    pub open_for: u64,
    /// A window with so many observations is closed.
    pub max_observations: u64,
    /// A window that takes so much memory, its arena aside, is closed. In bytes.
    pub max_window_bytes: u64,
    /// So many groups of keys may have an open window, and twice as many windows may be open; then the oldest is
    /// closed.
    pub max_groups: usize,
    /// All windows and arenas together, in bytes; then those windows are closed that free the most.
    pub max_bytes: u64,
    /// For how long the windows of a sender share an arena, in nanoseconds. 0: each window has its own.
    pub max_arena_age: u64,
    /// How large an arena may be, in bytes, when another window is to share it. At twice that a window is closed.
    pub max_arena_bytes: u64,
    /// What an arena may become at all.
    pub arena: arena::Limits,
}
