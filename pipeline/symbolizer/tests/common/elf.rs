//! Handmade ELF files, such as no compiler produces.
#![allow(dead_code, reason = "each test uses a part of it")]

/// The address range of the code in a handmade file.
pub(crate) const CODE: (u64, u64) = (0x1000, 0x100_0000);

/// A section of a handmade file.
#[derive(Debug, Clone)]
pub(crate) struct ElfSection {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) data: Vec<u8>,
    /// The size in the header, if it differs from the data's length.
    pub(crate) size: Option<u64>,
    /// The offset in the header, if it differs from the data's position.
    pub(crate) offset: Option<u64>,
    pub(crate) link: u32,
}

impl ElfSection {
    /// A section with debug information.
    pub(crate) fn debug(name: &'static str, data: Vec<u8>) -> Self {
        Self { name, kind: 1, flags: 0, address: 0, data, size: None, offset: None, link: 0 }
    }

    /// The section for code, without content.
    pub(crate) fn code() -> Self {
        let size = Some(CODE.1 - CODE.0);
        Self { kind: 8, flags: 6, address: CODE.0, size, ..Self::debug(".text", Vec::new()) }
    }

    /// A symbol table whose strings are in section `link`.
    pub(crate) fn symbols(symbols: &[(u32, u64, u64)], link: u32) -> Self {
        let mut data = Vec::new();
        for &(name, address, size) in symbols {
            data.extend(name.to_le_bytes());
            // A global function in the first section.
            data.extend([0x12, 0, 1, 0]);
            data.extend(address.to_le_bytes());
            data.extend(size.to_le_bytes());
        }
        Self { kind: 2, link, ..Self::debug(".symtab", data) }
    }

    /// A string table.
    pub(crate) fn strings(data: Vec<u8>) -> Self {
        Self { kind: 3, ..Self::debug(".strtab", data) }
    }
}

/// Builds a file from sections. The first one gets number 1.
pub(crate) fn file(parts: &[ElfSection]) -> Vec<u8> {
    let mut names = vec![0];
    let mut body: Vec<u8> = Vec::new();
    let mut headers = vec![0; 64];
    let header = |name: u32, part: &ElfSection, offset: u64, size: u64| {
        let mut header = Vec::new();
        header.extend(name.to_le_bytes());
        header.extend(part.kind.to_le_bytes());
        header.extend(part.flags.to_le_bytes());
        header.extend(part.address.to_le_bytes());
        header.extend(part.offset.unwrap_or(offset).to_le_bytes());
        header.extend(part.size.unwrap_or(size).to_le_bytes());
        header.extend(part.link.to_le_bytes());
        header.resize(64, 0);
        header
    };
    for part in parts {
        headers.extend(header(names.len() as u32, part, 64 + body.len() as u64, part.data.len() as u64));
        names.extend(part.name.as_bytes());
        names.push(0);
        body.extend(&part.data);
    }
    let name = names.len() as u32;
    names.extend(b".shstrtab\0");
    let names = ElfSection::strings(names);
    headers.extend(header(name, &names, 64 + body.len() as u64, names.data.len() as u64));
    body.extend(&names.data);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(3_u16.to_le_bytes());
    file.extend(62_u16.to_le_bytes());
    file.resize(40, 0);
    file.extend((64 + body.len() as u64).to_le_bytes());
    file.resize(58, 0);
    file.extend(64_u16.to_le_bytes());
    file.extend((parts.len() as u16 + 2).to_le_bytes());
    file.extend((parts.len() as u16 + 1).to_le_bytes());
    file.extend(body);
    file.extend(headers);
    file
}

/// Encodes an integer as LEB128.
pub(crate) fn uleb(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

/// An abbreviation: code, tag, whether it has children, and pairs of attributes and forms.
pub(crate) fn abbreviation(code: u64, tag: u64, children: bool, attributes: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = uleb(code);
    bytes.extend(uleb(tag));
    bytes.push(u8::from(children));
    for &(name, form) in attributes.iter().chain([&(0, 0)]) {
        bytes.extend(uleb(name));
        bytes.extend(uleb(form));
    }
    bytes
}

/// A unit of DWARF 5 for 64-bit addresses.
pub(crate) fn unit(abbreviations: u32, entries: &[u8]) -> Vec<u8> {
    let mut bytes = (8 + entries.len() as u32).to_le_bytes().to_vec();
    bytes.extend(5_u16.to_le_bytes());
    bytes.extend([1, 8]);
    bytes.extend(abbreviations.to_le_bytes());
    bytes.extend(entries);
    bytes
}
