//! Knows names by reading files, on threads of its own.
//!
//! One thread finds files and checks that they are the right ones; the [`Symbolizer`]'s thread reads them. Both start with
//! the first question, so a processor that is only created has touched nothing.

mod find;
mod identify;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use profbridge_symbolize::{Answer, Key, Object, ObjectId, Source, Symbolizer, Unknown};

use self::find::Finder;
use crate::config::Settings;
use crate::names::{FileId, MappedFile, Names};

/// So many files may wait to be found; others are refused and asked for again with the next batch.
const MAX_JOBS: usize = 1024;

/// So many files are remembered; then all but those that are being looked for are forgotten and found anew.
const MAX_FILES: usize = 65_536;

/// So many addresses of a file wait while it is being looked for; the symbolizer bounds the rest.
const MAX_EARLY: usize = 65_536;

/// A file that was not found is looked for again after this: a process that has it may have started.
const RETRY: Duration = Duration::from_secs(10);

/// Finds and reads files in the background.
#[derive(Debug)]
pub struct Background {
    settings: Settings,
    running: Option<Running>,
    failed: bool,
}

#[derive(Debug)]
struct Running {
    symbolizer: Symbolizer,
    files: Arc<Mutex<Files>>,
    jobs: SyncSender<MappedFile>,
}

type Files = HashMap<FileId, State>;

/// What is known about a file.
#[derive(Debug)]
enum State {
    /// It is being looked for; these addresses are asked for as soon as it is found.
    Sought(Vec<u64>),
    /// The symbolizer has it. `located`: on this machine, and not only perhaps as a separate debug file.
    Found { object: ObjectId, located: bool, since: Instant },
    /// There is none.
    Missing { since: Instant },
}

impl State {
    /// Whether it is worth looking for the file now.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Sought(_) | Self::Found { located: true, .. } => false,
            Self::Found { since, .. } | Self::Missing { since } => since.elapsed() >= RETRY,
        }
    }
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    // Whole after every statement that may panic.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Background {
    /// Starts nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), running: None, failed: false }
    }

    fn start(&mut self) -> std::io::Result<Running> {
        let symbolizer = Symbolizer::start(self.settings.symbolizer.clone())?;
        let files = Arc::new(Mutex::new(Files::new()));
        let (jobs, inbox) = sync_channel(MAX_JOBS);
        let worker =
            Worker { symbolizer: symbolizer.clone(), files: Arc::clone(&files), settings: self.settings.clone() };
        thread::Builder::new().name("find files".to_owned()).spawn(move || worker.run(&inbox))?;
        Ok(Running { symbolizer, files, jobs })
    }
}

impl Names for Background {
    fn wants_processes(&self, id: &FileId) -> bool {
        let Some(running) = &self.running else { return true };
        lock(&running.files).get(id).is_none_or(State::is_wanted)
    }

    fn ask(&mut self, file: &MappedFile, addresses: &[u64]) {
        if self.running.is_none() && !self.failed {
            match self.start() {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    self.failed = true;
                    tracing::error!("native frames stay without names, since no thread could be started: {error}");
                }
            }
        }
        let Some(Running { symbolizer, files, jobs }) = &self.running else { return };
        let mut files = lock(files);
        match files.get_mut(&file.id) {
            Some(State::Sought(early)) => {
                let room = MAX_EARLY.saturating_sub(early.len());
                return early.extend(addresses.iter().take(room));
            }
            Some(State::Found { object, .. }) => {
                symbolizer.ask(*object, addresses);
            }
            Some(State::Missing { .. }) | None => {}
        }
        if files.get(&file.id).is_some_and(|state| !state.is_wanted()) {
            return;
        }
        if files.len() >= MAX_FILES {
            files.retain(|_, state| matches!(state, State::Sought(_)));
        }
        match jobs.try_send(file.clone()) {
            Ok(()) => {
                let early = addresses.iter().take(MAX_EARLY).copied().collect();
                if let Some(State::Found { object, .. }) = files.insert(file.id.clone(), State::Sought(early)) {
                    // It gets another source, so it is another object.
                    symbolizer.forget(object);
                }
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    fn answer(&mut self, id: &FileId, address: u64, last: bool) -> Answer {
        let Some(Running { symbolizer, files, .. }) = &self.running else { return Answer::Unknown(Unknown::Failed) };
        match lock(files).get_mut(id) {
            Some(State::Sought(_)) => Answer::Pending,
            Some(State::Missing { .. }) => Answer::Unknown(Unknown::NoFile),
            None => Answer::Unknown(Unknown::NotAsked),
            Some(State::Found { object, located, .. }) => {
                let answer =
                    if last { symbolizer.last_answer(*object, address) } else { symbolizer.answer(*object, address) };
                if answer == Answer::Unknown(Unknown::NoFile) {
                    // Its file was closed to make room for others, or there is no separate debug file.
                    *located = false;
                }
                answer
            }
        }
    }
}

/// What lives on the thread that finds files.
struct Worker {
    symbolizer: Symbolizer,
    files: Arc<Mutex<Files>>,
    settings: Settings,
}

impl Worker {
    /// Ends with the processor.
    fn run(self, jobs: &Receiver<MappedFile>) {
        let finder = Finder::new(&self.settings);
        while let Ok(file) = jobs.recv() {
            // Whatever goes wrong with one file is no reason to leave others without a name.
            let object = catch_unwind(AssertUnwindSafe(|| self.object(&finder, &file))).unwrap_or_default();
            let mut files = lock(&self.files);
            let since = Instant::now();
            let state = match object {
                Some((object, located)) => State::Found { object, located, since },
                None => State::Missing { since },
            };
            let before = files.insert(file.id, state);
            if let (Some(State::Sought(early)), Some((object, _))) = (before, object) {
                self.symbolizer.ask(object, &early);
            }
        }
    }

    /// Hands the symbolizer the file, and says whether it is on this machine.
    fn object(&self, finder: &Finder, file: &MappedFile) -> Option<(ObjectId, bool)> {
        let key = match &file.id {
            FileId::Gnu(digits) => Key::from_hex(digits)?,
            FileId::Htlhash(digits) => Key::Other(format!("htlhash {digits}").into()),
        };
        let object = match finder.find(file) {
            Some(found) => {
                Object { key, source: Source::File(found.file), root: Some(Arc::new(found.root)), path: found.path }
            }
            // Separate debug files are found by GNU's build id only.
            None if matches!(key, Key::BuildId(_)) => {
                Object { key, source: Source::BuildId, root: None, path: file.filename.to_string() }
            }
            None => return None,
        };
        let located = matches!(object.source, Source::File(_));
        tracing::debug!(file = %file.filename, path = %object.path, located, "a file is looked into for names");
        Some((self.symbolizer.object(object), located))
    }
}
