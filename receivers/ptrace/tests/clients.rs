//! Tests the clients in `examples/` with a simulated server of the control socket.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use profbridge_receiver_ptrace::control::protocol::{ControlRequest, ControlResponse};
use profbridge_receiver_ptrace::trace_header::Decision;

// The tests do not call `main` of the example.
#[allow(dead_code)]
#[path = "../examples/announce.rs"]
mod announce;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sampler")
}

/// Serves one client after the other and answers each request with "ok". Returns each client's requests.
fn listen(path: &Path, clients: usize) -> JoinHandle<Vec<Vec<ControlRequest>>> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        for stream in listener.incoming().take(clients) {
            let mut stream = stream.unwrap();
            let mut requests = Vec::new();
            for line in BufReader::new(stream.try_clone().unwrap()).split(b'\n') {
                requests.push(ControlRequest::parse(&line.unwrap()).unwrap());
                let mut answer = serde_json::to_vec(&ControlResponse::message("heard")).unwrap();
                answer.push(b'\n');
                stream.write_all(&answer).unwrap();
            }
            heard.push(requests);
        }
        heard
    })
}

/// Whether each announced span is sampled, in order. Panics unless each span starts and ends, and all are different.
fn spans(requests: &[ControlRequest]) -> Vec<bool> {
    let mut known = Vec::new();
    let (pairs, rest) = requests.as_chunks::<2>();
    assert!(rest.is_empty(), "{requests:?}");
    let sampled = pairs.iter().map(|pair| {
        let [ControlRequest::SpanStart(start), ControlRequest::SpanEnd(end)] = pair else { panic!("{pair:?}") };
        let ((key, decision), (ended, _)) = (start.span().unwrap(), end.span().unwrap());
        assert!(key == ended && !known.contains(&key));
        known.push(key);
        decision == Decision::Sampled
    });
    sampled.collect()
}

/// Runs the Python example with a long timeout for answers: on a busy machine an answer may take longer than the
/// default timeout, after which the client would announce nothing more.
const PATIENT: &str = "
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
import profbridge_spans
profbridge_spans.Announcer.__init__.__defaults__ = (None, 120)
runpy.run_path(sys.path[0] + '/app.py', run_name='__main__')
";

/// Guarantees: the Python example announces a span for each of its requests, sampled or not, and ends each.
#[test]
fn python() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let heard = listen(&path, 1);
    let mut example = Command::new("python3");
    let status = example.args(["-c", PATIENT]).arg(examples()).arg("2").arg(&path).status().unwrap();
    assert!(status.success());
    assert_eq!(spans(&heard.join().unwrap()[0]), [true, false]);
}

/// Guarantees: the Python client's event processor adds profbridge's answer to a transaction's contexts, keeps a
/// profiler that is already there, and does not change other events.
#[test]
fn python_links_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        for line in BufReader::new(stream.try_clone().unwrap()).split(b'\n') {
            asked.push(ControlRequest::parse(&line.unwrap()).unwrap());
            let answer = ControlResponse {
                ok: true,
                profiler_id: Some("9ec79c33ec9942ab8353589fcb2e04dc".to_owned()),
                thread_id: Some("4711".to_owned()),
                ..ControlResponse::default()
            };
            stream.write_all(format!("{}\n", serde_json::to_string(&answer).unwrap()).as_bytes()).unwrap();
        }
        asked
    });
    let script = "import sys\n\
                  from profbridge_spans import Announcer\n\
                  with Announcer(sys.argv[1], timeout=120) as spans:\n    \
                      made = spans.link({'type': 'transaction', 'contexts': {'trace': {'op': 'http'}}})\n    \
                      assert made['contexts'] == {'trace': {'op': 'http', 'data': {'thread.id': '4711'}}, \
                          'profile': {'profiler_id': '9ec79c33ec9942ab8353589fcb2e04dc'}}, made\n    \
                      own = spans.link({'type': 'transaction', 'contexts': {'profile': {'profiler_id': 'own'}}})\n    \
                      assert own['contexts'] == {'profile': {'profiler_id': 'own'}}, own\n    \
                      assert spans.link({'message': 'x'}) == {'message': 'x'}\n";
    let status = Command::new("python3").arg("-c").arg(script).arg(&path).current_dir(examples()).status().unwrap();
    assert!(status.success());
    let asked = answering.join().unwrap();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked.iter().all(|request| matches!(request, ControlRequest::Profiler(choice) if choice.thread.is_some())));
}

/// Guarantees: the Python client does nothing, and no request fails, if profbridge does not run.
#[test]
fn python_alone() {
    let script = "from profbridge_spans import Announcer\n\
                  with Announcer('/nowhere/control.sock') as spans:\n    \
                      with spans.root_span():\n        print('worked')\n    \
                      assert spans.request(command='status') is None";
    let output = Command::new("python3").arg("-c").arg(script).current_dir(examples()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"worked\n");
}

/// Guarantees: the Rust example keeps its span open while it works.
#[test]
fn rust() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let heard = listen(&path, 1);
    let header = "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718-1";
    let mut worked = false;
    let answer = announce::in_root_span(&path, header, || worked = true).unwrap();
    assert!(answer.ok && worked);
    assert_eq!(spans(&heard.join().unwrap()[0]), [true]);
}
