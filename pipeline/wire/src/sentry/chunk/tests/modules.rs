//! Tests of modules, one for each language. Sentry distinguishes functions by module.

use proptest::prelude::*;

use super::frames::{chunk, one};
use super::support::TestLocation;
use crate::sentry::chunk::{InApp, Settings};

/// The module of a frame.
fn module(kind: &str, function: &str, file: &str) -> String {
    one(kind, function, file).1["module"].as_str().unwrap_or_default().to_owned()
}

/// The module of a frame with these roots configured.
fn module_in(roots: &[&str], kind: &str, function: &str, file: &str) -> String {
    let in_app = InApp { source_roots: roots.iter().map(|&root| root.to_owned()).collect(), ..InApp::default() };
    let lines = [(function, file, 1, 0)];
    let chunk = chunk(&[TestLocation::new(kind, &lines)], Settings { in_app, ..Settings::default() });
    chunk["profile"]["frames"][0]["module"].as_str().unwrap_or_default().to_owned()
}

fn assert_modules(kind: &str, rows: &[(&str, &str, &str)]) {
    for &(function, file, expected) in rows {
        assert_eq!(module(kind, function, file), expected, "{function} in {file}");
    }
}

fn python_frame(name: &str, system_name: &str, file: &str) -> serde_json::Value {
    let lines = [(name, file, 12, 0)];
    let location = TestLocation { system_name, ..TestLocation::new("cpython", &lines) };
    chunk(&[location], Settings::default())["profile"]["frames"][0].clone()
}

/// Guarantees: if the system name of a Python function contains the module, this module is used, and the file is shown
/// from its outermost package on, both as in Sentry's SDK. A system name that does not end with the function's name is
/// ignored. Code evaluated by a known module is own code, frozen code is not.
#[test]
fn python_modules_that_are_known() {
    let said = |name, system_name, file| {
        let frame = python_frame(name, system_name, file);
        let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("function"), name);
        (text("module"), text("filename"), frame["in_app"].as_bool().unwrap())
    };
    for (name, system_name, file, module, filename, own) in [
        ("f", "__main__.f", "/srv/shop/main.py", "__main__", "main.py", true),
        ("C.f", "shop.cart.C.f", "/srv/shop/cart.py", "shop.cart", "shop/cart.py", true),
        ("C.f", "shop.C.f", "/srv/shop/__init__.py", "shop", "__init__.py", true),
        ("f", "shop.deep.f", "/srv/shop/deep/__init__.py", "shop.deep", "shop/deep/__init__.py", true),
        ("f", "shop.cart.f", "/srv/shop/cart.pyc", "shop.cart", "shop/cart.py", true),
        // The module was imported under another name than its path suggests.
        ("f", "plugins.a.f", "/srv/x.py", "plugins.a", "/srv/x.py", true),
        ("f", "a.x.f", "/srv/ba/x.py", "a.x", "/srv/ba/x.py", true),
        ("f", "pkg.a.f", "/v/site-packages/pkg/a.py", "pkg.a", "pkg/a.py", false),
        ("f", "threading.f", "/usr/lib/python3.11/threading.py", "threading", "threading.py", false),
        ("<module>", "shop.cart.<module>", "<string>", "shop.cart", "<string>", true),
        (
            "f",
            "importlib._bootstrap.f",
            "<frozen importlib._bootstrap>",
            "importlib._bootstrap",
            "<frozen importlib._bootstrap>",
            false,
        ),
        // The module is unknown.
        ("f", "f", "/srv/x.py", "/srv/x.py", "/srv/x.py", true),
        ("f", "shop.cart.g", "/srv/x.py", "/srv/x.py", "/srv/x.py", true),
        ("f", "", "<string>", "<string>", "<string>", false),
        // This is the outermost frame.
        ("<module>", "", "<string>", "__main__", "<string>", true),
    ] {
        assert_eq!(said(name, system_name, file), (module.to_owned(), filename.to_owned(), own), "{system_name}");
    }
    assert_eq!(python_frame("f", "__main__.f", "/srv/main.py")["abs_path"], "/srv/main.py");
}

/// Guarantees: for each frame of a recorded chunk of Sentry's Python SDK, the sampler's data (function, module and
/// path) gives the same function, module, paths and in-app flag. If the SDK sends no in-app flag, Sentry excludes the
/// standard library (getsentry/vroom `internal/frame/frame.go`).
#[test]
fn recorded_python() {
    let envelope = include_str!("../../../../testdata/sentry/python-2.75-profile_chunk.envelope");
    let chunk: serde_json::Value = serde_json::from_str(envelope.lines().nth(2).unwrap()).unwrap();
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    assert!(frames.len() > 20);
    for frame in frames {
        let text = |key: &str| frame[key].as_str().unwrap();
        let whole = format!("{}.{}", text("module"), text("function"));
        let ours = python_frame(text("function"), &whole, text("abs_path"));
        for key in ["function", "module", "filename", "abs_path"] {
            assert_eq!(ours[key], frame[key], "{frame}");
        }
        assert_eq!(ours["in_app"], frame["in_app"].as_bool().unwrap_or(false), "{frame}");
    }
}

/// Guarantees: a Python file's module is the name under which it was imported, as in Sentry's SDK: exactly for
/// packages, the standard library and frozen modules, and relative to its root for the application. The module of a
/// file that cannot be imported is its path.
/// rule: sample-format-v2#frame-grouping, profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn python() {
    assert_modules(
        "cpython",
        &[
            ("f", "/venv/lib/python3.11/site-packages/sentry_sdk/profiler/utils.py", "sentry_sdk.profiler.utils"),
            ("f", "/venv/lib/python3.11/site-packages/flask/__init__.py", "flask"),
            ("f", "/usr/lib/python3/dist-packages/apt/cache.py", "apt.cache"),
            ("f", "/usr/lib/python3/dist-packages/six.py", "six"),
            ("f", "/x/lib/python2.7/site-packages/zope-1.0-py2.7.egg/zope/event.py", "zope.event"),
            ("f", "/usr/local/lib/python3.11/threading.py", "threading"),
            ("f", "/usr/lib64/python3.9/json/decoder.py", "json.decoder"),
            ("f", "/root/.pyenv/versions/3.12.1/lib/python3.12/asyncio/base_events.py", "asyncio.base_events"),
            ("f", "/opt/pypy/lib/pypy3.10/os.py", "os"),
            ("f", "/usr/lib/python311.zip/os.py", "os"),
            ("f", "<frozen importlib._bootstrap>", "importlib._bootstrap"),
            ("f", "_bootstrap_external.py", "importlib._bootstrap_external"),
            ("f", "/app/shop/cart.py", "shop.cart"),
            ("f", "/app/main.py", "main"),
            ("f", "/usr/src/app/shop/__init__.py", "shop"),
            ("f", "/app/shop/cart.pyc", "shop.cart"),
            ("f", "/code/shop/cart.py", "shop.cart"),
            ("f", "/workspace/shop/cart.py", "shop.cart"),
            ("f", "/var/task/handler.py", "handler"),
            ("f", "/srv/shop/cart.py", "/srv/shop/cart.py"),
            ("f", "/var/www/html/shop/cart.py", "/var/www/html/shop/cart.py"),
            ("f", "/opt/shop/cart.py", "/opt/shop/cart.py"),
            ("f", "/root/shop/cart.py", "/root/shop/cart.py"),
            ("f", "/home/me/shop/cart.py", "/home/me/shop/cart.py"),
            ("f", "shop/cart.py", "shop.cart"),
            ("f", "./shop/cart.py", "shop.cart"),
            ("f", "/data/etl/load.py", "/data/etl/load.py"),
            ("f", "/application/main.py", "/application/main.py"),
            ("f", "/app/v1.2/main.py", "/app/v1.2/main.py"),
            ("f", "/app/__init__.py", "/app/__init__.py"),
            ("f", "/app/run", "/app/run"),
            ("f", "<string>", "<string>"),
            ("f", "", ""),
        ],
    );
}

/// Module, file name and in-app flag of each frame in a stack of Python functions between native ones, leaf first.
fn python_stack(rows: &[(&str, &str)]) -> Vec<(String, String, bool)> {
    let lines: Vec<_> = rows.iter().map(|&(name, file)| [(name, file, 1, 0)]).collect();
    let native = TestLocation::new("native", &[("main", "", 0, 0)]);
    let mut places = vec![native];
    places.extend(lines.iter().map(|lines| TestLocation::new("cpython", lines)));
    places.extend([native, native]);
    let chunk = chunk(&places, Settings::default());
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    let text = |frame: &serde_json::Value, key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    let python = frames.iter().filter(|frame| frame["platform"] != "native");
    python.map(|frame| (text(frame, "module"), text(frame, "filename"), frame["in_app"] == true)).collect()
}

/// Guarantees: the outermost frame of Python's first thread is the program, with the module `__main__`. Files below its
/// folder are named relative to it and are own code, except for packages. With `-m` only the program is known, and the
/// outermost frames of other modules or threads are ignored.
#[test]
fn python_programs() {
    let row = |module: &str, file: &str, own| (module.to_owned(), file.to_owned(), own);
    let found = python_stack(&[
        ("total", "/usr/share/shop/cart/total.py"),
        ("get", "/usr/share/shop/venv/lib/python3.12/site-packages/flask/app.py"),
        ("<module>", "/usr/share/shop/late.py"),
        ("other", "/srv/other.py"),
        ("run", "/usr/share/shop/main.py"),
        ("<module>", "/usr/share/shop/main.py"),
    ]);
    let expected = [
        row("cart.total", "cart/total.py", true),
        row("flask.app", "flask/app.py", false),
        row("late", "late.py", true),
        row("/srv/other.py", "/srv/other.py", true),
        row("__main__", "main.py", true),
        row("__main__", "main.py", true),
    ];
    // Functions with the same file and line are one frame.
    assert_eq!(found, expected);
    let with_m = python_stack(&[
        ("f", "/srv/shop/cart.py"),
        ("<module>", "/srv/shop/__main__.py"),
        ("_run_code", "<frozen runpy>"),
        ("_run_module_as_main", "<frozen runpy>"),
    ]);
    let expected = [
        row("/srv/shop/cart.py", "/srv/shop/cart.py", true),
        row("__main__", "__main__.py", true),
        row("runpy", "<frozen runpy>", false),
        row("runpy", "<frozen runpy>", false),
    ];
    assert_eq!(with_m, expected);
    let in_a_thread = python_stack(&[("<module>", "/srv/late.py"), ("_bootstrap", "/usr/lib/python3.12/threading.py")]);
    assert_eq!(in_a_thread[0].0, "/srv/late.py");
    let script = python_stack(&[("f", "/usr/bin/tool"), ("<module>", "/usr/bin/tool")]);
    assert_eq!(script[0], row("__main__", "tool", true));
}

/// Guarantees: functions that Jinja compiles from a template have no module, as in Sentry's SDK, while other functions
/// of the same name have one.
#[test]
fn templates() {
    let rows = [
        ("root", "/app/templates/index.html", ""),
        ("block_body", "templates/index.html", ""),
        ("root", "<template>", "<template>"),
        ("root", "/app/tree.py", "tree"),
        ("total", "/app/templates/index.html", "/app/templates/index.html"),
    ];
    assert_modules("cpython", &rows);
}

/// Guarantees: a Node file's module is the one that Sentry's profiler for Node derives from the script's name.
/// rule: profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn node() {
    assert_modules(
        "v8js",
        &[
            ("f", "/app/node_modules/@sentry/core/build/cjs/profiling.js", "@sentry.core.build.cjs:profiling"),
            ("f", "/a/node_modules/b/node_modules/qs/parse.js", "qs:parse"),
            ("f", "/a/node_modules/x.js", "x"),
            ("f", "/app/src/routes.js", "app.src:routes"),
            ("f", "/app/app.cjs", "app:app.cjs"),
            ("f", "file:///app/node_modules/x/y.mjs", "x:y.mjs"),
            ("f", "file:///app/main.mjs", "file:...app:main.mjs"),
            ("f", "node:internal/modules/cjs/loader", "node:internal.modules.cjs:loader"),
            ("f", "node:fs", "node:fs"),
            ("f", "/srv.js", ":srv"),
            ("f", "srv.js", ":srv"),
            ("f", "", ""),
        ],
    );
}

/// Guarantees: the outer module in a Ruby name is its module, as in Sentry's SDK. A name with a class needs no module.
/// A name with neither gets the file as its module: below the gem or the standard library, or else the path.
#[test]
fn ruby() {
    assert_modules(
        "ruby",
        &[
            ("ActionController::Metal#dispatch", "/gems/actionpack-7.1.3/lib/metal.rb", "ActionController"),
            ("A::B::C.of", "/app/c.rb", "A::B"),
            ("block in Shop::Cart#total", "/app/cart.rb", "block in Shop"),
            ("Cart#total", "/app/models/cart.rb", ""),
            ("rescue in Cart.of", "/app/models/cart.rb", ""),
            ("total", "/app/models/cart.rb", "/app/models/cart.rb"),
            ("Object#total", "/app/models/cart.rb", "/app/models/cart.rb"),
            ("<main>", "/data/run.rb", "/data/run.rb"),
            ("<main>", "/usr/local/bundle/gems/puma-6.4.2/bin/puma", "gems/puma/bin/puma"),
            ("total", "/app/gems/cart/total.rb", "/app/gems/cart/total.rb"),
            ("load", "/usr/lib/ruby/3.1.0/json/common.rb", "lib/ruby/json/common.rb"),
            ("load", "/usr/lib/ruby/vendor_ruby/3.1.0/json/common.rb", "lib/ruby/json/common.rb"),
        ],
    );
    assert_eq!(one("ruby", "A::B::C.of", "/app/c.rb").1["function"], "C.of");
}

/// Guarantees: a PHP method's module is its class, which also stays in the name, as in Sentry's SDK; the module of
/// other functions is the file.
#[test]
fn php() {
    assert_modules(
        "php",
        &[
            ("App\\Cart::total", "/app/src/Cart.php", "App\\Cart"),
            ("App\\Cart::{closure}", "/var/www/html/vendor/x/y.php", "App\\Cart"),
            ("total", "/var/www/html/cart.php", "/var/www/html/cart.php"),
            ("<top-level>", "/var/www/shop/index.php", "/var/www/shop/index.php"),
            ("render", "/var/www/shop/vendor/twig/twig/src/functions.php", "vendor/twig/twig/src/functions.php"),
            ("strlen", "", ""),
        ],
    );
    assert_eq!(one("php", "App\\Cart::total", "/app/src/Cart.php").1["function"], "App\\Cart::total");
}

/// Guarantees: the module of functions of Perl and Lua, and of BEAM functions without a module in the name, is the
/// file: below the folder of libraries, or else the path.
#[test]
fn by_path() {
    let perl = [
        ("Cart::total", "/app/lib/Cart.pm", "/app/lib/Cart.pm"),
        ("JSON::encode", "/usr/share/perl/5.36/JSON.pm", "perl5/JSON.pm"),
        ("JSON::encode", "/usr/local/share/perl5/5.36/JSON.pm", "perl5/JSON.pm"),
        ("POSIX::floor", "/usr/lib/x86_64-linux-gnu/perl/5.36/POSIX.pm", "perl5/POSIX.pm"),
        ("main::total", "/data/total.pl", "/data/total.pl"),
    ];
    assert_modules("perl", &perl);
    let lua = [
        ("total", "/app/cart.lua", "/app/cart.lua"),
        ("new", "/usr/share/lua/5.1/resty/core.lua", "lualib/resty/core.lua"),
        ("new", "/usr/local/openresty/lualib/resty/core.lua", "lualib/resty/core.lua"),
        ("total", "/app/shop/lua/cart.lua", "/app/shop/lua/cart.lua"),
    ];
    assert_modules("luajit", &lua);
    let beam = [
        ("Elixir.Shop.Cart:total/2", "lib/shop/cart.ex", "Shop.Cart"),
        ("Shop.Cart.total/2", "lib/shop/cart.ex", "Shop.Cart"),
        ("Shop.Cart.-total/2-fun-0-/1", "lib/shop/cart.ex", "Shop.Cart"),
        ("lists:map/2", "lists.erl", "lists"),
        ("total/2", "lib/shop/cart.ex", "lib/shop/cart.ex"),
        ("total/2", "/app/lib/shop/cart.ex", "/app/lib/shop/cart.ex"),
    ];
    assert_modules("beam", &beam);
}

/// Guarantees: the operator's roots take precedence over conventional ones, and the deepest root over others; roots are
/// matched folder by folder, and `*` matches any folder.
#[test]
fn roots() {
    for (roots, file, expected) in [
        (&["/opt/shop"][..], "/opt/shop/shop/cart.py", "shop.cart"),
        (&["/opt/shop/"], "/opt/shop/shop/cart.py", "shop.cart"),
        (&["/opt/shop"], "/opt/shopper/cart.py", "/opt/shopper/cart.py"),
        (&["/data", "/data/etl"], "/data/etl/load.py", "load"),
        (&["/data/etl", "/data"], "/data/etl/load.py", "load"),
        (&["/home/*/src"], "/home/me/src/shop/cart.py", "shop.cart"),
        (&["/"], "/data/load.py", "data.load"),
        (&["lib"], "lib/shop/cart.py", "shop.cart"),
        (&["lib"], "/lib/shop/cart.py", "/lib/shop/cart.py"),
        (&["/data/load.py"], "/data/load.py", "/data/load.py"),
        (&["/data"], "/data/venv/lib/python3.12/site-packages/flask/app.py", "flask.app"),
    ] {
        assert_eq!(module_in(roots, "cpython", "f", file), expected, "{file} in {roots:?}");
    }
    for (kind, file, expected) in [
        ("ruby", "/data/load.rb", "load.rb"),
        ("php", "/data/load.php", "load.php"),
        ("perl", "/data/lib/Load.pm", "lib/Load.pm"),
        ("luajit", "/data/load.lua", "load.lua"),
        ("beam", "/data/lib/load.ex", "lib/load.ex"),
    ] {
        assert_eq!(module_in(&["/data"], kind, "f", file), expected, "{file}");
    }
    assert_eq!(module_in(&["/app"], "v8js", "f", "/app/load.js"), "app:load");
}

/// The file extensions of languages and the types of their frames.
const LANGUAGES: [(&str, &str); 7] = [
    ("cpython", "py"),
    ("v8js", "js"),
    ("ruby", "rb"),
    ("php", "php"),
    ("perl", "pm"),
    ("luajit", "lua"),
    ("beam", "ex"),
];

/// The documented collisions: a Python module below two conventional roots, a path relative to a root, and a module
/// next to a package of the same name. Guarantees: configuring the actual roots resolves the first one, and `/` then
/// applies to all other files.
#[test]
fn what_merges() {
    for same in ["/app/users.py", "/code/users.py", "users.py", "/app/users/__init__.py"] {
        assert_eq!(module("cpython", "f", same), "users", "{same}");
    }
    let roots = ["/", "/app"];
    assert_eq!(module_in(&roots, "cpython", "f", "/app/users.py"), "users");
    assert_eq!(module_in(&roots, "cpython", "f", "/code/users.py"), "code.users");
    // Files outside of conventional roots differ until roots are configured.
    let roots = ["/srv", "/home/*"];
    for (file, configured) in [("/srv/main.py", "main"), ("/home/u1/main.py", "main"), ("/app/main.py", "main")] {
        assert_eq!(module_in(&roots, "cpython", "f", file), configured);
    }
    let files =
        ["/srv/main.py", "/home/u1/main.py", "/home/u2/main.py", "/app/main.py", "/opt/main.py", "/root/main.py"];
    let modules: std::collections::BTreeSet<_> = files.map(|file| module("cpython", "f", file)).into();
    assert_eq!(modules.len(), files.len(), "{modules:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: any two files in any folders, or equally named files of two languages, have two modules, except
    /// below two conventional roots (see `what_merges`). (Node's rule converts slashes to dots, so a folder with a dot
    /// can look like two: Sentry's own profiler does the same.)
    #[test]
    fn any_two_files(
        (left, right) in (path(), path()),
        (first, second) in (0..LANGUAGES.len(), 0..LANGUAGES.len())
    ) {
        prop_assume!((&left, first) != (&right, second));
        let file = |path: &str, language: usize| format!("{path}.{}", LANGUAGES[language].1);
        let (left, right) = (file(&left, first), file(&right, second));
        let modules = (module(LANGUAGES[first].0, "f", &left), module(LANGUAGES[second].0, "f", &right));
        prop_assert_ne!(&modules.0, &modules.1, "{} and {}", left, right);
    }
}

fn path() -> impl Strategy<Value = String> {
    "/(app|srv|opt|root|home/me|home/you|data|var/www/html|lib|src)(/(a|b|lib|shop|main|app)){1,3}"
}
