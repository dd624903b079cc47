//! What needs no file: the symbols of the running kernel, and the vDSO.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::Unknown;
use crate::symbol_table::{Builder, SymbolTable};

/// `/proc/kallsyms` has some 15 MB with many modules.
const MAX_KALLSYMS: u64 = 256 << 20;
/// The vDSO is two or three pages.
const MAX_VDSO: u64 = 64 << 10;
/// How much of our own memory map is read to find it.
const MAX_MAPS: u64 = 16 << 20;

/// Reads the symbols of the running kernel. Where `kernel.kptr_restrict` or a missing `CAP_SYSLOG` hides the addresses,
/// all of them are 0 (`Documentation/admin-guide/sysctl/kernel.rst`).
pub(crate) fn symbols() -> Result<SymbolTable, Unknown> {
    let file = File::open("/proc/kallsyms").map_err(|_| Unknown::NoFile)?;
    read(BufReader::new(file.take(MAX_KALLSYMS))).map_err(|_| Unknown::NoFile)?.ok_or(Unknown::NoFile)
}

/// Lines of `ADDRESS TYPE NAME` or `ADDRESS TYPE NAME\t[MODULE]`.
fn read(mut input: impl BufRead) -> io::Result<Option<SymbolTable>> {
    // The kernel has no sections here: its own code ends with `_etext`, and a module's last function with the next
    // symbol.
    let mut builder = Builder::new(vec![(1, u64::MAX)], MAX_KALLSYMS as usize);
    let mut line = Vec::new();
    let mut found = false;
    while {
        line.clear();
        input.read_until(b'\n', &mut line)? > 0
    } {
        let text = line.trim_ascii_end();
        let mut parts = text.splitn(3, |&byte| byte == b' ');
        let (Some(address), Some(&[kind]), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let address = std::str::from_utf8(address).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let Some(address) = address.filter(|&address| address > 0) else { continue };
        let name = name.split(|&byte| byte == b'\t').next().unwrap_or_default();
        // Data ends the code before it and is no name for an address: it is taken as a label.
        let code = matches!(kind, b't' | b'T' | b'w' | b'W');
        found |= code;
        if builder.add(address, 0, name, code, kind.is_ascii_uppercase()).is_err() {
            break;
        }
    }
    Ok(found.then(|| builder.build()))
}

/// The vDSO of this process, which is every 64-bit process's.
#[cfg(target_os = "linux")]
pub(crate) fn vdso() -> Result<Arc<[u8]>, Unknown> {
    let maps = File::open("/proc/self/maps").map_err(|_| Unknown::NoFile)?;
    for line in BufReader::new(maps.take(MAX_MAPS)).lines() {
        let line = line.map_err(|_| Unknown::NoFile)?;
        if !line.ends_with("[vdso]") {
            continue;
        }
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| Unknown::NoFile);
        let (start, end) = range.ok_or(Unknown::NoFile)?;
        let (start, end) = (number(start)?, number(end)?);
        if end.saturating_sub(start) > MAX_VDSO {
            return Err(Unknown::TooLarge);
        }
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        let memory = File::open("/proc/self/mem").map_err(|_| Unknown::NoFile)?;
        memory.read_exact_at(&mut bytes, start).map_err(|_| Unknown::NoFile)?;
        return Ok(bytes.into());
    }
    Err(Unknown::NoFile)
}

/// Other systems have none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn vdso() -> Result<Arc<[u8]>, Unknown> {
    Err(Unknown::NoFile)
}

#[cfg(test)]
mod tests;
