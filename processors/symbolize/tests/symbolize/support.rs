//! Test helpers: profiles, and a fake source of names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use profbridge_engine::component::{Now, Outbox, Processor};
use profbridge_engine::config::Section;
use profbridge_model::dictionary::{Location, Mapping};
use profbridge_model::{Builder, Profiles};
use profbridge_processor_symbolize::{CodeAddress, Config, FileId, MappedFile, NameSource, Settings, Symbolize};
use profbridge_symbolizer::{SymbolAnswer, SymbolFrame, Symbols, Unknown};
pub(crate) use profbridge_testkit::{at, note, process, sent_profiles as batches};

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// A GNU build id.
pub(crate) const ID: &str = "0011223344556677";

/// A source of names that the test defines.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Known>>);

#[derive(Default)]
pub(crate) struct Known {
    pub(crate) answers: HashMap<(FileId, CodeAddress), SymbolAnswer>,
    /// The answer for all other addresses; [`SymbolAnswer::Pending`] if none.
    pub(crate) other: Option<SymbolAnswer>,
    /// The queries, in order.
    pub(crate) asked: Vec<(MappedFile, Vec<CodeAddress>)>,
}

impl Fake {
    pub(crate) fn set(&self, id: &str, address: u64, answer: SymbolAnswer) {
        self.0.lock().unwrap().answers.insert((FileId::Gnu(id.into()), CodeAddress::Virtual(address)), answer);
    }

    pub(crate) fn set_all(&self, answer: SymbolAnswer) {
        self.0.lock().unwrap().other = Some(answer);
    }

    pub(crate) fn asked(&self) -> Vec<(MappedFile, Vec<CodeAddress>)> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

impl NameSource for Fake {
    fn wants_processes(&self, _: &FileId) -> bool {
        true
    }

    fn ask(&mut self, file: &MappedFile, addresses: &[CodeAddress]) {
        self.0.lock().unwrap().asked.push((file.clone(), addresses.to_vec()));
    }

    fn answer(&mut self, id: &FileId, address: CodeAddress, _: bool) -> SymbolAnswer {
        let known = self.0.lock().unwrap();
        let answer = known.answers.get(&(id.clone(), address)).or(known.other.as_ref());
        answer.cloned().unwrap_or(SymbolAnswer::Pending)
    }
}

pub(crate) fn symbols(function: &str, file: Option<&str>, line: u32) -> Arc<Symbols> {
    let frame = SymbolFrame {
        function: function.into(),
        system_name: function.into(),
        file: file.map(Arc::from),
        line,
        column: 0,
    };
    Arc::new(vec![frame].into())
}

/// A final answer.
pub(crate) fn known(function: &str) -> SymbolAnswer {
    SymbolAnswer::Final(symbols(function, Some("main.c"), 7))
}

pub(crate) fn unknown() -> SymbolAnswer {
    SymbolAnswer::Unknown(Unknown::NoSymbol)
}

pub(crate) fn settings(yaml: &str) -> Settings {
    let section = Section::from_yaml(yaml).unwrap();
    section.extract::<Config>().unwrap().check(&section).unwrap()
}

/// A processor configured in YAML, and its source of names.
pub(crate) fn symbolize(yaml: &str) -> (Symbolize, Fake) {
    let fake = Fake::default();
    (Symbolize::with_names(&settings(yaml), Box::new(fake.clone())), fake)
}

/// A location with a frame type, and with a mapping of this build id unless the id is empty.
pub(crate) struct MappedLocation<'a> {
    pub(crate) kind: &'a str,
    pub(crate) build_id: &'a str,
    pub(crate) address: u64,
    pub(crate) name: &'a str,
}

pub(crate) const fn native(address: u64) -> MappedLocation<'static> {
    MappedLocation { kind: "native", build_id: ID, address, name: "" }
}

/// A batch of a peer, with one sample whose stack has these locations.
pub(crate) fn batch(peer: &str, places: &[MappedLocation<'_>]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("process.pid", 7.into()), ("process.executable.path", "/usr/bin/app".into())]);
    builder.on_cpu(20);
    let mut stack = Vec::new();
    for place in places {
        let mapping = if place.build_id.is_empty() {
            None
        } else {
            let attributes = builder.attributes(&[("process.executable.build_id.gnu", place.build_id.into())]);
            let filename = builder.string("app");
            let range =
                Mapping { memory_start: 0x1000, memory_limit: 0x9000, file_offset: 0x1000, ..Mapping::default() };
            builder.mapping(Mapping { filename, attributes, ..range })
        };
        let attributes = match place.kind {
            "" => None,
            kind => builder.attributes(&[("profile.frame.type", kind.into())]),
        };
        let mut lines = Vec::new();
        if !place.name.is_empty() {
            let name = builder.string(place.name);
            let function = builder.function(profbridge_model::Function { name, ..Default::default() });
            lines.push(profbridge_model::Line { function, line: 3, column: 0 });
        }
        let location = Location { mapping, address: place.address, attributes, ..Location::default() };
        stack.push(builder.location(location, &lines));
    }
    let stack = builder.stack(&stack);
    builder.sample(stack, None, None, &[1, 2], &[]);
    let mut profiles = builder.finish().unwrap();
    profiles.peer = Some(peer.into());
    profiles
}

pub(crate) fn advance(processor: &mut Symbolize, now: Now) -> Outbox {
    let mut out = Outbox::default();
    processor.advance(now, &mut out);
    while processor.due().is_some_and(|due| due <= now.monotonic_nano) {
        processor.advance(now, &mut out);
    }
    out
}

/// The peers of the output, in order.
pub(crate) fn senders(out: &Outbox) -> Vec<String> {
    batches(out).iter().map(|profiles| profiles.peer.as_deref().unwrap_or("").to_owned()).collect()
}

/// `FUNCTION@FILE:LINE` of each line of each location, in the order of the table, by address.
pub(crate) fn lines(profiles: &Profiles) -> Vec<(u64, Vec<String>)> {
    let dictionary = profiles.dictionary();
    let of = |location: &Location| {
        let line = |line: &profbridge_model::Line| {
            let function = line.function.map(|id| *dictionary.function(id)).unwrap_or_default();
            format!("{}@{}:{}", dictionary.string(function.name), dictionary.string(function.filename), line.line)
        };
        (location.address, dictionary.lines(location).iter().map(line).collect())
    };
    dictionary.tables().locations.iter().skip(1).map(of).collect()
}
