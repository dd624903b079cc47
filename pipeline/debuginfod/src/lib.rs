//! Downloads debug files from debuginfod servers, by build id.
//!
//! Compatible with elfutils' client (`debuginfod-find(1)`, `debuginfod_find_debuginfo(3)`): it uses the same variables,
//! requests and cache, so GDB and others find files downloaded here, and vice versa. It is off if no server is
//! configured and `DEBUGINFOD_URLS` is not set.
//!
//! Requests never block: a separate thread contacts the servers. A failed server and a missing file are not tried again
//! for a while. Log lines contain only host and port of a URL, since the rest may be a secret.

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
use server::DebuginfodServer;

/// The maximum number of files that wait for download. The caller has to repeat further requests later.
const MAX_WAITING: usize = 1024;
/// The maximum number of files whose state is stored. At this number, all states are dropped except those of files that
/// are being downloaded.
const MAX_KNOWN: usize = 65_536;
/// The time after a failure in which the same file is not requested again.
const RETRY: Duration = Duration::from_secs(600);

/// The configuration of debuginfod. Every key is optional.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The servers, in order of preference. If empty, those of `DEBUGINFOD_URLS`.
    pub urls: Vec<String>,
    /// Maximum size of the cache. The least recently used files are evicted.
    pub max_cache: ByteSize,
}

// URLs may contain secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.urls.iter().map(|url| DebuginfodServer::parse(url)).collect();
        f.debug_struct("Config").field("servers", &servers).field("max_cache", &self.max_cache).finish()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { urls: Vec::new(), max_cache: ByteSize::from_mib(2048) }
    }
}

impl Config {
    /// Returns the problems of this configuration, located in `section` below `key`.
    #[must_use]
    pub fn check(&self, section: &Section, key: &str) -> Vec<Problem> {
        let unusable = self.urls.iter().enumerate().filter(|(_, url)| DebuginfodServer::parse(url).is_none());
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

/// Starts the download thread. Returns `None` if neither `config` nor `DEBUGINFOD_URLS` names a server.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn start(config: &Config) -> io::Result<Option<Arc<dyn DebugFileServer>>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(settings) = Settings::new(config, variable) else { return Ok(None) };
    Ok(Some(Arc::new(Downloader::start(settings)?)))
}

/// The checked configuration of a [`Downloader`].
#[derive(Debug)]
struct Settings {
    servers: Vec<DebuginfodServer>,
    cache: Cache,
    limits: DownloadLimits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DownloadLimits {
    /// 100 KiB have to arrive in each period of this length (`DEBUGINFOD_TIMEOUT`).
    progress: Duration,
    /// The whole file has to arrive within this time (`DEBUGINFOD_MAXTIME`).
    total: Duration,
    /// The largest file in bytes (`DEBUGINFOD_MAXSIZE`, and the size of the cache).
    bytes: u64,
}

impl Settings {
    fn new(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let urls = match &config.urls[..] {
            [] => variable("DEBUGINFOD_URLS")?.split_ascii_whitespace().map(str::to_owned).collect(),
            urls => urls.to_vec(),
        };
        let servers: Vec<_> = urls.iter().filter_map(|url| DebuginfodServer::parse(url)).collect();
        if servers.is_empty() {
            return None;
        }
        let Some(folder) = cache_folder(&variable) else {
            tracing::warn!("debuginfod is not used: DEBUGINFOD_CACHE_PATH and HOME are not set");
            return None;
        };
        let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|&number| number > 0);
        let limits = DownloadLimits {
            progress: Duration::from_secs(number("DEBUGINFOD_TIMEOUT").unwrap_or(90)),
            total: Duration::from_secs(number("DEBUGINFOD_MAXTIME").unwrap_or(3600)),
            bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(u64::MAX).min(config.max_cache.get()),
        };
        Some(Self { servers, cache: Cache::new(folder, config.max_cache.get()), limits })
    }
}

/// The cache folder of elfutils.
fn cache_folder(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = path("DEBUGINFOD_CACHE_PATH") {
        return Some(folder);
    }
    let older = path("HOME").map(|home| home.join(".debuginfod_client_cache")).filter(|folder| folder.is_dir());
    let folder = || path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    older.or_else(|| Some(folder()?.join("debuginfod_client")))
}

/// Downloads debug files on a thread that ends when the client is dropped.
#[derive(Debug)]
struct Downloader {
    cache: Arc<Cache>,
    known: Arc<DownloadState>,
    jobs: mpsc::Sender<Box<[u8]>>,
}

/// The states of files that are not in the cache, and the number of failed downloads.
#[derive(Debug)]
struct DownloadState {
    files: Mutex<RequestedFiles>,
    failures: AtomicU64,
}

#[derive(Debug)]
struct RequestedFiles {
    states: HashMap<Box<[u8]>, FileState>,
    /// Time of the last received data or new request.
    active: Instant,
}

#[derive(Debug, Clone, Copy)]
enum FileState {
    Coming { since: Instant },
    Missing { until: Instant },
}

impl DownloadState {
    fn files(&self) -> MutexGuard<'_, RequestedFiles> {
        // A panic cannot leave the state inconsistent, so a poisoned lock can be used.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that data arrived.
    fn touch(&self) {
        self.files().active = Instant::now();
    }

    /// Records the end of a download.
    fn settle(&self, build_id: &[u8], came: bool) {
        let mut files = self.files();
        if came {
            files.states.remove(build_id);
        } else if let Some(state) = files.states.get_mut(build_id) {
            *state = FileState::Missing { until: Instant::now() + RETRY };
        }
    }
}

impl Downloader {
    fn start(settings: Settings) -> io::Result<Self> {
        let Settings { servers, cache, limits } = settings;
        let cache = Arc::new(cache);
        let files = RequestedFiles { states: HashMap::new(), active: Instant::now() };
        let known = Arc::new(DownloadState { files: Mutex::new(files), failures: AtomicU64::new(0) });
        let (jobs, inbox) = mpsc::channel(MAX_WAITING);
        let fetcher = fetch::Fetcher { servers, limits, cache: Arc::clone(&cache), known: Arc::clone(&known) };
        fetcher.start(inbox)?;
        Ok(Self { cache, known, jobs })
    }
}

impl DebugFileServer for Downloader {
    fn request(&self, build_id: &[u8]) -> Requested {
        let now = Instant::now();
        {
            let files = self.known.files();
            match files.states.get(build_id) {
                Some(&FileState::Coming { since }) => {
                    let (since, idle) =
                        (now.saturating_duration_since(since), now.saturating_duration_since(files.active));
                    return Requested::Coming { since, idle };
                }
                Some(&FileState::Missing { until }) if now < until => return Requested::Missing,
                _ => {}
            }
        }
        match self.cache.look_up(build_id) {
            Cached::Here(file) => return Requested::Here(file),
            Cached::Missing => return Requested::Missing,
            Cached::Unknown => {}
        }
        let mut files = self.known.files();
        if files.states.len() >= MAX_KNOWN {
            files.states.retain(|_, state| matches!(state, FileState::Coming { .. }));
        }
        if self.jobs.try_send(build_id.into()).is_err() {
            return Requested::Missing;
        }
        files.states.insert(build_id.into(), FileState::Coming { since: now });
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
