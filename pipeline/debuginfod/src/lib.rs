//! Debug files from debuginfod servers, by build id.
//!
//! It keeps to elfutils' client (`debuginfod-find(1)`, `debuginfod_find_debuginfo(3)`): the same variables, requests and
//! cache, so that GDB and others find what was brought here, and the other way round. It is off where no server is
//! configured and `DEBUGINFOD_URLS` is not set.
//!
//! Nobody waits for it: a thread of its own asks the servers. One that fails is left alone for a while, and so is a file
//! that nobody has. No log line has more of a URL than host and port, since the rest may be a secret.

mod cache;
mod fetch;
mod server;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profbridge_engine::config::{ByteSize, Problem, Section};
use profbridge_symbolizer::{DebugFileServer, Requested};
use serde::Deserialize;
use tokio::sync::mpsc;

use cache::{Cache, Cached};
use server::Server;

/// So many files may wait to be brought; further ones are asked for again later.
const MAX_WAITING: usize = 1024;
/// So many files are remembered; then all but those that are on their way are forgotten.
const MAX_KNOWN: usize = 65_536;
/// A file that could not be brought is not asked for again before this.
const RETRY: Duration = Duration::from_secs(600);

/// What can be written about debuginfod. Every key may be left out.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The servers, asked in this order. None: those of `DEBUGINFOD_URLS`.
    pub urls: Vec<String>,
    /// What the files of the cache may take; those that were used least recently make room.
    pub max_cache: ByteSize,
}

// URLs may hold secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.urls.iter().map(|url| Server::parse(url)).collect();
        f.debug_struct("Config").field("servers", &servers).field("max_cache", &self.max_cache).finish()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { urls: Vec::new(), max_cache: ByteSize::from_mib(2048) }
    }
}

impl Config {
    /// What is wrong with it, at its place in `section` below `key`.
    #[must_use]
    pub fn check(&self, section: &Section, key: &str) -> Vec<Problem> {
        let unusable = self.urls.iter().enumerate().filter(|(_, url)| Server::parse(url).is_none());
        let unusable = unusable.map(|(nth, _)| {
            section.problem(
                &format!("{key}.urls[{nth}]"),
                "no URL with http:// or https://",
                "leave out `urls` for none",
            )
        });
        unusable.collect()
    }
}

/// Brings debug files, where servers are configured or the environment names some. Returns `None` where it is off.
///
/// # Errors
///
/// No thread could be started.
pub fn start(config: &Config) -> io::Result<Option<Arc<dyn DebugFileServer>>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(settings) = Settings::new(config, variable) else { return Ok(None) };
    Ok(Some(Arc::new(Client::start(settings)?)))
}

/// What a [`Client`] works with.
#[derive(Debug)]
struct Settings {
    servers: Vec<Server>,
    cache: Cache,
    limits: Limits,
}

/// How long a file may take, and how large it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    /// In each such time, 100 KiB of a file have to come (`DEBUGINFOD_TIMEOUT`).
    progress: Duration,
    /// All of a file has to come within this (`DEBUGINFOD_MAXTIME`).
    whole: Duration,
    /// The largest file, in bytes (`DEBUGINFOD_MAXSIZE`, and the size of the cache).
    bytes: u64,
}

impl Settings {
    fn new(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let urls = match &config.urls[..] {
            [] => variable("DEBUGINFOD_URLS")?.split_ascii_whitespace().map(str::to_owned).collect(),
            urls => urls.to_vec(),
        };
        let servers: Vec<_> = urls.iter().filter_map(|url| Server::parse(url)).collect();
        if servers.is_empty() {
            return None;
        }
        let Some(folder) = cache_folder(&variable) else {
            tracing::warn!("debuginfod is not used: DEBUGINFOD_CACHE_PATH and HOME are not set");
            return None;
        };
        let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|&number| number > 0);
        let limits = Limits {
            progress: Duration::from_secs(number("DEBUGINFOD_TIMEOUT").unwrap_or(90)),
            whole: Duration::from_secs(number("DEBUGINFOD_MAXTIME").unwrap_or(3600)),
            bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(u64::MAX).min(config.max_cache.get()),
        };
        Some(Self { servers, cache: Cache::new(folder, config.max_cache.get()), limits })
    }
}

/// Where elfutils keeps its files.
fn cache_folder(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = path("DEBUGINFOD_CACHE_PATH") {
        return Some(folder);
    }
    let older = path("HOME").map(|home| home.join(".debuginfod_client_cache")).filter(|folder| folder.is_dir());
    let folder = || path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    older.or_else(|| Some(folder()?.join("debuginfod_client")))
}

/// Brings debug files, on a thread that ends with it.
#[derive(Debug)]
struct Client {
    cache: Arc<Cache>,
    known: Arc<Known>,
    jobs: mpsc::Sender<Box<[u8]>>,
}

/// What is known about files that are not in the cache, and how often bringing one failed.
#[derive(Debug)]
struct Known {
    files: Mutex<Files>,
    failures: AtomicU64,
}

#[derive(Debug)]
struct Files {
    states: HashMap<Box<[u8]>, State>,
    /// When something came last, or a request was made.
    active: Instant,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Coming { since: Instant },
    Missing { until: Instant },
}

impl Known {
    fn files(&self) -> MutexGuard<'_, Files> {
        // Whole after every statement that may panic.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something came.
    fn touch(&self) {
        self.files().active = Instant::now();
    }

    /// A file came, or will not come.
    fn settle(&self, build_id: &[u8], came: bool) {
        let mut files = self.files();
        if came {
            files.states.remove(build_id);
        } else if let Some(state) = files.states.get_mut(build_id) {
            *state = State::Missing { until: Instant::now() + RETRY };
        }
    }
}

impl Client {
    fn start(settings: Settings) -> io::Result<Self> {
        let Settings { servers, cache, limits } = settings;
        let cache = Arc::new(cache);
        let files = Files { states: HashMap::new(), active: Instant::now() };
        let known = Arc::new(Known { files: Mutex::new(files), failures: AtomicU64::new(0) });
        let (jobs, inbox) = mpsc::channel(MAX_WAITING);
        let fetcher = fetch::Fetcher { servers, limits, cache: Arc::clone(&cache), known: Arc::clone(&known) };
        fetcher.start(inbox)?;
        Ok(Self { cache, known, jobs })
    }
}

impl DebugFileServer for Client {
    fn request(&self, build_id: &[u8]) -> Requested {
        let now = Instant::now();
        {
            let files = self.known.files();
            match files.states.get(build_id) {
                Some(&State::Coming { since }) => {
                    let (since, idle) =
                        (now.saturating_duration_since(since), now.saturating_duration_since(files.active));
                    return Requested::Coming { since, idle };
                }
                Some(&State::Missing { until }) if now < until => return Requested::Missing,
                _ => {}
            }
        }
        match self.cache.look(build_id) {
            Cached::Here(file) => return Requested::Here(file),
            Cached::Missing => return Requested::Missing,
            Cached::Unknown => {}
        }
        let mut files = self.known.files();
        if files.states.len() >= MAX_KNOWN {
            files.states.retain(|_, state| matches!(state, State::Coming { .. }));
        }
        if self.jobs.try_send(build_id.into()).is_err() {
            return Requested::Missing;
        }
        files.states.insert(build_id.into(), State::Coming { since: now });
        files.active = now;
        Requested::Coming { since: Duration::ZERO, idle: Duration::ZERO }
    }

    fn failures(&self) -> u64 {
        self.known.failures.load(Ordering::Relaxed)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
