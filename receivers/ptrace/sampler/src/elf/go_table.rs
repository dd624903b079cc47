//! Finds the function table (`runtime.pclntab`) that Go's linker writes.
//!
//! Only its address is kept: the table has megabytes, and unwinding needs a few words, which it reads from the process.

use super::headers::Headers;
use super::source::ByteSource;

/// Addresses in the file for finding Go's function table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoTable {
    /// The address of `runtime.pclntab`.
    pub address: u64,
    /// The address of `runtime.firstmoduledata`, if it has a section of its own (since Go 1.26).
    pub module_data: Option<u64>,
}

impl GoTable {
    /// Finds the sections by their headers, which Go's linker writes even if it omits symbols. `None` if there is no
    /// such section: such code is unwound by frame pointers only.
    pub(super) fn find<S: ByteSource + ?Sized>(source: &S, headers: &Headers) -> Option<Self> {
        let sections = headers.sections(source)?;
        let address = |name: &[u8]| Some(sections.find(name)?.0);
        Some(Self {
            address: address(b".gopclntab\0").or_else(|| address(b".data.rel.ro.gopclntab\0"))?,
            module_data: address(b".go.module\0").or_else(|| address(b".data.rel.ro.go.module\0")),
        })
    }
}
