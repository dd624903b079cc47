//! Names for addresses of native code: ELF symbols, DWARF with inlined functions and lines, perf maps.
