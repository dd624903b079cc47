//! The module of a source file, for the languages and layouts in the workloads.

/// The module of a function in a file, for functions whose name has none.
pub(super) fn module(frame_type: &str, function: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    match frame_type {
        "cpython" => Some(python(path)),
        "v8js" => Some(node(path)),
        // A Ruby class is a single module, wherever its parts are defined.
        "ruby" if function.split(' ').next_back().is_some_and(|last| last.contains(['#', '.'])) => None,
        "ruby" => Some(match after(path, "/gems/").and_then(|rest| rest.split_once('/')) {
            Some((gem, rest)) => format!("gems/{}/{rest}", gem.rsplit_once('-').map_or(gem, |(name, _)| name)),
            None => path.to_owned(),
        }),
        "php" => Some(match after(path, "/vendor/") {
            Some(rest) => format!("vendor/{rest}"),
            None => path.to_owned(),
        }),
        "perl" | "beam" | "luajit" => Some(path.to_owned()),
        _ => None,
    }
}

/// The name under which Python imports the file.
fn python(path: &str) -> String {
    let standard = || path.split_once("/lib/python3.").and_then(|(_, rest)| rest.split_once('/')).map(|(_, rest)| rest);
    let found = after(path, "/site-packages/").or_else(standard).unwrap_or_else(|| below_root(path));
    match found.strip_suffix(".py") {
        Some(stem) if !found.starts_with('/') => stem.trim_end_matches("/__init__").replace('/', "."),
        _ => path.to_owned(),
    }
}

/// Node modules: `@acme/shop/dist/cart.js` is `@acme.shop.dist:cart`.
fn node(path: &str) -> String {
    let stem = path.strip_suffix(".js").unwrap_or(path);
    let rest = after(stem, "node_modules/").unwrap_or(stem);
    let dots = match rest.rsplit_once('/') {
        Some((folder, file)) => format!("{}:{file}", folder.replace('/', ".")),
        None => rest.to_owned(),
    };
    dots.strip_prefix('.').unwrap_or(&dots).to_owned()
}

/// The path below a folder where container images keep modules that Python imports.
fn below_root(path: &str) -> &str {
    let roots = ["/app/", "/usr/src/app/", "/code/", "/workspace/", "/var/task/"];
    roots.iter().find_map(|root| path.strip_prefix(root)).unwrap_or(path)
}

fn after<'a>(path: &'a str, part: &str) -> Option<&'a str> {
    path.rsplit_once(part).map(|(_, rest)| rest)
}
