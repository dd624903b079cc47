//! pprof profiles, from programs to Sentry and to an OTLP backend.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use profbridge_model::{Builder, Function, Line, Location, Profile};
use profbridge_relay_rules::validate_json;
use profbridge_wire::pprof::{encode, groups};

use crate::backend::otlp::Otlp;
use crate::backend::sentry::Sentry;
use crate::client::status;
use crate::process::{PATIENCE, Profbridge};

/// The functions of a Go stack with their files, innermost first.
const STACK: [(&str, &str); 4] = [
    ("example.com/shop/v2/cart.(*Cart).Total", "/src/shop/cart/cart.go"),
    ("main.main.func1", "/src/shop/main.go"),
    ("net/http.HandlerFunc.ServeHTTP", "/usr/local/go/src/net/http/server.go"),
    ("github.com/go-chi/chi/v5.(*Mux).ServeHTTP", "/go/pkg/mod/github.com/go-chi/chi/v5@v5.0.1/mux.go"),
];

/// A CPU profile of two seconds that ended just now, as written by Go, but not compressed.
pub(crate) fn go_cpu() -> Vec<u8> {
    let mut builder = Builder::new();
    builder.scope("", "");
    let filename = builder.string("/app/shop");
    let mapping = profbridge_model::Mapping {
        memory_start: 0x40_0000,
        memory_limit: 0x80_0000,
        filename,
        ..profbridge_model::Mapping::default()
    };
    let mapping = builder.mapping(mapping);
    let mut frames = Vec::new();
    for (number, (name, file)) in STACK.into_iter().enumerate() {
        let (name, filename) = (builder.string(name), builder.string(file));
        let function = builder.function(Function { name, system_name: name, filename, start_line: 0 });
        let address = 0x40_1000 + 16 * number as u64;
        let location = Location { mapping, address, ..Location::default() };
        frames.push(builder.location(location, &[Line { function, line: 7, column: 0 }]));
    }
    let stack = builder.stack(&frames);
    let shorter = builder.stack(&frames[1..]);
    let labels = builder.attributes(&[("worker", "w1".into())]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let period_type = builder.value_type("cpu", "nanoseconds");
    for (kind, unit, value) in [("samples", "count", 1), ("cpu", "nanoseconds", 10_000_000)] {
        let sample_type = builder.value_type(kind, unit);
        builder.profile(Profile {
            sample_type,
            period_type,
            period: 10_000_000,
            time_unix_nano: now - 2_000_000_000,
            duration_nano: 2_000_000_000,
            ..Profile::default()
        });
        builder.sample(stack, labels, None, &[], &[150 * value]);
        builder.sample(shorter, None, None, &[], &[50 * value]);
    }
    let batch = builder.finish().unwrap();
    let [group] = &groups(&batch)[..] else { panic!("one profile") };
    encode(&batch, group).bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A server that answers every request with this profile, gzipped like Go's `net/http/pprof`.
pub(crate) fn serve(profile: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                request.push(byte[0]);
            }
            let body = gzip(&profile);
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            // The client may have disconnected.
            drop(stream.write_all(&[head.as_bytes(), &body].concat()));
        }
    });
    address
}

/// Posts a body, and returns the status of the answer.
pub(crate) fn post(address: SocketAddr, path: &str, body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    status(&answer)
}

/// Guarantees: a Go program's CPU profile becomes a chunk with the right time, whose functions have the names and
/// modules of Sentry's Go SDK, with the program's own code in-app; an OTLP backend gets both value types with their
/// labels.
#[test]
fn go_to_sentry_and_otlp() {
    let (sentry, backend) = (Sentry::start(), Otlp::start());
    let config = format!(
        "receivers: {{pprof: {{push: {{endpoint: '127.0.0.1:0'}}}}}}\n\
         processors: {{chunk: }}\n\
         exporters:\n  sentry: {{dsn: '{}'}}\n  otlp: {{endpoint: '{}', tls: {{insecure: true}}}}\n\
         service:\n  pipelines:\n    profiles/sentry: {{receivers: [pprof], processors: [chunk], exporters: [sentry]}}\n    \
         profiles/otlp: {{receivers: [pprof], exporters: [otlp]}}\n",
        sentry.dsn(1),
        backend.address()
    );
    let profbridge = Profbridge::start(&config);
    let path = "/ingest?name=shop%7B__session_id__%3D7%7D&format=pprof";
    assert_eq!(post(profbridge.address("pprof/http"), path, &gzip(&go_cpu())), 200);
    assert_eq!(post(profbridge.address("pprof/http"), path, b"no profile"), 400);
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");

    let chunks = sentry.wait_for_chunks(1);
    let [chunk] = &chunks[..] else { panic!("one chunk, not {}", chunks.len()) };
    validate_json(&serde_json::to_vec(chunk).unwrap()).unwrap();
    assert_eq!((chunk["platform"].as_str(), chunk["release"].as_str()), (Some("go"), Some("shop")));
    let profile = &chunk["profile"];
    let frames: Vec<(&str, &str, bool)> = profile["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| {
            let text = |key: &str| frame[key].as_str().unwrap();
            (text("module"), text("function"), frame["in_app"].as_bool().unwrap())
        })
        .collect();
    for frame in [
        ("example.com/shop/v2/cart", "(*Cart).Total", true),
        ("main", "main.func1", true),
        ("net/http", "HandlerFunc.ServeHTTP", false),
        ("github.com/go-chi/chi/v5", "(*Mux).ServeHTTP", false),
    ] {
        assert!(frames.contains(&frame), "{frame:?} is not in {frames:?}");
    }
    let times: Vec<f64> =
        profile["samples"].as_array().unwrap().iter().map(|sample| sample["timestamp"].as_f64().unwrap()).collect();
    let length = times.iter().copied().fold(f64::MIN, f64::max) - times.iter().copied().fold(f64::MAX, f64::min);
    assert!((length - 2.0).abs() < 0.01, "{length}");

    let received = backend.received.wait(1);
    let dictionary = received[0].dictionary.as_ref().unwrap();
    let text = |index: i32| dictionary.string_table[index as usize].as_str();
    let profiles = &received[0].resource_profiles[0].scope_profiles[0].profiles;
    let types: Vec<&str> =
        profiles.iter().map(|profile| text(profile.sample_type.as_ref().unwrap().type_strindex)).collect();
    assert_eq!(types, ["samples", "cpu"]);
    for profile in profiles {
        let labels = &profile.samples[0].attribute_indices;
        assert_eq!(text(dictionary.attribute_table[labels[0] as usize].key_strindex), "worker");
    }
}
