//! The name of a process.

use std::fmt::{self, Display, Formatter};

use profbridge_model::{AttributeSetId, Profiles, Resource, Value};

/// The preferred name of processes; the other one is the fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CalledBy {
    /// The service's name.
    #[default]
    Service,
    /// The executable's name: a process that executes several programs one after the other keeps one service name.
    Executable,
}

/// A process as named in profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProcess<'a> {
    /// The name of the process's service or executable; empty if neither is known.
    pub name: &'a str,
    /// The process id.
    pub pid: Option<u32>,
}

impl<'a> NamedProcess<'a> {
    /// The process of a sample: from the sample's attributes, which the eBPF profiler writes, or else from those of its
    /// resource.
    pub fn of(
        batch: &'a Profiles,
        resource: &'a Resource,
        attributes: Option<AttributeSetId>,
        called_by: CalledBy,
    ) -> Self {
        let dictionary = batch.dictionary();
        let find = |key: &str| dictionary.find(attributes, key).or_else(|| batch.find(&resource.attributes, key));
        let text = |key: &str| match find(key) {
            Some(Value::String(text)) => Some(dictionary.string(*text)).filter(|text| !text.is_empty()),
            _ => None,
        };
        let path = || text("process.executable.path").and_then(|path| path.rsplit('/').next());
        let executable = || text("process.executable.name").or_else(path);
        let service = || text("service.name");
        let name = match called_by {
            CalledBy::Service => service().or_else(executable),
            CalledBy::Executable => executable().or_else(service),
        };
        let pid = match find("process.pid") {
            Some(Value::Int(pid)) => u32::try_from(*pid).ok(),
            _ => None,
        };
        Self { name: name.unwrap_or_default(), pid }
    }
}

/// The main executable of a resource's process: its path, or else its name.
pub(crate) fn main_executable<'a>(batch: &'a Profiles, resource: &'a Resource) -> Option<&'a str> {
    let text = |key| match batch.find(&resource.attributes, key) {
        Some(Value::String(text)) => Some(batch.dictionary().string(*text)),
        _ => None,
    };
    text("process.executable.path").or_else(|| text("process.executable.name"))
}

impl Display for NamedProcess<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.name, self.pid) {
            ("", Some(pid)) => write!(f, "pid {pid}"),
            ("", None) => Ok(()),
            (name, Some(pid)) => write!(f, "{name} (pid {pid})"),
            (name, None) => f.write_str(name),
        }
    }
}
