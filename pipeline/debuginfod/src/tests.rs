use std::fs::{self, File, FileTimes};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::SystemTime;

use super::*;

/// Timeout of the tests, far longer than needed.
const LIMIT: Duration = Duration::from_secs(120);
const ID: &[u8] = &[0xab, 0xcd, 0x01, 0x23];
const OTHER: &[u8] = &[0x11, 0x22, 0x33, 0x44];

/// A server on loopback, and the requests that it received: path and, in lower case, headers.
struct Site {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Site {
    /// Answers with the result of `answer` for the path. An empty answer leaves the connection open.
    fn new(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&requests);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let Some(Ok(first)) = lines.next() else { continue };
                let head: Vec<_> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let path = first.split(' ').nth(1).unwrap().to_owned();
                let answer = answer(&path);
                heard.lock().unwrap().push((path, head.join("\n")));
                stream.write_all(&answer).ok();
                if answer.is_empty() {
                    silent.push(stream);
                }
            }
        });
        Self { address, requests }
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn status(status: u16) -> Vec<u8> {
    format!("HTTP/1.1 {status} Because\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// A client with its cache in `folder`, configured by environment variables.
fn client(urls: &str, folder: &Path, max_cache: u64, variables: &[(&str, &str)]) -> Downloader {
    let config = Config { urls: Vec::new(), max_cache: ByteSize::new(max_cache) };
    let settings = Settings::new(&config, |name| match name {
        "DEBUGINFOD_URLS" => Some(urls.to_owned()),
        "DEBUGINFOD_CACHE_PATH" => Some(folder.to_str().unwrap().to_owned()),
        name => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    });
    Downloader::start(settings.unwrap()).unwrap()
}

/// The result of a download: the file's content, or `None`.
fn outcome(client: &Downloader, build_id: &[u8]) -> Option<Vec<u8>> {
    let begin = Instant::now();
    loop {
        match client.request(build_id) {
            Requested::Here(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                return Some(bytes);
            }
            Requested::Missing => return None,
            Requested::Coming { .. } => assert!(begin.elapsed() < LIMIT),
        }
        thread::yield_now();
    }
}

/// Guarantees: a file is downloaded from the URL that elfutils' client uses, with the URL's user information as a
/// header, and stored where that client looks for it. If the file is in the cache, no server is asked.
#[test]
fn a_file_comes_and_stays() {
    let site = Site::new(|_| ok(b"a debug file"));
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://user:s3cr3t%21@{}/some/path/", site.address);
    let first = client(&url, folder.path(), 1 << 20, &[]);
    assert!(matches!(first.request(ID), Requested::Coming { .. } | Requested::Here(_)));
    assert_eq!(outcome(&first, ID).unwrap(), b"a debug file");
    {
        let requests = site.requests.lock().unwrap();
        let (path, headers) = &requests[0];
        assert_eq!(path, "/some/path/buildid/abcd0123/debuginfo");
        assert!(headers.contains("authorization: Basic dXNlcjpzM2NyM3Qh"), "{headers}");
    }
    assert_eq!(fs::read(folder.path().join("abcd0123/debuginfo")).unwrap(), b"a debug file");
    assert_eq!(fs::read_dir(folder.path().join("abcd0123")).unwrap().count(), 1);
    let second = client("http://127.0.0.1:1", folder.path(), 1 << 20, &[]);
    assert_eq!(outcome(&second, ID).unwrap(), b"a debug file");
    assert_eq!(site.count(), 1);
}

/// Guarantees: servers are asked once for a missing file, even by other users of the cache, until the time set in the
/// cache has passed.
#[test]
fn a_missing_file_is_remembered() {
    let site = Site::new(|_| status(404));
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", site.address);
    for _ in 0..2 {
        let client = client(&url, folder.path(), 1 << 20, &[]);
        assert_eq!([outcome(&client, ID), outcome(&client, ID)], [None, None]);
    }
    assert_eq!(site.count(), 1);
    assert_eq!(fs::metadata(folder.path().join("abcd0123/debuginfo")).unwrap().len(), 0);
    fs::write(folder.path().join("cache_miss_s"), "0\n").unwrap();
    assert_eq!(outcome(&client(&url, folder.path(), 1 << 20, &[]), ID), None);
    assert_eq!(site.count(), 2);
}

/// Guarantees: if a server is not reachable, fails or redirects, the next one is asked. The failed server is then not
/// contacted for a while, and no miss is recorded for it. Each failure is counted.
#[test]
fn servers_that_fail() {
    let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let broken = Site::new(|_| status(500));
    let elsewhere =
        Site::new(|_| b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec());
    let good = Site::new(|path| if path.contains("abcd0123") { ok(b"here") } else { status(404) });
    let folder = tempfile::tempdir().unwrap();
    let urls =
        format!("http://{refuses} http://{} http://{} http://{}", broken.address, elsewhere.address, good.address);
    let client = client(&urls, folder.path(), 1 << 20, &[]);
    assert_eq!(outcome(&client, ID).unwrap(), b"here");
    assert_eq!(outcome(&client, OTHER), None);
    assert_eq!([broken.count(), elsewhere.count(), good.count()], [1, 1, 2]);
    assert_eq!(client.failures(), 3);
    assert!(!folder.path().join("11223344").exists());
}

/// Guarantees: a file above the size limit is not stored, whether or not its length is announced, and its partial file
/// is removed. The server still counts as available.
#[test]
fn too_large() {
    let site = Site::new(|path| match path {
        path if path.contains("abcd0123") => ok(&[1; 5000]),
        _ => [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec(), vec![1; 5000]].concat(),
    });
    let folder = tempfile::tempdir().unwrap();
    let client = client(&format!("http://{}", site.address), folder.path(), 1 << 20, &[("DEBUGINFOD_MAXSIZE", "4096")]);
    assert_eq!([outcome(&client, ID), outcome(&client, OTHER)], [None, None]);
    assert_eq!(site.count(), 2);
    for folder in fs::read_dir(folder.path()).unwrap() {
        assert_eq!(fs::read_dir(folder.unwrap().path()).unwrap().count(), 0);
    }
}

/// Guarantees: a server that never answers does not block callers, and the download is abandoned after
/// `DEBUGINFOD_TIMEOUT`. The same holds for a server that stops in the middle; the partial file is removed.
#[test]
fn silence() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nthe first part".to_vec();
    let (asked, paths) = std::sync::mpsc::channel();
    let site = Site::new(move |path| {
        asked.send(path.to_owned()).unwrap();
        Vec::new()
    });
    let stops = Site::new(move |_| head.clone());
    for address in [site.address, stops.address] {
        let folder = tempfile::tempdir().unwrap();
        let client = client(&format!("http://{address}"), folder.path(), 1 << 20, &[("DEBUGINFOD_TIMEOUT", "1")]);
        assert!(matches!(client.request(ID), Requested::Coming { .. }));
        assert_eq!(outcome(&client, ID), None);
        let left = fs::read_dir(folder.path().join("abcd0123")).map_or(0, Iterator::count);
        assert_eq!(left, 0);
    }
    assert_eq!(paths.try_iter().count(), 1);
}

/// Guarantees: the cache stays within its limit, and the most recently used files are kept.
#[test]
fn bounded() {
    let site = Site::new(|_| ok(&[1; 1000]));
    let folder = tempfile::tempdir().unwrap();
    let client = client(&format!("http://{}", site.address), folder.path(), 2500, &[]);
    let used = |id: &[u8], seconds: u64| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = File::options().write(true).open(folder.path().join(hex(id)).join("debuginfo")).unwrap();
        file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
    };
    for id in [ID, OTHER] {
        assert!(outcome(&client, id).is_some());
    }
    used(ID, 2000);
    used(OTHER, 1000);
    assert!(outcome(&client, &[5; 4]).is_some());
    let there = |id: &[u8]| folder.path().join(hex(id)).join("debuginfo").exists();
    assert_eq!([there(ID), there(OTHER), there(&[5; 4])], [true, false, true]);
}

/// Guarantees: without a configured server, no request is made. Only http and https are supported, configured servers
/// take precedence over the variable, and neither a configuration nor a server prints its secrets.
#[test]
fn what_is_configured() {
    let variables = |set: &'static [(&'static str, &'static str)]| {
        move |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    let servers = |urls: &[&str], set| {
        let config = Config { urls: urls.iter().map(|&url| url.to_owned()).collect(), ..Config::default() };
        Settings::new(&config, variables(set)).map(|settings| format!("{:?}", settings.servers))
    };
    assert_eq!(servers(&[], &[("HOME", "/home/a")]), None);
    assert_eq!(servers(&[], &[("HOME", "/home/a"), ("DEBUGINFOD_URLS", "ima:enforcing file:///srv /srv")]), None);
    let set = &[("HOME", "/home/a"), ("DEBUGINFOD_URLS", "ima:enforcing http://a:8002/x  https://b/")];
    assert_eq!(servers(&[], set).unwrap(), "[http://a:8002, https://b]");
    assert_eq!(servers(&["https://me:pass@c/token?key=1"], set).unwrap(), "[https://c]");
    let config = Config { urls: vec!["https://me:pass@c/token".to_owned()], ..Config::default() };
    let shown = format!("{config:?}");
    assert!(shown.contains("https://c") && !shown.contains("pass") && !shown.contains("token"), "{shown}");
    let folder = |set| cache_folder(variables(set)).map(|folder| folder.to_str().unwrap().to_owned());
    assert_eq!(folder(&[("HOME", "/h")]).unwrap(), "/h/.cache/debuginfod_client");
    assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(), "/x/debuginfod_client");
    assert_eq!(folder(&[("HOME", "/h"), ("DEBUGINFOD_CACHE_PATH", "/d")]).unwrap(), "/d");
    assert_eq!(folder(&[]), None);
}
