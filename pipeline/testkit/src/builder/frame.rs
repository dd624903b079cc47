//! A frame of a builder's stack, and its text form.

use opentelemetry_proto::tonic::profiles::v1development::{Line, Mapping};

use crate::dictionary::Dictionary;

/// Values of `profile.frame.type` (semantic-conventions v1.44, registry attribute `profile.frame.type`).
pub const FRAME_TYPES: [&str; 13] =
    ["beam", "cpython", "dotnet", "go", "jvm", "kernel", "luajit", "native", "perl", "php", "ruby", "rust", "v8js"];

/// One location: an address in a mapping, a function in a file, or both, with inlined functions.
///
/// The text form is `[TYPE!][NAME][@FILE[:LINE[:COLUMN]]]`, or `TYPE!FILE+0xADDRESS` for an address without symbol.
/// TYPE is one of [`FRAME_TYPES`]; other text before a `!` belongs to the name.
///
/// ```
/// use profbridge_testkit::Frame;
/// let symbolised = Frame::from("ruby!Cart#total@/app/models/cart.rb:17");
/// let unnamed = Frame::from("native!libc.so.6+0x91000");
/// let inlined = Frame::inlined(["core::iter::next@iter.rs:9", "app::sum@sum.rs:4"]).mapping("app", 0x1000);
/// # let _ = (symbolised, unnamed, inlined);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    frame_type: Option<String>,
    lines: Vec<NamedLine>,
    mapping: Option<(String, Option<String>)>,
    address: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NamedLine {
    name: String,
    filename: String,
    line: i64,
    column: i64,
}

impl From<&str> for Frame {
    fn from(text: &str) -> Self {
        let (frame_type, rest) = match text.split_once('!') {
            Some((prefix, rest)) if FRAME_TYPES.contains(&prefix) => (Some(prefix.to_owned()), rest),
            _ => (None, text),
        };
        let address = rest.rsplit_once("+0x").and_then(|(file, hex)| Some((file, u64::from_str_radix(hex, 16).ok()?)));
        match address {
            Some((file, address)) => Self { frame_type, ..Self::default() }.mapping(file, address),
            None => Self { frame_type, lines: vec![NamedLine::from(rest)], ..Self::default() },
        }
    }
}

impl From<&String> for Frame {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&Frame> for Frame {
    fn from(frame: &Frame) -> Self {
        frame.clone()
    }
}

impl From<&str> for NamedLine {
    fn from(text: &str) -> Self {
        let Some((name, place)) = text.rsplit_once('@') else {
            return Self { name: text.to_owned(), ..Self::default() };
        };
        let (rest, last) = trailing_number(place);
        let (filename, before) = trailing_number(rest);
        let (line, column) = match (before, last) {
            (Some(line), Some(column)) => (line, column),
            (None, Some(line)) => (line, 0),
            _ => (0, 0),
        };
        Self { name: name.to_owned(), filename: filename.to_owned(), line, column }
    }
}

/// Splits `text:12` into `text` and 12.
fn trailing_number(text: &str) -> (&str, Option<i64>) {
    match text.rsplit_once(':').and_then(|(rest, number)| Some((rest, number.parse().ok()?))) {
        Some((rest, number)) => (rest, Some(number)),
        None => (text, None),
    }
}

impl Frame {
    /// A location with several lines in their text form, innermost function first.
    pub fn inlined<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        Self { lines: lines.into_iter().map(NamedLine::from).collect(), ..Self::default() }
    }

    /// A function in a file, without parsing the text form: for names with `@`, `!` or `:`. `name` or `filename` may be
    /// empty, and `line` may be 0.
    pub fn exact(name: &str, filename: &str, line: i64) -> Self {
        Self::default().called_by(name, filename, line)
    }

    /// Adds the function into which the previous functions of the location are inlined, without parsing the text form.
    pub fn called_by(mut self, name: &str, filename: &str, line: i64) -> Self {
        self.lines.push(NamedLine { name: name.to_owned(), filename: filename.to_owned(), line, column: 0 });
        self
    }

    /// Sets `profile.frame.type`.
    pub fn kind(mut self, frame_type: &str) -> Self {
        self.frame_type = Some(frame_type.to_owned());
        self
    }

    /// Places the frame at an ELF address of a file. Without [`Frame::build_id`] the build ids are derived from the
    /// file name.
    pub fn mapping(mut self, file: &str, address: u64) -> Self {
        self.mapping = Some((file.to_owned(), None));
        self.address = address;
        self
    }

    /// Sets the GNU build id (hex) of the frame's mapping. With an empty one, the mapping has no build id.
    pub fn build_id(mut self, hex: &str) -> Self {
        if let Some((_, id)) = &mut self.mapping {
            *id = Some(hex.to_owned());
        }
        self
    }

    /// Sets the address without a mapping, e.g. a bytecode index.
    pub fn address(mut self, address: u64) -> Self {
        self.address = address;
        self
    }

    /// The index of this frame's location in `dictionary`.
    pub fn intern(&self, dictionary: &mut Dictionary) -> i32 {
        let mapping = match &self.mapping {
            Some((file, id)) => intern_mapping(dictionary, file, id.as_deref(), self.frame_type.as_deref()),
            None => 0,
        };
        let lines = self
            .lines
            .iter()
            .map(|line| Line {
                function_index: dictionary.function(&line.name, &line.filename),
                line: line.line,
                column: line.column,
            })
            .collect();
        let attributes =
            self.frame_type.iter().map(|kind| dictionary.attribute("profile.frame.type", kind.as_str())).collect();
        dictionary.location(mapping, self.address, lines, attributes)
    }
}

/// The mapping of `file`: 16 MiB from ELF address 0x1000, or an empty range at 0 for the kernel, as the eBPF profiler
/// writes them.
fn intern_mapping(dictionary: &mut Dictionary, file: &str, build_id: Option<&str>, frame_type: Option<&str>) -> i32 {
    let (memory_start, memory_limit) = if frame_type == Some("kernel") { (0, 0) } else { (0x1000, 0x100_1000) };
    let derived = derived_id(file, 20);
    let gnu = build_id.unwrap_or(&derived);
    let mut attribute_indices = Vec::new();
    if !gnu.is_empty() {
        attribute_indices.push(dictionary.attribute("process.executable.build_id.gnu", gnu));
    }
    attribute_indices.push(dictionary.attribute("process.executable.build_id.htlhash", derived_id(file, 16)));
    let filename_strindex = dictionary.string(file);
    dictionary.mapping(Mapping {
        memory_start,
        memory_limit,
        file_offset: memory_start,
        filename_strindex,
        attribute_indices,
    })
}

/// Hexadecimal digits for `bytes` bytes, derived from `file` alone (FNV-1a, chained).
fn derived_id(file: &str, bytes: usize) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ (bytes as u64);
    let mut hex = String::with_capacity(bytes * 2);
    for position in 0..bytes {
        for byte in file.bytes().chain([position as u8]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hex.push_str(&format!("{:02x}", (state >> 32) as u8));
    }
    hex
}
