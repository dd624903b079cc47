//! Finds Python in a process: the address of its state, and its version.

use std::ops::Range;

use super::debug_offsets;
use super::layout::PythonLayout;
use crate::address_space::Module;
use crate::elf::SymbolNames;
use crate::runtime::target::{TargetMemory, half, word_at};

/// The symbols of Python's state, its evaluation function and its version.
const STATE: &str = "_PyRuntime";
const EVALUATION: &str = "_PyEval_EvalFrameDefault";
const VERSION: &str = "Py_Version";

pub(in crate::runtime) static SYMBOLS: SymbolNames = SymbolNames {
    first: &[STATE],
    // This section exists since Python 3.10.
    section: Some(b".PyRuntime\0"),
    others: || vec![EVALUATION, VERSION],
    text: None,
};

/// The supported versions, by their minor number.
const KNOWN: Range<u8> = 8..15;

/// A Python interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) struct PythonPlace {
    /// The address of `_PyRuntime`.
    pub(in crate::runtime) runtime: u64,
    /// Python's version, as in `PY_VERSION_HEX`.
    pub(in crate::runtime) version: u32,
    pub(super) layout: PythonLayout,
    /// The address range of the evaluation function, if it has a symbol.
    pub(super) evaluation: Option<Range<u64>>,
}

impl PythonPlace {
    /// Finds the interpreter whose state is in this module.
    pub(in crate::runtime) fn find(
        module: &Module,
        path: &str,
        target: &mut dyn TargetMemory,
    ) -> Result<Option<Self>, String> {
        let Some(object) = &module.object else { return Ok(None) };
        let Some(symbol) = object.symbol(STATE) else { return Ok(None) };
        let at = symbol.address.wrapping_add(module.bias);
        let stored = object.symbol(VERSION).and_then(|symbol| half(target, symbol.address.wrapping_add(module.bias)));
        let version = stored.or_else(|| version_of(path)).unwrap_or(0);
        let mut place = Self::at(at, version, target)?;
        place.evaluation = object.symbol(EVALUATION).filter(|symbol| symbol.size > 0).map(|symbol| {
            let start = symbol.address.wrapping_add(module.bias);
            start..start.saturating_add(symbol.size)
        });
        Ok(Some(place))
    }

    /// Creates the interpreter whose `_PyRuntime` is at this address. `version` is `PY_VERSION_HEX` for versions that
    /// do not store it in `_PyRuntime`; 0 if unknown.
    pub(in crate::runtime) fn at(runtime: u64, version: u32, target: &mut dyn TargetMemory) -> Result<Self, String> {
        let mut table = vec![0; debug_offsets::SIZE];
        let has_table = target.read(runtime, &mut table) && word_at(&table, 0) == debug_offsets::COOKIE;
        let version = if has_table { word_at(&table, 8) as u32 } else { version };
        if version == 0 {
            return Err("a Python of an unknown version: its functions are not named".to_owned());
        }
        let (major, minor, level) = (version >> 24, (version >> 16) as u8, version >> 4 & 0xf);
        let refuse = |why: &str| {
            let release = if level == 0xf { "" } else { " before its release" };
            Err(format!(
                "Python {major}.{minor}{release} {why}: its functions are not named (those of 3.8 to 3.14 are)"
            ))
        };
        if major != 3 || !KNOWN.contains(&minor) || level != 0xf {
            return refuse("is not known");
        }
        let layout = if has_table { debug_offsets::layout(minor, &table) } else { PythonLayout::of_minor(minor) };
        let Some(layout) = layout else { return refuse("has an implausible table of field offsets") };
        Ok(Self { runtime, version, layout, evaluation: None })
    }
}

/// Parses the version in a file name such as `libpython3.9.so.1.0` or `python3.8`, as `PY_VERSION_HEX`.
fn version_of(path: &str) -> Option<u32> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let minor = name.split_once("python3.")?.1;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    let minor: u8 = minor[..digits].parse().ok()?;
    Some(3 << 24 | u32::from(minor) << 16 | 0xf0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Recording;

    /// Guarantees: versions are read from the names that distributions and builds use, and from no others.
    #[test]
    fn names() {
        let minor = |path| version_of(path).map(|version| (version >> 24, version >> 16 & 0xff, version & 0xff));
        assert_eq!(minor("/usr/lib/libpython3.9.so.1.0"), Some((3, 9, 0xf0)));
        assert_eq!(minor("/opt/python3.8"), Some((3, 8, 0xf0)));
        assert_eq!(minor("/usr/bin/python3.10d"), Some((3, 10, 0xf0)));
        for path in ["/usr/bin/python3", "/python3.9/bin/uwsgi", "python3.x", "python3.999"] {
            assert_eq!(minor(path), None, "{path}");
        }
    }

    /// Guarantees: an unsupported version is rejected with a message that names it, and so is a pre-release.
    #[test]
    fn refused() {
        let refused = |version| PythonPlace::at(64, version, &mut Recording::default()).unwrap_err();
        assert!(refused(0x030f_00f0).contains("Python 3.15 is not known"));
        assert!(refused(0x0307_00f0).contains("Python 3.7 is not known"));
        assert!(refused(0x030c_00b2).contains("Python 3.12 before its release is not known"));
        assert!(refused(0x030d_00f0).contains("has an implausible table"));
        assert!(refused(0).contains("of an unknown version"));
        assert!(PythonPlace::at(64, 0x030c_01f0, &mut Recording::default()).is_ok());
    }
}
