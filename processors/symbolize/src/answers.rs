//! Writes the found names into a batch.

use profbridge_engine::component::Outbox;
use profbridge_model::Profiles;
use profbridge_model::symbol_overlay::{SymbolName, SymbolOverlay};
use profbridge_symbolizer::{SymbolAnswer, SymbolFrame};

use crate::names::NameSource;
use crate::queries::Queries;
use crate::{DEBUG_FILES_FAILED, LATE, NAMED, UNKNOWN};

/// The maximum number of bytes of names that are added to one batch, because a file may contain names of megabytes.
const MAX_ADDED: usize = 64 << 20;

/// The maximum number of lines that are added to one location: the conversion shows no more frames of a stack.
const MAX_LINES: usize = 1000;

/// Adds names to the locations of a batch, and counts the results.
pub(crate) fn write(profiles: Profiles, queries: &Queries, names: &mut dyn NameSource, out: &mut Outbox) -> Profiles {
    let mut known = Vec::new();
    let (mut named, mut late, mut unknown) = (0, 0, queries.hopeless);
    for query in &queries.queries {
        let answer = names.answer(&queries.files[query.file as usize].id, query.address, true);
        late += u64::from(answer.is_late());
        match answer {
            SymbolAnswer::Symbols(symbols) | SymbolAnswer::Final(symbols) => known.push((query.location, symbols)),
            SymbolAnswer::Unknown(_) => unknown += 1,
            SymbolAnswer::Pending => {}
        }
    }
    let mut profiles = profiles;
    if !known.is_empty() {
        let mut naming = SymbolOverlay::new(profiles);
        let mut lines = Vec::new();
        for (location, symbols) in &known {
            lines.clear();
            lines.extend(symbols.frames.iter().take(MAX_LINES).map(line));
            let added = naming.added_bytes() < MAX_ADDED && naming.name(*location, &lines);
            named += u64::from(added);
            unknown += u64::from(!added);
        }
        profiles = naming.finish();
    }
    let failed = names.failed_downloads();
    let notes = [(NAMED, named), (LATE, late), (UNKNOWN, unknown), (DEBUG_FILES_FAILED, failed)];
    for (note, count) in notes {
        out.note(note, count);
    }
    profiles
}

fn line(frame: &SymbolFrame) -> SymbolName<'_> {
    SymbolName {
        function: &frame.function,
        system_name: &frame.system_name,
        filename: frame.file.as_deref().unwrap_or_default(),
        line: frame.line.into(),
        column: frame.column.into(),
    }
}
