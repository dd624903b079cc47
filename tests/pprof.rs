//! pprof profiles, from programs to Sentry and to an OTLP backend.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use profbridge_model::{Builder, Function, Line, Location, Profile};
use profbridge_wire::pprof::{encode, groups};

use crate::client::{gzip, status};
use crate::process::PATIENCE;

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
