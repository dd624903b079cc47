//! Finds the table of functions (`runtime.pclntab`) that Go's linker writes.
//!
//! Only its address is kept: the table has megabytes, of which unwinding needs a few words, and reads them from the
//! process.

use super::headers::Headers;
use super::source::Source;

/// Addresses of the file that lead to Go's table of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoTable {
    /// `runtime.pclntab`.
    pub address: u64,
    /// `runtime.firstmoduledata`, where it has a section of its own (since Go 1.26).
    pub module_data: Option<u64>,
}

impl GoTable {
    /// Finds the sections by their headers, which Go's linker writes even where it leaves out symbols. `None` where
    /// there is no such section: such code is unwound by frame pointers only.
    pub(super) fn find<S: Source + ?Sized>(source: &S, headers: &Headers) -> Option<Self> {
        let sections = headers.sections(source)?;
        let address = |name: &[u8]| Some(sections.find(name)?.0);
        Some(Self {
            address: address(b".gopclntab\0").or_else(|| address(b".data.rel.ro.gopclntab\0"))?,
            module_data: address(b".go.module\0").or_else(|| address(b".data.rel.ro.go.module\0")),
        })
    }
}
