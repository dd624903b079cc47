//! Sentry's platforms (event schema, `platform`), and what OpenTelemetry calls them.

/// Platforms, their languages (semantic conventions, `telemetry.sdk.language`; empty where there is no word for it),
/// and the type of their frames (`profile.frame.type`). Of several rows with what is looked up the first one holds.
const PLATFORMS: [(&str, &str, &str); 17] = [
    ("python", "python", "cpython"),
    ("node", "nodejs", "v8js"),
    ("javascript", "webjs", "v8js"),
    ("java", "java", "jvm"),
    ("android", "", "jvm"),
    ("go", "go", "go"),
    ("ruby", "ruby", "ruby"),
    ("php", "php", "php"),
    ("perl", "", "perl"),
    ("csharp", "dotnet", "dotnet"),
    ("dotnet", "dotnet", "dotnet"),
    ("elixir", "erlang", "beam"),
    ("cocoa", "swift", "native"),
    ("native", "cpp", "native"),
    ("c", "cpp", "native"),
    // Sentry shows programs in Rust as native ones.
    ("native", "rust", "native"),
    ("rust", "rust", "rust"),
];

/// The platform of a language.
pub(super) fn of_language(language: &str) -> &'static str {
    let found = PLATFORMS.iter().find(|(_, of, _)| *of == language && !of.is_empty());
    found.map_or("other", |(platform, ..)| platform)
}

/// The language of a platform; empty where there is no word for it.
pub(super) fn language(platform: &str) -> &'static str {
    PLATFORMS.iter().find(|(name, ..)| *name == platform).map_or("", |(_, language, _)| language)
}

/// The type of a platform's frames.
pub(super) fn frame_type(platform: &str) -> Option<&'static str> {
    PLATFORMS.iter().find(|(name, ..)| *name == platform).map(|(.., kind)| *kind)
}
