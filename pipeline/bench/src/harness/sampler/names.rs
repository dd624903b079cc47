//! The names of the functions that a session has seen.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use profbridge_sampler::message::{Location, Mapping};
use profbridge_symbolizer::{FileIdentity, Key, NamedBy, Object, ObjectId, Source, Symbolizer, Symbols};

use super::{super::Error, perf, session::Session};

/// How long it may take to find all of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of all locations of a session that lie in files.
pub(super) struct Names {
    symbolizer: Symbolizer,
    objects: HashMap<u32, ObjectId>,
}

impl Names {
    /// Looks them up.
    pub(super) fn of(session: &Session) -> Result<Self, Error> {
        let symbolizer = Symbolizer::start(Default::default())?;
        let mut objects = HashMap::new();
        for mapping in &session.mappings {
            let Some(file) = &mapping.file else { continue };
            let file = file.try_clone()?;
            let key = Key::File(FileIdentity::of(&file)?);
            let object = Object { key, source: Source::File(file), root: None::<Arc<_>>, path: mapping.path.clone() };
            objects.insert(mapping.index, symbolizer.object(object));
        }
        let names = Self { symbolizer, objects };
        for location in session.stacks.keys().flat_map(|(_, locations)| locations) {
            if let Some(object) = names.object(location) {
                names.symbolizer.ask(object, &[location.address()]);
            }
        }
        if !names.symbolizer.wait(PATIENCE) {
            return Err("the symbolizer does not come to an end".into());
        }
        Ok(names)
    }

    fn object(&self, location: &Location) -> Option<ObjectId> {
        self.objects.get(&location.mapping()?).copied()
    }

    /// What is known of a location.
    pub(super) fn symbols(&self, location: &Location) -> Option<Arc<Symbols>> {
        self.symbolizer.answer(self.object(location)?, location.address()).symbols().cloned()
    }

    /// The innermost function of the program on a stack, as perf names it: not one that was inlined into it, and the
    /// file where it has no name.
    pub(super) fn innermost(&self, mappings: &[Mapping], locations: &[Location]) -> String {
        let Some(location) = locations.iter().find(|location| !location.is_kernel()) else {
            return "[kernel]".to_owned();
        };
        if let Some(explanation) = location.explanation() {
            return explanation.to_owned();
        }
        let symbols = self.symbols(location).filter(|symbols| symbols.named_by != NamedBy::UnwindTable);
        if let Some(frame) = symbols.as_ref().and_then(|symbols| symbols.frames.last()) {
            return frame.function.to_string();
        }
        let path =
            location.mapping().and_then(|index| mappings.get(index as usize)).map_or("", |mapping| &mapping.path);
        perf::nameless(&Path::new(path).file_name().unwrap_or_default().to_string_lossy())
    }
}
