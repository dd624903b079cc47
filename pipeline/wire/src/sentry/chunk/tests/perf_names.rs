//! Tests that names from perf maps give the same frames as the runtime's own data.

use serde_json::{Value, json};

use super::frames::chunk;
use super::support::TestLocation;
use crate::sentry::chunk::Settings;

/// The platform and the only frame of a location outside of any file with this name. Checks that the result is the same
/// without a frame type and as native code.
fn frame(name: &str) -> (String, Value) {
    let mut found = Vec::new();
    let map = Some(("/tmp/perf-12.map", "", 0, 0, 0));
    let jit = Some(("[JIT] tid 12", "", 0, 0, 0));
    for (kind, mapping) in [("", None), ("native", None), ("native", map), ("", map), ("native", jit)] {
        let lines = [(name, "", 0, 0)];
        let location = TestLocation { mapping, address: 0x1234, ..TestLocation::new(kind, &lines) };
        let chunk = chunk(&[location], Settings::default());
        let platform = chunk["platform"].as_str().unwrap().to_owned();
        found.push((platform, chunk["profile"]["frames"][0].clone()));
    }
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Guarantees: a Node function is the same in every compiler tier, with file, line, column and module, and the platform
/// is Node.
#[test]
fn node() {
    for name in ["JS:*handle /srv.js:2:16", "LazyCompile:~handle /srv.js:2:16"] {
        let expected = json!({"function": "handle", "module": ":srv", "abs_path": "/srv.js", "filename": "/srv.js",
            "lineno": 2, "colno": 16, "in_app": true});
        assert_eq!(frame(name), ("node".to_owned(), expected), "{name}");
    }
    let module = frame("JS:+total file:///srv/my%20shop/cart.mjs:4:2").1;
    assert_eq!((&module["filename"], &module["in_app"]), (&json!("/srv/my shop/cart.mjs"), &json!(true)));
    for other in ["RegExp:a+", "JS:~emit node:events:465:44", "JS:*parse /srv/node_modules/qs/lib/parse.js:203:5"] {
        let (platform, frame) = frame(other);
        assert_eq!((platform.as_str(), &frame["in_app"]), ("node", &json!(false)), "{other}");
    }
}

/// Guarantees: a function of Python 3.12 has its file and module.
#[test]
fn python() {
    let expected = json!({"function": "Cart.total", "module": "shop.cart", "abs_path": "/app/shop/cart.py",
        "filename": "shop/cart.py", "in_app": true});
    assert_eq!(frame("py::Cart.total:/app/shop/cart.py"), ("python".to_owned(), expected));
    assert_eq!(frame("py::f:<frozen importlib._bootstrap>").1["in_app"], false);
}

/// Guarantees: a Java method has its class as the module in every spelling, and the virtual machine's own code is not
/// own code.
#[test]
fn java() {
    for name in ["Lcom/x/Y;::m", "com.x.Y.m", "void com.x.Y.m(int)"] {
        let expected = json!({"function": "m", "module": "com.x.Y", "in_app": true});
        assert_eq!(frame(name), ("java".to_owned(), expected), "{name}");
    }
    for name in ["Interpreter", "StubRoutines (1)", "void java.lang.Thread.run()"] {
        let (platform, frame) = frame(name);
        assert_eq!((platform.as_str(), &frame["in_app"]), ("java", &json!(false)), "{name}");
    }
}

/// Guarantees: data that the producer sends takes precedence over data from the name.
#[test]
fn known_lines_stay() {
    let lines = [("JS:*handle /srv.js:2:16", "/srv/handle.ts", 7, 0)];
    let chunk = chunk(&[TestLocation::new("v8js", &lines)], Settings::default());
    let frame = &chunk["profile"]["frames"][0];
    let said = (&frame["function"], &frame["filename"], &frame["lineno"], frame.get("colno"));
    assert_eq!(said, (&json!("handle"), &json!("/srv/handle.ts"), &json!(7), None));
}

/// Guarantees: code in a file is native whatever its name, and so is a name that no runtime generates.
#[test]
fn native_code() {
    let file = Some(("/usr/lib/libshop.so", "aa", 0, 0x10000, 0));
    for (name, mapping) in
        [("JS:*handle /srv.js:2:16", file), ("Interpreter", file), ("com.x.Y.m", file), ("shop::total(int)", None)]
    {
        let lines = [(name, "", 0, 0)];
        let location = TestLocation { mapping, address: 0x1234, ..TestLocation::new("native", &lines) };
        let chunk = chunk(&[location], Settings::default());
        assert_eq!((&chunk["platform"], &chunk["profile"]["frames"][0]["function"]), (&json!("native"), &json!(name)));
    }
}

/// Guarantees: if a sampler without runtime support named Node's functions, the platform is Node although most frames
/// are native.
#[test]
fn platform_of_stacks() {
    let mapping = Some(("/usr/bin/node", "aa", 0, 0x10000, 0));
    let machine = |lines| TestLocation { mapping, address: 0x1234, ..TestLocation::new("native", lines) };
    let own = TestLocation::new("native", &[("JS:~handle /srv.js:2:16", "", 0, 0)]);
    let (leaf, root) = (machine(&[("node::fs::Read", "", 0, 0)]), machine(&[("node::Start", "", 0, 0)]));
    let chunk = chunk(&[leaf, own, root], Settings::default());
    assert_eq!(chunk["platform"], "node");
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    let platforms: Vec<_> = frames.iter().map(|frame| frame.get("platform").cloned()).collect();
    assert_eq!(platforms, [Some(json!("native")), None, Some(json!("native"))]);
}
