//! The profile that `profbridge demo` sends: a web shop in Python under load, as an OpenTelemetry profiler would see
//! it.
//!
//! It is generated, but realistic: several threads at 101 Hz that work in bursts and wait in between, deep stacks with
//! a shared root, frames of the application, of the standard library and of native libraries.

use profbridge_model::dictionary::Invalid;
use profbridge_model::{AttributeSetId, Builder, LocationId, Mapping, Profiles};

/// Samples per second: what Sentry's SDKs use (profiles specification 2.5.0, "Sampling frequency").
const HERTZ: u64 = 101;
const NANOS: u64 = 1_000_000_000;
const WORKERS: u64 = 4;

/// The service that the demo pretends to be.
pub(crate) const SERVICE: &str = "demo-shop";

/// A frame: function, file, line; a native frame has an address instead of a line.
type DemoFrame = (&'static str, &'static str, i64);

const ROOT: &[DemoFrame] = &[
    ("Thread._bootstrap", "/usr/lib/python3.12/threading.py", 1032),
    ("Thread.run", "/usr/lib/python3.12/threading.py", 1012),
    ("Worker.serve_forever", "/srv/shop/server/worker.py", 48),
    ("Application.__call__", "/srv/shop/server/wsgi.py", 131),
];

/// What a request does: its share of the time in percent, then its frames from the outermost to the innermost.
const PATHS: &[(u8, &[DemoFrame])] = &[
    (
        27,
        &[
            ("checkout", "/srv/shop/views/checkout.py", 77),
            ("Cart.total", "/srv/shop/models/cart.py", 41),
            ("apply_discounts", "/srv/shop/pricing/discounts.py", 118),
            ("Rule.matches", "/srv/shop/pricing/rules.py", 63),
        ],
    ),
    (
        19,
        &[
            ("product_page", "/srv/shop/views/product.py", 32),
            ("render", "/srv/shop/templates/__init__.py", 15),
            ("Template.render", "/usr/lib/python3/dist-packages/jinja2/environment.py", 1301),
            ("escape", "/usr/lib/python3/dist-packages/markupsafe/_native.py", 8),
        ],
    ),
    (
        16,
        &[
            ("recommendations", "/srv/shop/views/product.py", 58),
            ("nearest", "/srv/shop/recommend/index.py", 94),
            ("cosine_similarity", "/srv/shop/recommend/vectors.py", 22),
        ],
    ),
    (
        14,
        &[
            ("login", "/srv/shop/views/account.py", 25),
            ("verify_password", "/srv/shop/auth/passwords.py", 19),
            ("pbkdf2_hmac", "/usr/lib/python3.12/hashlib.py", 217),
            ("libcrypto.so.3", "libcrypto.so.3", -0x1f_9a40),
        ],
    ),
    (
        13,
        &[
            ("search", "/srv/shop/views/search.py", 44),
            ("Query.all", "/usr/lib/python3/dist-packages/sqlalchemy/orm/query.py", 2673),
            ("Row.decode", "/srv/shop/models/rows.py", 88),
        ],
    ),
    (
        11,
        &[
            ("api_orders", "/srv/shop/views/api.py", 103),
            ("dumps", "/usr/lib/python3.12/json/__init__.py", 231),
            ("JSONEncoder.iterencode", "/usr/lib/python3.12/json/encoder.py", 258),
        ],
    ),
];

/// Generates `seconds` of work that ends at `end_unix_nano`. The same `seed` generates the same work; `instance`
/// distinguishes runs of the demo.
pub(crate) fn generate(seconds: u32, end_unix_nano: u64, seed: u64, instance: &str) -> Result<Profiles, Invalid> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut builder = Builder::new();
    builder.resource(&[
        ("service.name", SERVICE.into()),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        ("service.instance.id", instance.into()),
        ("deployment.environment.name", "demo".into()),
        // The first attribute that `chunk` uses: even if the receiver adds a host.id, the process keeps the id that the
        // demo waits for.
        ("container.id", instance.into()),
        ("process.pid", 4242.into()),
        ("process.executable.name", "python3.12".into()),
    ]);
    builder.scope("profbridge.demo", env!("CARGO_PKG_VERSION"));
    builder.on_cpu(HERTZ as u32);
    let duration = u64::from(seconds) * NANOS;
    let start = end_unix_nano.saturating_sub(duration);
    if let Some(profile) = builder.open_profile() {
        profile.time_unix_nano = start;
        profile.duration_nano = duration;
    }

    let frame_type = builder.attributes(&[("profile.frame.type", "cpython".into())]);
    let native_type = builder.attributes(&[("profile.frame.type", "native".into())]);
    let root: Vec<_> = ROOT.iter().map(|&frame| location(&mut builder, frame, frame_type, native_type)).collect();
    let paths: Vec<(u8, Vec<Option<LocationId>>)> = PATHS
        .iter()
        .map(|(share, frames)| {
            let frames = frames.iter().map(|&frame| location(&mut builder, frame, frame_type, native_type));
            (*share, frames.collect())
        })
        .collect();

    for worker in 0..WORKERS {
        let name = format!("worker-{worker}");
        let thread = builder.attributes(&[
            ("thread.id", i64::try_from(4243 + worker).unwrap_or_default().into()),
            ("thread.name", name.as_str().into()),
        ]);
        let mut tick = 0;
        while tick < u64::from(seconds) * HERTZ {
            // A request uses the CPU for a while, a few ticks in each stage, then the thread waits for the next
            // request.
            let (_, path) = pick(&paths, &mut random);
            for _ in 0..random.u64(3..18) {
                if tick >= u64::from(seconds) * HERTZ {
                    break;
                }
                let depth = path.len() - usize::from(random.u8(0..10) < 3).min(path.len() - 1);
                let stack: Vec<_> = path[..depth].iter().rev().chain(root.iter().rev()).copied().collect();
                let stack = builder.stack(&stack);
                let jitter = random.u64(0..NANOS / HERTZ / 20);
                builder.sample(stack, thread, None, &[start + tick * NANOS / HERTZ + jitter], &[]);
                tick += 1;
            }
            tick += random.u64(0..25);
        }
    }
    builder.finish()
}

fn pick<'a, T>(paths: &'a [(u8, T)], random: &mut fastrand::Rng) -> &'a (u8, T) {
    let mut left = random.u8(0..100);
    for path in paths {
        if left < path.0 {
            return path;
        }
        left -= path.0;
    }
    &paths[0]
}

/// The location of a frame: a negative line stands for an address in a native library without symbols.
fn location(
    builder: &mut Builder,
    (function, filename, line): DemoFrame,
    frame_type: Option<AttributeSetId>,
    native_type: Option<AttributeSetId>,
) -> Option<LocationId> {
    use profbridge_model::{Function, Line, Location};
    if line < 0 {
        let build_id = ("process.executable.build_id.gnu", "4f1c0de5a7b3921c6e0d8f2a9b7c3d1e5f608192".into());
        let mapping = Mapping {
            memory_start: 0x10_0000,
            memory_limit: 0x40_0000,
            file_offset: 0x10_0000,
            filename: builder.string(filename),
            attributes: builder.attributes(&[build_id]),
        };
        let mapping = builder.mapping(mapping);
        let location =
            Location { mapping, address: line.unsigned_abs(), attributes: native_type, ..Location::default() };
        return builder.location(location, &[]);
    }
    let function =
        Function { name: builder.string(function), filename: builder.string(filename), ..Function::default() };
    let function = builder.function(function);
    let location = Location { attributes: frame_type, ..Location::default() };
    builder.location(location, &[Line { function, line, column: 0 }])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the shares add up to 100 percent, so the flame graph matches the table.
    #[test]
    fn shares_are_percent() {
        assert_eq!(PATHS.iter().map(|(share, _)| u32::from(*share)).sum::<u32>(), 100);
    }

    /// Guarantees: the demo's profile stays in its time range and on its threads, and depends only on the seed.
    #[test]
    fn generates_what_it_says() {
        let end = 1_764_000_000 * NANOS;
        let profiles = generate(10, end, 1, "a").unwrap();
        let profile = profiles.profiles().next().unwrap();
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (end - 10 * NANOS, 10 * NANOS));
        for sample in profiles.samples(profile) {
            assert!(sample.timestamps().all(|time| (end - 10 * NANOS..end).contains(&time)));
            assert!(profiles.dictionary().find(sample.attributes, "thread.id").is_some());
        }
        assert!(profiles.observations() > 1_000, "{}", profiles.observations());
        let again = generate(10, end, 1, "a").unwrap();
        assert_eq!(again.dictionary().tables().buffer.len(), profiles.dictionary().tables().buffer.len());
        assert_eq!(again.observations(), profiles.observations());
    }
}
