//! `mapping[0]` of 1.3 "will be the main binary" (`pprofextended.proto`): the program that the profile is of.

use profbridge_model::{Attribute, ByteRange, Resource, StringId, Value};

use super::super::super::error::Result;
use super::super::Decoder;
use super::tables::Parts;

const PATH: &str = "process.executable.path";
const NAME: &str = "process.executable.name";

impl<'a> Decoder<'a> {
    /// The file of a profile's first mapping. None where the profile has attributes of processes: then it is of
    /// several, or says itself which (the eBPF profiler has what it meets first as its first mapping).
    pub(super) fn main_executable(&self, parts: &Parts) -> Option<StringId> {
        let first = parts.mappings.get(0)?;
        let of_process = |attribute: &Attribute| self.bytes_of(attribute.key).starts_with(b"process.");
        if parts.attributes.range().any(|id| of_process(&self.tables.attributes[id])) {
            return None;
        }
        let file = self.tables.mappings[first as usize].filename?;
        // No file, such as `[vdso]` or `//anon`.
        let name = self.bytes_of(Some(file));
        (!name.starts_with(b"[") && !name.starts_with(b"//")).then_some(file)
    }

    /// Gives a resource its executable where it has none and its profiles agree.
    pub(in super::super) fn give_executable(&mut self, resource: &mut Resource) -> Result<()> {
        let executables = std::mem::take(&mut self.older.executables);
        let Some(&Some(file)) = executables.first() else { return Ok(()) };
        let path = self.bytes_of(Some(file));
        let others = |other: &Option<StringId>| other.is_some() && self.bytes_of(*other) == path;
        let has = |attribute: &Attribute| self.bytes_of(attribute.key).starts_with(b"process.executable.");
        if !executables.iter().all(others) || resource.attributes.iter().any(has) {
            return Ok(());
        }
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let span = self.tables.strings[file.index()];
        let name = match slash {
            None => Some(file),
            Some(slash) => {
                let start = slash as u32 + 1;
                self.inline_string(ByteRange { start: span.start + start, len: span.len - start })?
            }
        };
        for (key, value) in [(PATH, slash.is_some().then_some(file)), (NAME, name)] {
            if value.is_some() {
                let key = self.text(key)?;
                self.budget.charge::<Attribute>(1)?;
                resource.attributes.push(Attribute { key, value: Value::String(value), unit: None });
            }
        }
        Ok(())
    }
}
