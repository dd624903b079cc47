//! Follows the demo's profile through the exporters of a running pipeline, by their metrics.

use std::collections::BTreeMap;

use profbridge_model::Reason;

/// The counters of an exporter and of the processors before it, in observations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DeliveryCounters {
    inbound: u64,
    added: u64,
    sent: u64,
    held: u64,
    dropped: BTreeMap<String, u64>,
    held_before: u64,
    dropped_before: u64,
    /// Those of `dropped_before` that were dropped on purpose.
    intended_before: u64,
}

/// The counters of exporters, by id.
pub(super) type Counters = BTreeMap<String, DeliveryCounters>;

/// Parses the counters of these exporters, each with its pipelines, from a metrics page (OpenMetrics text).
pub(super) fn read(page: &str, exporters: &BTreeMap<String, Vec<String>>) -> Counters {
    let mut counters: Counters = exporters.keys().map(|id| (id.clone(), DeliveryCounters::default())).collect();
    for line in page.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let label = |key: &str| {
            let (_, behind) = labels.split_once(&format!("{key}=\""))?;
            behind.split('"').next()
        };
        let Some(value) = value.split(' ').next().and_then(|value| value.parse::<u64>().ok()) else { continue };
        // OpenMetrics appends `_total` to counter names.
        let name = name.strip_suffix("_total").unwrap_or(name);
        let reason = label("reason").unwrap_or_default();
        let (kind, component, pipeline) = (label("kind"), label("component"), label("pipeline"));
        for (id, counted) in &mut counters {
            let is_before = || exporters[id].iter().any(|name| Some(name.as_str()) == pipeline);
            match (kind, name) {
                (Some("exporter"), _) if component != Some(id) => {}
                (Some("exporter"), "profbridge_observations_in") => counted.inbound = value,
                (Some("exporter"), "profbridge_synthesized_observations") => counted.added = value,
                (Some("exporter"), "profbridge_observations_out") => counted.sent = value,
                (Some("exporter"), "profbridge_held_observations") => counted.held = value,
                (Some("exporter"), "profbridge_dropped_observations") => {
                    counted.dropped.insert(reason.to_owned(), value);
                }
                (Some("processor"), "profbridge_held_observations") if is_before() => counted.held_before += value,
                (Some("processor"), "profbridge_dropped_observations") if is_before() => {
                    counted.dropped_before += value;
                    let intended = known(reason).is_some_and(Reason::is_intended);
                    counted.intended_before += if intended { value } else { 0 };
                }
                _ => {}
            }
        }
    }
    counters
}

/// The reason that a label names.
fn known(reason: &str) -> Option<Reason> {
    Reason::ALL.iter().find(|known| known.as_str() == reason).copied()
}

/// Whether each exporter has received all that was generated, except for what processors dropped, and has sent or
/// dropped everything it ever received. Empty windows and queues are not enough: a page may be read between the updates
/// of two counters.
pub(super) fn is_settled(generated: u64, before: &Counters, after: &Counters) -> bool {
    let none = DeliveryCounters::default();
    after.iter().all(|(id, after)| {
        let before = before.get(id).unwrap_or(&none);
        let dropped = after.dropped_before.saturating_sub(before.dropped_before);
        let done = after.sent + after.dropped.values().sum::<u64>();
        let came = after.inbound.saturating_sub(before.inbound);
        came > 0 && came + dropped >= generated && after.inbound + after.added == done
    })
}

/// Describes what each exporter has done with the generated observations, in words and with figures that add up.
/// Returns whether each of them has sent everything, except for what was left out on purpose.
pub(super) fn describe(generated: u64, before: &Counters, after: &Counters) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let mut delivered = true;
    let none = DeliveryCounters::default();
    for (id, after) in after {
        let before = before.get(id).unwrap_or(&none);
        let sent = after.sent.saturating_sub(before.sent);
        let came = after.inbound.saturating_sub(before.inbound);
        delivered &= sent > 0 && after.held == 0;
        if came == 0 {
            lines.push(format!(
                "error: exporter {id}: the profile has not come to it; the log says what the pipeline waits for"
            ));
            continue;
        }
        let error = if sent == 0 { "error: " } else { "" };
        let waits = if after.held == 0 {
            String::new()
        } else {
            format!(", {} not sent yet: it is still tried, and the log says what is in the way", after.held)
        };
        let added = after.added.saturating_sub(before.added);
        let added = if added == 0 { String::new() } else { format!(", {added} added that close a chunk") };
        lines.push(format!("{error}exporter {id}: {came} observations came{added}, {sent} sent{waits}"));
        if came > generated {
            let more = came - generated;
            lines.push(format!("  {more} of those that came are others' than the {generated} generated"));
        }
        let missing = generated.saturating_sub(came);
        let dropped = after.dropped_before.saturating_sub(before.dropped_before);
        let waiting = missing.saturating_sub(dropped).min(after.held_before);
        if waiting > 0 {
            delivered = false;
            lines.push(format!("  {waiting} of the {generated} generated have not come to it: a window is still open"));
        }
        let left_out = missing - waiting;
        delivered &= left_out <= after.intended_before.saturating_sub(before.intended_before);
        if left_out > 0 {
            lines.push(format!("  {left_out} of the {generated} generated were left out before it: the log says why"));
        }
        for (reason, &count) in &after.dropped {
            let count = count - before.dropped.get(reason).copied().unwrap_or_default().min(count);
            let known = known(reason);
            let means = known.map_or("this profbridge does not know the reason", |known| known.explanation());
            if count > 0 {
                delivered &= known.is_some_and(|known| known.is_intended());
                lines.push(format!("  {count} dropped as {reason}: {means}"));
            }
        }
    }
    (lines, delivered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# TYPE profbridge_observations_in counter
profbridge_observations_in_total{component=\"sentry\",kind=\"exporter\"} 100
profbridge_observations_in_total{component=\"sentry\",kind=\"processor\",pipeline=\"profiles\"} 7
profbridge_observations_out_total{component=\"sentry\",kind=\"exporter\"} 90
profbridge_dropped_observations_total{component=\"sentry\",kind=\"exporter\",reason=\"too_large\"} 10
profbridge_observations_in_total{component=\"file\",kind=\"exporter\"} 100
profbridge_observations_out_total{component=\"file\",kind=\"exporter\"} 100
# EOF
";

    fn ids() -> BTreeMap<String, Vec<String>> {
        ["file", "sentry"].map(|id| (id.to_owned(), vec!["profiles".to_owned()])).into()
    }

    /// Guarantees: refused observations are shown with the meaning of the reason, sent ones are not, and counters of
    /// other components are ignored.
    #[test]
    fn refused() {
        let before = read(BEFORE, &ids());
        assert!(!is_settled(0, &before, &before), "nothing has come yet");
        let after = BEFORE
            .replace("file\",kind=\"exporter\"} 100", "file\",kind=\"exporter\"} 150")
            .replace("sentry\",kind=\"exporter\"} 100", "sentry\",kind=\"exporter\"} 151")
            + "profbridge_dropped_observations_total{component=\"sentry\",kind=\"exporter\",reason=\"rejected_by_peer\"} 51\n";
        let after = read(&after, &ids());
        assert!(is_settled(50, &before, &after));
        let (lines, delivered) = describe(50, &before, &after);
        assert!(!delivered);
        assert_eq!(
            lines[..3],
            [
                "exporter file: 50 observations came, 50 sent",
                "error: exporter sentry: 51 observations came, 0 sent",
                "  1 of those that came are others' than the 50 generated",
            ]
        );
        assert_eq!(lines.len(), 4);
        assert!(lines[3].starts_with("  51 dropped as rejected_by_peer: the destination refused it"), "{}", lines[3]);
        let (all, _) = describe(49, &before, &read(BEFORE, &ids()));
        assert!(all.iter().all(|line| line.contains("has not come to it")), "{all:?}");
    }

    /// Guarantees: generated, sampled-out, added and sent observations add up, and intended drops are no failure.
    #[test]
    fn adds_up() {
        let sentry = BTreeMap::from([("sentry".to_owned(), vec!["profiles".to_owned()])]);
        let before = read(BEFORE, &sentry);
        let after = "profbridge_observations_in{component=\"sentry\",kind=\"exporter\"} 190\n\
                     profbridge_synthesized_observations{component=\"sentry\",kind=\"exporter\"} 4\n\
                     profbridge_observations_out{component=\"sentry\",kind=\"exporter\"} 182\n\
                     profbridge_dropped_observations{component=\"sentry\",kind=\"exporter\",reason=\"off_cpu\"} 2\n";
        let dropped = |reason| {
            let labels = format!("kind=\"processor\",pipeline=\"profiles\",reason=\"{reason}\"");
            read(&format!("{after}profbridge_dropped_observations{{{labels}}} 10\n"), &sentry)
        };
        assert!(!describe(100, &before, &dropped("too_large")).1);
        let (lines, delivered) = describe(100, &before, &dropped("sample_rate"));
        assert!(delivered, "{lines:?}");
        assert_eq!(lines[0], "exporter sentry: 90 observations came, 4 added that close a chunk, 92 sent");
        assert_eq!(lines[1], "  10 of the 100 generated were left out before it: the log says why");
        assert!(lines[2].starts_with("  2 dropped as off_cpu"), "{lines:?}");
    }

    /// Guarantees: queued observations do not count as sent, and missing ones are reported.
    #[test]
    fn waits() {
        let before = read(BEFORE, &ids());
        let after = BEFORE.replace("sentry\",kind=\"exporter\"} 100", "sentry\",kind=\"exporter\"} 151")
            + "profbridge_held_observations{component=\"sentry\",kind=\"exporter\"} 51\n";
        let after = read(&after, &ids());
        assert!(!is_settled(51, &before, &after));
        let (lines, delivered) = describe(51, &before, &after);
        assert!(!delivered && lines[0].starts_with("error: exporter file: the profile has not come to it"));
        assert!(lines[1].starts_with("error: exporter sentry: 51 observations came, 0 sent, 51 not"), "{}", lines[1]);
    }

    /// Guarantees: generated data in a window that is still open counts neither as delivered nor as left out.
    #[test]
    fn two_windows() {
        let before = read(BEFORE, &ids());
        let after = BEFORE.replace("exporter\"} 100", "exporter\"} 140").replace("exporter\"} 90", "exporter\"} 130");
        let open = "profbridge_held_observations{component=\"chunk\",kind=\"processor\",pipeline=\"profiles\"} 20\n";
        let first = read(&(after.clone() + open), &ids());
        assert!(is_settled(40, &before, &first) && !is_settled(60, &before, &first));
        let (lines, delivered) = describe(60, &before, &first);
        assert!(!delivered);
        assert_eq!(lines[1], "  20 of the 60 generated have not come to it: a window is still open");
        let both = read(&after.replace("} 140", "} 160").replace("} 130", "} 150"), &ids());
        assert!(is_settled(60, &before, &both));
        assert_eq!(describe(60, &before, &both).0[0], "exporter file: 60 observations came, 60 sent");
        assert!(describe(60, &before, &both).1);
    }
}
