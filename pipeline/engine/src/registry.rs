//! The components that a binary is made of: plain tables of function pointers, no macros, no global state.
//!
//! A factory's `create` reads its section of the configuration and checks it. It touches neither network nor disk, so
//! `profbridge validate` creates everything and throws it away; the world is first touched when a component starts.

use crate::component::{Processor, Receiver};
use crate::config::{Problems, Section};
use crate::delivery::DynExporter;

/// Makes receivers of one type.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverFactory {
    /// The type, as in `receivers: {TYPE: ...}`.
    pub kind: &'static str,
    /// What it does, in one line, for `profbridge components`.
    pub summary: &'static str,
    /// Checks a section and makes a receiver of it.
    pub create: fn(&Section) -> Result<Box<dyn Receiver>, Problems>,
}

/// Makes processors of one type.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorFactory {
    /// The type, as in `processors: {TYPE: ...}`.
    pub kind: &'static str,
    /// What it does, in one line, for `profbridge components`.
    pub summary: &'static str,
    /// Its place in a pipeline: processors must stand in ascending order of rank, or one would undo the other.
    pub rank: Rank,
    /// Checks a section and makes a processor of it.
    pub create: fn(&Section) -> Result<Box<dyn Processor>, Problems>,
}

/// The place of a processor in a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Drops or merges what came twice.
    Dedup,
    /// Names native frames. Behind [`Rank::Dedup`]: what is sent again may be named better by then, and would no longer
    /// look like a resend. Before [`Rank::Chunk`], whose windows store each name once.
    Symbolize,
    /// Cuts by process, time and size.
    Chunk,
}

/// Makes exporters of one type.
#[derive(Debug, Clone, Copy)]
pub struct ExporterFactory {
    /// The type, as in `exporters: {TYPE: ...}`.
    pub kind: &'static str,
    /// What it does, in one line, for `profbridge components`.
    pub summary: &'static str,
    /// Whether it takes only batches that `chunk` has cut, given its section: `validate` then asks for that processor.
    pub needs_chunks: fn(&Section) -> bool,
    /// Checks a section and makes an exporter of it, with its queue.
    pub create: fn(&Section) -> Result<Box<dyn DynExporter>, Problems>,
}

/// All components of a binary.
#[derive(Debug, Clone, Copy)]
pub struct Registry {
    /// The receivers.
    pub receivers: &'static [ReceiverFactory],
    /// The processors.
    pub processors: &'static [ProcessorFactory],
    /// The exporters.
    pub exporters: &'static [ExporterFactory],
}
