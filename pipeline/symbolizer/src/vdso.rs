//! Reads the vDSO from memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::Unknown;

/// The maximum size of the vDSO in bytes. It has two or three pages.
const MAX_VDSO: u64 = 64 << 10;
/// The number of bytes of `/proc/self/maps` that are read to find the vDSO.
const MAX_MAPS: u64 = 16 << 20;

/// The vDSO of this process, which is the same in every 64-bit process.
pub(crate) fn read() -> Result<Arc<[u8]>, Unknown> {
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
