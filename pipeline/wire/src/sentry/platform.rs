//! Sentry's platforms (event schema, `platform`), and their names in OpenTelemetry.

/// Platforms, their languages (semantic conventions, `telemetry.sdk.language`; empty if it has no name for it), and the
/// type of their frames (`profile.frame.type`). Lookups return the first matching row.
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
    // Sentry shows Rust programs as native ones.
    ("native", "rust", "native"),
    ("rust", "rust", "rust"),
];

/// The platform of a language.
pub(super) fn of_language(language: &str) -> &'static str {
    let found = PLATFORMS.iter().find(|(_, of, _)| *of == language && !of.is_empty());
    found.map_or("other", |(platform, ..)| platform)
}

/// The language of a platform; empty if OpenTelemetry has no name for it.
pub(super) fn language(platform: &str) -> &'static str {
    PLATFORMS.iter().find(|(name, ..)| *name == platform).map_or("", |(_, language, _)| language)
}

/// The type of a platform's frames.
pub(super) fn frame_type(platform: &str) -> Option<&'static str> {
    PLATFORMS.iter().find(|(name, ..)| *name == platform).map(|(.., kind)| *kind)
}
