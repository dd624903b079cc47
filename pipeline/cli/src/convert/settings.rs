//! `--set`: the configuration keys that apply to a conversion, by their paths in the configuration file.

use std::collections::BTreeMap;

use profbridge_codec::sentry::ChunkConfig;
use profbridge_engine::config::{Problem, Problems, Section, Source, keys};
use profbridge_engine::service::ServiceSettings;
use profbridge_exporter_sentry::SpanMode;
use profbridge_identity::Rules;
use profbridge_wire::sentry::chunk;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Failure;
use crate::destination::Format;
use crate::output::MERGE;

/// The configuration of an output.
pub(super) struct Settings {
    /// The section of the processor that the output needs: `chunk` for Sentry, `dedup` for OTLP.
    pub(super) processor: Section,
    /// The section of the processor that groups spans for Sentry.
    pub(super) transactions: Section,
    /// Identifies processes and their windows.
    pub(super) identity: Rules,
    /// How chunks are created.
    pub(super) chunk: chunk::Settings,
    /// What spans become.
    pub(super) spans: SpanMode,
}

/// The key about spans of the section `exporters.sentry`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SpanConfig {
    spans: SpanMode,
}

/// The sections that apply, by output format.
fn sections(format: Format, spans: SpanMode) -> &'static [(&'static str, &'static str)] {
    match format {
        Format::Sentry => {
            &[("exporters", "sentry"), ("processors", "chunk"), ("processors", "transactions"), ("service", "identity")]
        }
        Format::Otlp | Format::OtlpJson if spans == SpanMode::Otlp => {
            &[("processors", "dedup"), ("exporters", "sentry")]
        }
        Format::Otlp | Format::OtlpJson => &[("processors", "dedup")],
        Format::Pprof | Format::Folded | Format::Svg | Format::Html | Format::Speedscope | Format::Firefox => &[],
    }
}

/// The paths that apply, as a list for messages.
fn in_words(format: Format) -> String {
    match format {
        Format::Sentry => {
            let keys = keys::<ChunkConfig>().iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            format!(
                "of `exporters.sentry` `spans`, {keys} have a meaning here, and all of `processors.chunk`, `processors.transactions` and \
                 `service.identity`"
            )
        }
        Format::Otlp | Format::OtlpJson => "where OTLP is written `processors.dedup` has a meaning, and of \
             `exporters.sentry` `spans: otlp` with `environment`"
            .to_owned(),
        Format::Pprof
        | Format::Folded
        | Format::Svg
        | Format::Html
        | Format::Speedscope
        | Format::Firefox => {
            "pprof, stacks and views are written as they are; where Sentry envelopes or OTLP are written there is something to set"
                .to_owned()
        }
    }
}

impl Settings {
    /// Parses the assignments.
    ///
    /// # Errors
    ///
    /// Everything wrong with them, including keys that do not apply to the format, each at its place.
    pub(super) fn read(assignments: &[String], format: Format) -> Result<Self, Failure> {
        Self::check(assignments, format)
            .map_err(|problems| Failure(format!("{problems} in what `--set` says; nothing was converted")))
    }

    fn check(assignments: &[String], format: Format) -> Result<Self, Problems> {
        // The defaults of a conversion.
        let built_in = match format {
            Format::Otlp | Format::OtlpJson => {
                Some(Source::Text { name: "convert".to_owned(), text: format!("processors: {{dedup: {MERGE}}}") })
            }
            _ => None,
        };
        let sets = assignments.iter().map(|assignment| Source::Set(assignment.clone()));
        let sources: Vec<Source> = built_in.into_iter().chain(sets).collect();
        let root = Section::load(&sources, &|name| std::env::var(name).ok())?;
        let mut problems = Vec::new();
        let sentry = root.below("exporters.sentry");
        let (chunk, spans) = sentry_settings(&sentry, format, &mut problems);
        meaningless(&root, format, spans, &mut problems)?;
        if format == Format::Sentry && spans == SpanMode::Otlp {
            let hint = "write them into a file that ends with .otlp or .otlp.json, or leave `spans` out";
            problems.push(sentry.problem("spans", "spans in OTLP are not in envelopes", hint));
        }
        let (path, create) = match format {
            Format::Otlp | Format::OtlpJson => ("processors.dedup", profbridge_processor_dedup::FACTORY.create),
            _ => ("processors.chunk", profbridge_processor_chunk::FACTORY.create),
        };
        let processor = root.below(path);
        let identity = match ServiceSettings::new(&root.below("service")) {
            Ok(service) => service.identity,
            Err(found) => {
                problems.extend(found);
                Rules::default()
            }
        };
        let transactions = root.below("processors.transactions");
        // Creates each component once to check its section.
        for (section, create) in
            [(&processor, create), (&transactions, profbridge_processor_transactions::FACTORY.create)]
        {
            problems.extend(create(section, &identity).err().into_iter().flatten());
        }
        Problems::check(problems)?;
        Ok(Self { processor, transactions, identity, chunk, spans })
    }
}

/// Reports all keys that do not apply, except those in sections of components that do.
fn meaningless(root: &Section, format: Format, spans: SpanMode, problems: &mut Vec<Problem>) -> Result<(), Problems> {
    let hint = in_words(format);
    for (part, _) in root.extract::<BTreeMap<String, IgnoredAny>>()? {
        if !["exporters", "processors", "service"].contains(&part.as_str()) {
            let what = format!("`{part}` has no meaning for a conversion");
            problems.push(root.problem(&format!("\"{part}\""), what, &hint));
            continue;
        }
        let section = root.below(&part);
        for (component, _) in section.extract::<BTreeMap<String, IgnoredAny>>()? {
            if !sections(format, spans).contains(&(&part, &component)) {
                let what = match part.strip_suffix('s') {
                    Some(kind) => format!("the {kind} `{component}` is no part of this conversion"),
                    None => format!("`{part}.{component}` has no meaning for this conversion"),
                };
                problems.push(section.problem(&format!("\"{component}\""), what, &hint));
            }
        }
    }
    Ok(())
}

/// The keys of the Sentry exporter for creating chunks and spans. Its other keys are about sending.
fn sentry_settings(section: &Section, format: Format, problems: &mut Vec<Problem>) -> (chunk::Settings, SpanMode) {
    let found = match section.extract_parts::<SpanConfig, ChunkConfig>() {
        Ok((SpanConfig { spans }, config)) => return (config.check(section, problems), spans),
        Err(found) => found,
    };
    let about_sending = keys::<profbridge_exporter_sentry::Config>();
    problems.extend(found.into_iter().map(|problem| {
        match about_sending
            .iter()
            .filter(|key| **key != "spans")
            .find(|key| problem.key_path == format!("{}.{key}", section.key_path()))
        {
            Some(key) => {
                let what = format!("`{key}` has no meaning for a conversion, which sends nothing");
                section.problem(key, what, in_words(format))
            }
            None => problem,
        }
    }));
    Default::default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(assignments: &[&str], format: Format) -> Result<Settings, String> {
        let assignments: Vec<String> = assignments.iter().map(|&assignment| assignment.to_owned()).collect();
        Settings::read(&assignments, format).map_err(|Failure(why)| why)
    }

    /// Guarantees: the defaults without assignments are those of the exporter for chunks, and one long window for OTLP.
    #[test]
    fn defaults() {
        for format in [Format::Sentry, Format::Otlp, Format::OtlpJson, Format::Folded, Format::Svg] {
            assert_eq!(read(&[], format).unwrap().chunk, chunk::Settings::default());
        }
        let dedup: profbridge_processor_dedup::Config = read(&[], Format::Otlp).unwrap().processor.extract().unwrap();
        assert_eq!(dedup.window.get(), Duration::from_secs(600));
    }

    /// Guarantees: keys have the paths of the configuration file, values are YAML, and the last assignment wins. A
    /// default of the conversion stays if only another key of its section is set.
    #[test]
    fn keys_are_those_of_the_file() {
        let assignments = [
            "exporters.sentry.environment=dev",
            "exporters.sentry.environment=prod",
            "exporters.sentry.in_app={include: [shop], source_roots: [/opt/shop]}",
            "exporters.sentry.in_app.exclude=[vendor]",
            "service.identity.window=30s",
            "processors.chunk.max_observations=5",
        ];
        let settings = read(&assignments, Format::Sentry).unwrap();
        assert_eq!(settings.chunk.environment, "prod");
        let in_app = &settings.chunk.in_app;
        assert_eq!((&in_app.include[..], &in_app.exclude[..]), (&["shop".to_owned()][..], &["vendor".to_owned()][..]));
        let chunk: profbridge_processor_chunk::Config = settings.processor.extract().unwrap();
        assert_eq!((settings.identity.window, chunk.max_observations), (30_000_000_000, 5));
        let settings = read(&["processors.dedup.resends=keep"], Format::Otlp).unwrap();
        let dedup: profbridge_processor_dedup::Config = settings.processor.extract().unwrap();
        assert_eq!((dedup.window.get().as_secs(), dedup.resends), (600, profbridge_processor_dedup::Resends::Keep));
    }

    /// Guarantees: the page of the command line names every key for chunks, and all components that apply.
    #[test]
    fn documented() {
        let page = include_str!("../../README.md");
        let sections =
            ["exporters.sentry", "processors.chunk", "processors.transactions", "processors.dedup", "service.identity"];
        for name in keys::<ChunkConfig>().iter().chain(&sections) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    /// Guarantees: every wrong assignment, and every one that does not apply to the format, is reported with its place,
    /// all at once, together with the keys that apply.
    #[test]
    fn problems() {
        let wrong = [
            "exporters.sentry.dsn=https://0123456789abcdef0123456789abcdef@sentry.example/1",
            "exporters.sentry.sending_queue.queue_size=1",
            "exporters.sentry.enviroment=prod",
            "exporters.sentry.max_gap=soon",
            "exporters.sentry.spans=otpl",
            "exporters.\"sentry/b\".environment=prod",
            "exporters.otlp.endpoint=h:1",
            "processors.dedup.window=1s",
            "service.identity.window=61s",
            "processors.chunk.latenes=1s",
            "processors.transactions.max_span=0",
            "receivers.otlp.protocols=",
            "service.limits.memory=1GiB",
        ];
        let text = read(&wrong, Format::Sentry).err().unwrap();
        for (key, said) in [
            ("exporters.sentry.dsn", "`dsn` has no meaning for a conversion, which sends nothing"),
            ("exporters.sentry.sending_queue", "`sending_queue` has no meaning for a conversion"),
            ("exporters.sentry.enviroment", "did you mean `environment`?"),
            ("exporters.sentry.max_gap", "this is not a duration"),
            ("exporters.sentry.spans", "did you mean `otlp`?"),
            ("exporters.sentry/b", "the exporter `sentry/b` is no part of this conversion"),
            ("exporters.otlp", "the exporter `otlp` is no part of this conversion"),
            ("processors.dedup", "the processor `dedup` is no part of this conversion"),
            ("service.identity.window", "a window is at most 60s"),
            ("processors.chunk.latenes", "did you mean `lateness`?"),
            ("processors.transactions.max_span", "did you mean `max_spans`?"),
            ("receivers", "`receivers` has no meaning for a conversion"),
            ("service.limits", "`service.limits` has no meaning for this conversion"),
        ] {
            let at = text.split("\n\n").find(|problem| problem.contains(&format!("= key: {key}\n")));
            assert!(at.is_some_and(|problem| problem.contains(said)), "{key}: {said}\n{text}");
        }
        assert!(text.ends_with("in what `--set` says; nothing was converted"), "{text}");
        assert!(!text.contains("0123456789abcdef"), "{text}");
        assert!(read(&["service.identity.window=61s"], Format::Sentry).err().unwrap().contains("61s"));
        let text = read(&["service.identity.window=1s"], Format::Otlp).err().unwrap();
        assert!(text.contains("`service.identity` has no meaning for this conversion"), "{text}");
        let text = read(&["exporters.sentry.spans=otlp"], Format::Sentry).err().unwrap();
        assert!(text.contains("not in envelopes") && text.contains("ends with .otlp"), "{text}");
        let text = read(&["exporters.sentry.spans=streamed"], Format::Otlp).err().unwrap();
        assert!(text.contains("the exporter `sentry` is no part") && text.contains("`spans: otlp`"), "{text}");
        for (format, said) in
            [(Format::Otlp, "`processors.dedup` has a meaning"), (Format::Svg, "stacks and views are written as")]
        {
            let text = read(&["exporters.sentry.environment=prod"], format).err().unwrap();
            assert!(text.contains("the exporter `sentry` is no part") && text.contains(said), "{text}");
        }
        for (assignment, said) in [
            ("processors=5", "expected a map"),
            ("exporters.sentry=5", "expected a map"),
            ("processors.chunk", "needs a `=`"),
            ("exporters.sentry.environment=", "found nothing"),
            ("exporters.sentry.environment=a/b", "Sentry takes no environment"),
        ] {
            let text = read(&[assignment], Format::Sentry).err().unwrap();
            assert!(text.contains(said), "{assignment}: {text}");
        }
    }
}
