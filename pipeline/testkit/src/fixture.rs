//! One request with the shapes of real producers' data, for tests that need no downloads. The bytes are always the
//! same.
//!
//! - [`ebpf`]: the eBPF profiler (opentelemetry-ebpf-profiler `reporter/internal/pdata/generate.go`): a resource per
//!   container with `process.*` on samples, as in releases before 2026; a resource per process for each interpreter; a
//!   profile of blocked time.
//! - [`pprof`]: a Go CPU profile as converted by the Collector's pprof receiver: values only, one profile per sample
//!   type.
//! - [`async_profiler`]: Java, with values and timestamps, class names in the function's name, no mappings.
//!
//! [`request`] combines all of them; each function also extends any builder.

use crate::naive::basename;
use crate::{ExportProfilesServiceRequest, Frame, RequestBuilder, T0};

/// The period of the eBPF profiler's on-CPU profile: 20 Hz.
pub const PERIOD: u64 = 50_000_000;

/// The interpreters' processes: service, pid, executable, and three stacks, leaf first.
type Interpreter = (&'static str, i64, &'static str, [&'static [&'static str]; 3]);

const INTERPRETERS: [Interpreter; 7] = [
    (
        "reports",
        1201,
        "/usr/local/bin/python3.12",
        [
            &[
                "cpython!render_table@/srv/app/reports/render.py:88",
                "cpython!render@/srv/app/reports/render.py:31",
                "cpython!wsgi_app@/usr/local/lib/python3.12/site-packages/flask/app.py:1511",
                "cpython!<module>@/srv/app/main.py:9",
                "native!python3.12+0x1d4c20",
                "native!libc.so.6+0x271c9",
            ],
            &[
                "native!libz.so.1+0x9c40",
                "cpython!compress@/usr/local/lib/python3.12/gzip.py:619",
                "cpython!render@/srv/app/reports/render.py:44",
                "cpython!wsgi_app@/usr/local/lib/python3.12/site-packages/flask/app.py:1511",
                "cpython!<module>@/srv/app/main.py:9",
                "native!python3.12+0x1d4c20",
                "native!libc.so.6+0x271c9",
            ],
            &[
                "kernel!tcp_sendmsg_locked",
                "kernel!tcp_sendmsg",
                "kernel!__x64_sys_sendto",
                "native!libc.so.6+0x11f2a4",
                "cpython!send@/usr/local/lib/python3.12/socket.py:721",
                "cpython!<module>@/srv/app/main.py:9",
                "native!python3.12+0x1d4c20",
            ],
        ],
    ),
    (
        "storefront",
        1302,
        "/usr/local/bin/node",
        [
            &[
                "v8js!renderProduct@/srv/app/src/product.js:41:17",
                "v8js!handle@/srv/app/node_modules/express/lib/router/layer.js:95",
                "v8js!processTicksAndRejections@node:internal/process/task_queues:95",
                "native!node+0xb71f40",
            ],
            &[
                "v8js!parse@/srv/app/node_modules/qs/lib/parse.js:203:5",
                "v8js!handle@/srv/app/node_modules/express/lib/router/layer.js:95",
                "v8js!processTicksAndRejections@node:internal/process/task_queues:95",
                "native!node+0xb71f40",
            ],
            &[
                "v8js!V8::ExitFrame",
                "v8js!writeSync@node:fs:912",
                "v8js!log@/srv/app/src/log.js:7",
                "native!node+0xb71f40",
            ],
        ],
    ),
    (
        "orders",
        1403,
        "/opt/java/openjdk/bin/java",
        [
            &[
                "jvm!int java.util.Random.next(int)@Random.java:204",
                "jvm!void com.acme.orders.Pricing.jitter(long)@Pricing.java:57",
                "jvm!void com.acme.orders.OrderService.place(com.acme.orders.Order)@OrderService.java:112",
                "jvm!void java.lang.Thread.run()@Thread.java:1583",
                "jvm!StubRoutines (1) [call_stub_return_address]",
                "native!libjvm.so+0x7f11c0",
                "native!libc.so.6+0x94ac3",
            ],
            &[
                "jvm!java.lang.String com.acme.orders.Json.write(java.lang.Object)@Json.java:33",
                "jvm!void com.acme.orders.OrderService.place(com.acme.orders.Order)@OrderService.java:119",
                "jvm!void java.lang.Thread.run()@Thread.java:1583",
                "native!libjvm.so+0x7f11c0",
            ],
            &["native!libjvm.so+0x62a010", "native!libjvm.so+0x62b7d4", "native!libc.so.6+0x94ac3"],
        ],
    ),
    (
        "inventory",
        1504,
        "/usr/local/bin/inventory",
        [
            &[
                "go!runtime.mallocgc@runtime/malloc.go:1012",
                "go!acme/inventory.(*Store).Reserve@acme/inventory/store.go:77",
                "go!acme/inventory.(*Server).Handle@acme/inventory/server.go:140",
                "go!net/http.(*conn).serve@net/http/server.go:2092",
                "go!runtime.goexit@runtime/asm_amd64.s:1700",
            ],
            &[
                "go!acme/inventory.(*Store).compact.func1@acme/inventory/store.go:131",
                "go!runtime.goexit@runtime/asm_amd64.s:1700",
            ],
            &[
                "kernel!ep_poll",
                "kernel!do_epoll_wait",
                "go!internal/runtime/syscall.Syscall6@internal/runtime/syscall/asm_linux_amd64.s:36",
                "go!runtime.netpoll@runtime/netpoll_epoll.go:117",
                "go!runtime.mcall@runtime/asm_amd64.s:459",
            ],
        ],
    ),
    (
        "billing",
        1605,
        "/usr/local/bin/ruby",
        [
            &[
                "ruby!Integer#times",
                "ruby!Invoice#total@/app/models/invoice.rb:19",
                "ruby!block in InvoicesController#show@/app/controllers/invoices_controller.rb:12",
                "ruby!ActionController::Metal#dispatch@/gems/actionpack-7.1.3.4/lib/action_controller/metal.rb:309",
                "ruby!<main>@/gems/puma-6.4.2/bin/puma:10",
                "native!libruby.so.3.3+0x2a1f30",
            ],
            &[
                "ruby!PG::Connection#exec_params@/gems/pg-1.5.7/lib/pg.rb:63",
                "ruby!Invoice.overdue@/app/models/invoice.rb:41",
                "ruby!<main>@/gems/puma-6.4.2/bin/puma:10",
                "native!libruby.so.3.3+0x2a1f30",
            ],
            &[
                "ruby!Invoice#to_pdf@/app/models/invoice.rb:77",
                "ruby!<main>@/gems/puma-6.4.2/bin/puma:10",
                "native!libruby.so.3.3+0x2a1f30",
            ],
        ],
    ),
    (
        "shop",
        1706,
        "/usr/local/sbin/php-fpm",
        [
            &[
                "php!Acme\\Shop\\Cart::total@/var/www/src/Cart.php:90",
                "php!Acme\\Shop\\Kernel::handle@/var/www/src/Kernel.php:22",
                "php!<interpreter>@/var/www/public/index.php:8",
                "native!php-fpm+0x3d1aa0",
            ],
            &[
                "php!Twig\\Template::render@/var/www/vendor/twig/twig/src/Template.php:361",
                "php!Acme\\Shop\\Kernel::handle@/var/www/src/Kernel.php:25",
                "php!<interpreter>@/var/www/public/index.php:8",
                "native!php-fpm+0x3d1aa0",
            ],
            &[
                "php!preg_replace",
                "php!Acme\\Shop\\Slug::of@/var/www/src/Slug.php:14",
                "php!<interpreter>@/var/www/public/index.php:8",
                "native!php-fpm+0x3d1aa0",
            ],
        ],
    ),
    (
        "ledger",
        1807,
        "/usr/share/dotnet/dotnet",
        [
            &[
                "dotnet!Acme.Ledger.Book.Post(Entry)@/src/Ledger/Book.cs:58",
                "dotnet!Acme.Ledger.Api.Handle()@/src/Ledger/Api.cs:21",
                "dotnet!System.Threading.ThreadPoolWorkQueue.Dispatch()",
                "native!libcoreclr.so+0x5e1140",
            ],
            &[
                "dotnet!System.Text.Json.Utf8JsonWriter.Flush()",
                "dotnet!Acme.Ledger.Api.Handle()@/src/Ledger/Api.cs:24",
                "dotnet!System.Threading.ThreadPoolWorkQueue.Dispatch()",
                "native!libcoreclr.so+0x5e1140",
            ],
            &["native!libclrgc.so+0x21090", "native!libcoreclr.so+0x5e1140"],
        ],
    ),
];

/// All producers in one request.
pub fn request() -> ExportProfilesServiceRequest {
    async_profiler(pprof(ebpf(RequestBuilder::new()))).build()
}

/// The eBPF profiler's resources.
pub fn ebpf(builder: RequestBuilder) -> RequestBuilder {
    let mut builder = shared_container(builder);
    for (number, (service, pid, executable, stacks)) in INTERPRETERS.into_iter().enumerate() {
        builder = interpreter(builder, number as u64, (service, pid, executable, stacks));
    }
    builder
}

/// Two native processes in one container, distinguished by `process.*` on their samples.
fn shared_container(builder: RequestBuilder) -> RequestBuilder {
    let sort = [
        Frame::inlined([
            "core::slice::sort::merge@/rustc/90b35a6/library/core/src/slice/sort.rs:801",
            "sorter::run@/build/sorter/src/main.rs:44",
        ])
        .kind("rust")
        .mapping("sorter", 0x6_1f2c),
        Frame::from("rust!sorter::main@/build/sorter/src/main.rs:12").mapping("sorter", 0x6_0a10),
        Frame::from("native!libc.so.6+0x271c9"),
    ];
    let idle = placed(
        "agent",
        &[
            "kernel!schedule",
            "kernel!futex_wait_queue",
            "kernel!__x64_sys_futex",
            "native!libc.so.6+0x91014",
            "native!agent+0x2b3f0",
        ],
    );
    let process = |builder: RequestBuilder, pid: i64, executable: &str| {
        builder
            .attr("process.pid", pid)
            .attr("process.executable.name", basename(executable))
            .attr("process.executable.path", executable)
    };
    let mut builder = builder
        .resource()
        .attr("container.id", "6ad3c930c936050866dfe2262244430b843010791d6e3b9dda1b2bf52fbc93df")
        .attr("service.name", "batch")
        .on_cpu(20)
        .sample(&sort, 501, &ticks(0, 0..40))
        .thread_name("sorter");
    builder = process(builder, 501, "/usr/local/bin/sorter");
    // The same thread after a pause, during a span.
    builder = builder.sample(&sort[1..], 501, &ticks(0, 60..70)).thread_name("sorter").link([0x5b; 16], [0x11; 8]);
    builder = process(builder, 501, "/usr/local/bin/sorter");
    // A single observation of a thread.
    builder = builder.sample(&idle, 612, &ticks(3, 17..18)).thread_name("agent-poll");
    builder = process(builder, 610, "/usr/local/bin/agent");
    builder = builder.sample(&idle[3..], 610, &ticks(5, 20..24)).thread_name("agent");
    process(builder, 610, "/usr/local/bin/agent")
}

/// The frames of a stack with the positions that the eBPF profiler reports: Go and kernel frames have addresses in
/// their binaries, interpreted frames have a small bytecode index.
fn placed(executable: &str, stack: &[&str]) -> Vec<Frame> {
    let place = |(position, text): (usize, &&str)| {
        let number: u64 = text.bytes().map(u64::from).sum();
        let frame = Frame::from(*text);
        match text.split_once('!') {
            Some(("native", _)) => frame,
            Some(("go", _)) => frame.mapping(basename(executable), 0x2000 + number * 97),
            Some(("kernel", _)) => frame.mapping("vmlinux", 0x4_0000 + number * 89),
            _ => frame.address(number % 300 + position as u64),
        }
    };
    stack.iter().enumerate().map(place).collect()
}

/// A process with an on-CPU and an off-CPU profile: two threads, one of them busy in bursts, one observation in ten
/// with a link.
fn interpreter(builder: RequestBuilder, number: u64, process: Interpreter) -> RequestBuilder {
    let (service, pid, executable, stacks) = process;
    let [first, second, third] = stacks.map(|stack| placed(executable, stack));
    builder
        .resource()
        .attr("service.name", service)
        .attr("service.version", format!("1.{number}.0"))
        .attr("container.id", format!("{:064x}", 0x1e82_d7e1_9251_ec59_u64.wrapping_mul(number + 1)))
        .attr("process.pid", pid)
        .attr("process.executable.name", basename(executable))
        .attr("process.executable.path", executable)
        .on_cpu(20)
        .sample(&first, pid, &ticks(number, 0..30))
        .thread_name("main")
        .sample(&second, pid, &ticks(number, 30..36))
        .thread_name("main")
        .link([number as u8 + 1; 16], [number as u8 + 0x21; 8])
        .sample(&first, pid, &ticks(number, 36..50))
        .thread_name("main")
        .sample(&third, pid + 3, &[ticks(number + 7, 4..9), ticks(number + 7, 52..59)].concat())
        .thread_name("worker-1")
        .attr("cpu.logical_number", number as i64)
        .sample(&second, pid + 3, &ticks(number + 7, 9..13))
        .thread_name("worker-1")
        .off_cpu()
        .blocked(&third, pid, &[(T0 + 2_600_000_000, 71_000_000), (T0 + 3_100_000_000, 350_000_000)])
        .thread_name("main")
}

/// A Go CPU profile of 10 s from the pprof receiver: the same stacks once as counts and once as nanoseconds.
pub fn pprof(builder: RequestBuilder) -> RequestBuilder {
    let serve = ["net/http.(*conn).serve@/usr/local/go/src/net/http/server.go:2092"];
    let stacks: [(&[&str], i64); 3] = [
        (&["runtime.mallocgc@/usr/local/go/src/runtime/malloc.go:1012", "main.encode@/src/gateway/encode.go:58"], 412),
        (
            &[
                "crypto/sha256.block@/usr/local/go/src/crypto/sha256/sha256block.go:83",
                "main.sign@/src/gateway/sign.go:21",
            ],
            655,
        ),
        (&["main.route@/src/gateway/route.go:17"], 1),
    ];
    let open = |builder: RequestBuilder, kind: &str, unit: &str| {
        builder.profile(kind, unit).period("cpu", "nanoseconds", 10_000_000).range(T0, 10_000_000_000)
    };
    let resource = builder
        .resource()
        .scope("github.com/open-telemetry/opentelemetry-collector-contrib/receiver/pprofreceiver", "0.159.0")
        .attr("service.name", "gateway")
        .attr("service.instance.id", "9d6a4e0e-2b0e-4d2c-8c3f-1b7a5e6f9c01");
    let counts = stacks.iter().fold(open(resource, "samples", "count"), |builder, (stack, count)| {
        builder.value(&[*stack, &serve].concat(), *count)
    });
    stacks.iter().fold(open(counts, "cpu", "nanoseconds"), |builder, (stack, count)| {
        builder.value(&[*stack, &serve].concat(), count * 10_000_000)
    })
}

/// A Java CPU profile of async-profiler: values and timestamps, 10 ms apart.
pub fn async_profiler(builder: RequestBuilder) -> RequestBuilder {
    let pairs = |ticks: std::ops::Range<u64>| -> Vec<(u64, i64)> {
        ticks.map(|tick| (T0 + tick * 10_000_000, 10_000_000)).collect()
    };
    builder
        .resource()
        .scope("async-profiler", "4.1")
        .attr("service.name", "search")
        .attr("host.name", "search-7f9c")
        .attr("process.pid", 1)
        .profile("cpu", "nanoseconds")
        .period("cpu", "nanoseconds", 10_000_000)
        .blocked(
            &["jvm!java.util.HashMap.getNode", "jvm!com.acme.search.Index.lookup", "jvm!java.lang.Thread.run"],
            31,
            &pairs(0..120),
        )
        .thread_name("query-1")
        .blocked(&["jvm!com.acme.search.Ranker.score", "jvm!java.lang.Thread.run"], 31, &pairs(120..180))
        .thread_name("query-1")
        .blocked(&["native!libjvm.so+0x62a010", "start_thread"], 9, &pairs(40..55))
        .thread_name("G1 Conc#0")
}

/// Times at 20 Hz; each CPU has its own phase and some jitter.
fn ticks(cpu: u64, ticks: std::ops::Range<u64>) -> Vec<u64> {
    ticks.map(|tick| T0 + cpu * 2_700_000 + tick * PERIOD + tick * 7_919 % 31 * 1_000).collect()
}
