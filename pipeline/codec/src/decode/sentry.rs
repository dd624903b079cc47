//! Decodes Sentry envelopes, with their profiles and spans as views.

use std::sync::Arc;

use profbridge_model::{Envelope, ItemView};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::span_reader::ReadSpans;
use profbridge_wire::sentry::{profile_items, span_items};

use super::{FileDecoder, Refused};

/// Maximum number of item types listed for an envelope without readable items.
const MOST_TYPES: usize = 8;

impl FileDecoder<'_> {
    /// Adds the profiles and the spans of an envelope as views. Fails if there are none.
    pub(super) fn with_views(&mut self, mut envelope: Envelope) -> Result<Envelope, Refused> {
        let (mut views, mut found) = (Vec::new(), false);
        let mut items = profile_items::read_items(&envelope);
        for (item, read) in items.by_ref() {
            found = true;
            match read {
                Ok(profiles) => views.push(ItemView::profiles(item, self.with_peer(profiles))),
                Err(error) => self.refuse(error.to_string()),
            }
        }
        let passed_over = items.passed_over();
        self.findings.passed_over += passed_over;
        self.findings.left_out_samples += items.left_out();
        self.findings.unused_elements += items.unused();
        for (item, read) in span_items::read_items(&envelope) {
            found = true;
            match read {
                Ok(ReadSpans { mut spans, unread, first_unread }) => {
                    if let Some(first) = first_unread {
                        let count = if unread == 1 { "1 span is".to_owned() } else { format!("{unread} spans are") };
                        self.refuse(format!("items[{item}]: {count} not read: {first}"));
                    }
                    if !spans.is_empty() {
                        spans.peer = Some(Arc::clone(&self.peer));
                        views.push(ItemView::spans(item, spans));
                    }
                }
                Err(error) => self.refuse(format!("items[{item}]: {error}")),
            }
        }
        if !found {
            return Err(Refused::new(self.name, nothing_to_read(&envelope, passed_over)));
        }
        if views.is_empty() {
            return Err(Refused::new(self.name, "not one profile or span in the envelope can be read"));
        }
        views.sort_by_key(|view| view.item);
        envelope.views = views;
        Ok(envelope)
    }

    fn refuse(&mut self, why: String) {
        self.findings.refused.push(Refused::new(self.name, why));
    }
}

/// Explains what an envelope without readable profiles or spans contains, and what to do about it. `passed_over` is the
/// number of its profiles in unsupported formats.
fn nothing_to_read(envelope: &Envelope, passed_over: u64) -> String {
    let mut types: Vec<(String, usize)> = Vec::new();
    for item in &envelope.items {
        let kind = ItemHeader::read(&item.header).map(|header| header.kind.into_owned()).unwrap_or_default();
        match types.iter().position(|(known, _)| *known == kind) {
            Some(known) => types[known].1 += 1,
            None if types.len() < MOST_TYPES => types.push((kind, 1)),
            None => {}
        }
    }
    let wanted = "no profile (`profile_chunk`, `profile`) and no spans (`transaction`, `span` of version 2)";
    if types.is_empty() {
        return format!("the envelope holds nothing, {wanted}");
    }
    let listed: Vec<String> = types.iter().map(|(kind, count)| format!("{count} {}", kind.escape_debug())).collect();
    let listed = listed.join(", ");
    if passed_over > 0 {
        let read = "the sample formats V1 and V2 are read, and no traces of Android or Perfetto";
        return format!(
            "the envelope holds {listed}, and no profile that is read: it is in another format\nhint: {read}"
        );
    }
    let hint = "continuous profiles and spans come in envelopes of their own, other profiles beside their transaction";
    format!("the envelope holds {listed}, and {wanted}\nhint: {hint}")
}
