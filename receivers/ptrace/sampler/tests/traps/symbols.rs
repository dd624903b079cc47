//! Names functions by the symbols of the files that the sampler passed on.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
};

use object::{Object, ObjectSymbol, SymbolKind};

/// The functions of one file, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    by_start: BTreeMap<u64, (u64, String)>,
}

impl Symbols {
    /// Reads both symbol tables of a file.
    pub(crate) fn read(file: &mut File) -> Self {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let Ok(object) = object::File::parse(&*bytes) else { return Self::default() };
        let mut by_start = BTreeMap::new();
        for symbol in object.dynamic_symbols().chain(object.symbols()) {
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                by_start.insert(symbol.address(), (symbol.size(), symbol.name().unwrap_or_default().to_owned()));
            }
        }
        Self { by_start }
    }

    /// The function at an address; start-up code has symbols without a size.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let (start, (size, name)) = self.by_start.range(..=address).next_back()?;
        (address < start + size || (*size == 0 && address < start + 64)).then_some(name)
    }
}
