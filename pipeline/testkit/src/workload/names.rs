//! Realistic symbol names and paths: words in the order and case of each language.
//!
//! Random letters would not compress like real symbols, which would distort all figures about bytes and compressors.

use fastrand::Rng;

/// The language of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkloadRuntime {
    Cxx,
    Dotnet,
    Go,
    Jvm,
    Node,
    Php,
    Python,
    Ruby,
    Rust,
}

impl WorkloadRuntime {
    /// The runtime's `profile.frame.type`.
    pub(super) fn frame_type(self) -> &'static str {
        match self {
            Self::Cxx => "native",
            Self::Dotnet => "dotnet",
            Self::Go => "go",
            Self::Jvm => "jvm",
            Self::Node => "v8js",
            Self::Php => "php",
            Self::Python => "cpython",
            Self::Ruby => "ruby",
            Self::Rust => "rust",
        }
    }

    /// Whether the runtime's frames are machine code in the executable.
    pub(super) fn is_compiled(self) -> bool {
        matches!(self, Self::Cxx | Self::Go | Self::Rust)
    }

    /// The executable's path.
    pub(super) fn executable(self, service: &str) -> String {
        match self {
            Self::Cxx | Self::Go | Self::Rust => format!("/usr/local/bin/{service}"),
            Self::Dotnet => "/usr/share/dotnet/dotnet".to_owned(),
            Self::Jvm => "/opt/java/openjdk/bin/java".to_owned(),
            Self::Node => "/usr/local/bin/node".to_owned(),
            Self::Php => "/usr/local/sbin/php-fpm".to_owned(),
            Self::Python => "/usr/local/bin/python3.12".to_owned(),
            Self::Ruby => "/usr/local/bin/ruby".to_owned(),
        }
    }
}

const NOUNS: &str = "\
    account address attribute balance batch block buffer cache cart catalog channel chunk client cluster \
    column config connection context cookie cursor customer device document endpoint event field filter frame \
    graph handler header index invoice item job key ledger listener message metric node order packet page \
    partition payment pool price product query queue record registry request response route row schema segment \
    session shard span state storage stream table task template token transaction user worker";

const VERBS: &str = "\
    acquire add aggregate append apply build check close collect commit compare compute copy create decode \
    dispatch encode evaluate execute fetch find flush get handle insert load lookup match merge parse poll \
    process read release render resolve run scan send serialize set update validate write";

const QUALITIES: &str = "\
    abstract active async atomic base binary buffered cached concurrent default dynamic external generic \
    global http internal json lazy local native nested pending remote shared simple sorted";

const PACKAGES: &str = "\
    analytics api auth billing checkout codec common core dispatch fulfillment gateway http2 inventory metrics \
    net orders persistence pricing routing rpc search shipping sql util";

const GEMS: &str = "\
    actionpack-7.1.3.4 actionview-7.1.3.4 activerecord-7.1.3.4 activesupport-7.1.3.4 concurrent-ruby-1.3.4 \
    connection_pool-2.4.1 faraday-2.10.1 graphql-2.3.14 pg-1.5.7 puma-6.4.2 rack-3.1.7 railties-7.1.3.4 \
    redis-client-0.22.2 sidekiq-7.3.1";

const KERNEL: &str = "ext4 tcp ip sock futex vfs skb net_rx page blk_mq nf_hook dev_queue";

/// A path of packages or modules with a file, e.g. `/app/vendor/…/order_cache.go`.
pub(super) fn path(rng: &mut Rng, runtime: WorkloadRuntime) -> String {
    let (package, sub) = (pick(rng, PACKAGES), pick(rng, PACKAGES));
    let file = format!("{}_{}", pick(rng, QUALITIES), pick(rng, NOUNS));
    let camel = format!("{}{}", capital(pick(rng, QUALITIES)), capital(pick(rng, NOUNS)));
    match runtime {
        WorkloadRuntime::Go if rng.u8(..4) == 0 => format!("runtime/{file}.go"),
        WorkloadRuntime::Go => format!("acme/{package}/{sub}/{file}.go"),
        WorkloadRuntime::Python if rng.bool() => {
            format!("/usr/local/lib/python3.12/site-packages/{package}/{sub}/{file}.py")
        }
        WorkloadRuntime::Python => format!("/srv/app/{package}/{file}.py"),
        WorkloadRuntime::Ruby => match rng.u8(..3) {
            0 => format!("/app/{package}/{file}.rb"),
            1 => format!("/gems/{}/{file}.rb", pick(rng, GEMS)),
            _ => format!("{sub}/{file}.rb"),
        },
        WorkloadRuntime::Jvm => format!("{camel}{}.java", capital(sub)),
        WorkloadRuntime::Node => format!("/srv/app/node_modules/@acme/{package}/dist/{sub}/{file}.js"),
        WorkloadRuntime::Php => format!("/var/www/vendor/acme/{package}/src/{camel}{}.php", capital(sub)),
        WorkloadRuntime::Dotnet => format!("/src/Acme.{}/{}/{camel}.cs", capital(package), capital(sub)),
        WorkloadRuntime::Cxx => format!("/build/src/{package}/{sub}/{file}.cc"),
        WorkloadRuntime::Rust => format!("/build/crates/{package}/src/{sub}/{file}.rs"),
    }
}

/// A function name as in a profiler's output for this runtime.
pub(super) fn function(rng: &mut Rng, runtime: WorkloadRuntime) -> String {
    let (verb, noun, other) = (pick(rng, VERBS), pick(rng, NOUNS), pick(rng, NOUNS));
    let (package, sub) = (pick(rng, PACKAGES), pick(rng, PACKAGES));
    let (class, element) = (capital(noun), capital(other));
    let quality = pick(rng, QUALITIES);
    match runtime {
        WorkloadRuntime::Go => match rng.u8(..4) {
            0 => format!("runtime.{verb}{class}{element}"),
            1 => format!("acme/{package}.{}{class}{element}", capital(verb)),
            2 => format!("acme/{package}.(*{class}).{verb}{element}"),
            _ => format!("acme/{package}.(*{class}).{}{element}.func{}", capital(verb), rng.u8(1..4)),
        },
        WorkloadRuntime::Python if rng.bool() => format!("{class}{element}.{verb}_{quality}_{other}"),
        WorkloadRuntime::Python => format!("{verb}_{quality}_{noun}_{other}"),
        WorkloadRuntime::Ruby => match rng.u8(..4) {
            0 => format!("{class}#{verb}_{quality}_{other}"),
            1 => format!("{class}.{verb}_{other}_{quality}"),
            2 => format!("block in {class}#{verb}_{quality}_{other}"),
            _ => format!("{verb}_{quality}_{noun}_{other}"),
        },
        WorkloadRuntime::Jvm => format!(
            "void com.acme.{package}.{sub}.{}{class}.{verb}{element}(com.acme.{package}.{element})",
            capital(quality)
        ),
        WorkloadRuntime::Node => format!("{class}{}.{verb}{element}", capital(quality)),
        WorkloadRuntime::Php => format!("Acme\\{}\\{class}{}::{verb}{element}", capital(package), capital(quality)),
        WorkloadRuntime::Dotnet => {
            format!(
                "Acme.{}.{}{class}<System.__Canon>.{}{element}Async",
                capital(package),
                capital(quality),
                capital(verb)
            )
        }
        WorkloadRuntime::Cxx => match rng.u8(..3) {
            0 => format!("acme::{package}::{class}::{}{element}(acme::{package}::{element} const&)", capital(verb)),
            1 => {
                format!("acme::{package}::{quality}_{verb}_{other}(std::__1::basic_string<char> const&, unsigned long)")
            }
            _ => format!("std::__1::vector<acme::{package}::{class}>::__{verb}_{quality}_{other}(unsigned long)"),
        },
        WorkloadRuntime::Rust => match rng.u8(..3) {
            0 => format!("acme_{package}::{sub}::{class}{element}::{verb}_{quality}"),
            1 => format!("<acme_{package}::{class} as acme_{sub}::{element}>::{verb}_{quality}"),
            _ => format!("acme_{package}::{sub}::{verb}_{quality}_{noun}_{other}::{{{{closure}}}}"),
        },
    }
}

pub(super) fn kernel_function(rng: &mut Rng) -> String {
    format!("{}_{}_{}", pick(rng, KERNEL), pick(rng, VERBS), pick(rng, NOUNS))
}

/// A thread's name (of which the kernel keeps 15 bytes).
pub(super) fn thread(rng: &mut Rng, number: usize) -> String {
    let name = format!("{}-{}-{number}", pick(rng, NOUNS), pick(rng, VERBS));
    name[name.len().saturating_sub(15)..].to_owned()
}

/// A service's name.
pub(super) fn service(rng: &mut Rng) -> String {
    format!("{}-{}", pick(rng, PACKAGES), pick(rng, NOUNS))
}

/// Lower-case hex digits for `bytes` random bytes.
pub(super) fn hex(rng: &mut Rng, bytes: usize) -> String {
    (0..bytes).map(|_| format!("{:02x}", rng.u8(..))).collect()
}

fn pick(rng: &mut Rng, words: &'static str) -> &'static str {
    let chosen = rng.usize(..words.split(' ').count());
    words.split(' ').nth(chosen).unwrap_or_default()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
