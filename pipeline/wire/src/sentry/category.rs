//! Data categories: the units by which Sentry counts and limits data.
//!
//! Source: getsentry/relay `relay-base-schema/src/data_category.rs`; Sentry developer documentation, "Rate Limiting",
//! "Client Reports".

use profbridge_model::Item;

use super::envelope::ItemHeader;

macro_rules! categories {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A data category of Sentry. Categories that do not occur here are left out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Category {
            $($(#[$doc])* $name,)*
        }

        impl Category {
            /// All categories.
            pub const ALL: &'static [Category] = &[$(Category::$name,)*];

            /// The name in headers and reports.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Category::$name => $text,)*
                }
            }

            /// The category with this name; `None` if unknown, which Sentry says to ignore.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Category::$name),)*
                    _ => None,
                }
            }
        }
    };
}

categories! {
    /// Error events.
    Error = "error";
    /// Events of any other kind.
    Default = "default";
    /// Transactions.
    Transaction = "transaction";
    /// Spans on their own.
    Span = "span";
    /// V1 profiles.
    Profile = "profile";
    /// Chunks of backend profiles.
    ProfileChunk = "profile_chunk";
    /// Milliseconds of backend profiles, which Sentry bills.
    ProfileDuration = "profile_duration";
    /// Chunks of UI profiles.
    ProfileChunkUi = "profile_chunk_ui";
    /// Milliseconds of UI profiles.
    ProfileDurationUi = "profile_duration_ui";
    /// Attachments.
    Attachment = "attachment";
    /// Sessions.
    Session = "session";
    /// Check-ins.
    Monitor = "monitor";
    /// Logs.
    LogItem = "log_item";
    /// Replays.
    Replay = "replay";
    /// User feedback.
    Feedback = "feedback";
    /// Metrics.
    TraceMetric = "trace_metric";
    /// Security reports.
    Security = "security";
    /// Reports of SDKs about themselves.
    Internal = "internal";
}

impl Category {
    /// The categories whose limits stop a transaction.
    pub const OF_TRANSACTIONS: &'static [Category] = &[Category::Transaction];

    /// The categories for chunks of a platform; the first is the one in which a chunk is counted. A limit on any of
    /// them stops the chunk (getsentry/relay `relay-base-schema/src/data_category.rs`, "SDK rate limiting behavior";
    /// `relay-profiling/src/lib.rs`, `ProfileType::from_platform`).
    pub fn of_chunks(platform: &str) -> &'static [Category] {
        match platform {
            "cocoa" | "android" | "javascript" => &[Category::ProfileChunkUi, Category::ProfileDurationUi],
            _ => &[Category::ProfileChunk, Category::ProfileDuration],
        }
    }

    /// The categories of an item; the first is the one in which it is counted.
    pub fn of_item(header: &ItemHeader<'_>) -> &'static [Category] {
        match &*header.kind {
            "event" => &[Category::Error],
            "transaction" => Self::OF_TRANSACTIONS,
            // A V1 profile is worthless without its transaction, which a limit on transactions drops.
            "profile" => &[Category::Profile, Category::Transaction],
            "profile_chunk" => Self::of_chunks(header.platform.as_deref().unwrap_or_default()),
            "profile_chunk_ui" => Self::of_chunks("cocoa"),
            "span" => &[Category::Span],
            "attachment" => &[Category::Attachment],
            "session" | "sessions" => &[Category::Session],
            "check_in" => &[Category::Monitor],
            "log" => &[Category::LogItem],
            "replay_event" | "replay_recording" | "replay_video" => &[Category::Replay],
            "feedback" | "user_report" => &[Category::Feedback],
            "trace_metric" => &[Category::TraceMetric],
            "security" | "raw_security" | "nel" => &[Category::Security],
            "client_report" => &[Category::Internal],
            _ => &[Category::Default],
        }
    }

    /// How to count the loss of an item: category and quantity. `None` if unknown.
    pub fn count_of(item: &Item) -> Option<(Category, u64)> {
        let header = ItemHeader::read(&item.header).ok()?;
        let category = *Self::of_item(&header).first()?;
        let count = match category {
            Category::Attachment => item.payload.len() as u64,
            _ => header.item_count.unwrap_or(1),
        };
        Some((category, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentry::envelope;

    /// Guarantees: chunks of platforms that Relay treats as user interfaces have their own limits.
    #[test]
    fn chunks() {
        assert_eq!(Category::of_chunks("python"), [Category::ProfileChunk, Category::ProfileDuration]);
        assert_eq!(Category::of_chunks("android"), [Category::ProfileChunkUi, Category::ProfileDurationUi]);
        let header = ItemHeader::read(br#"{"type":"profile_chunk","platform":"cocoa"}"#).unwrap();
        assert_eq!(Category::of_item(&header)[0], Category::ProfileChunkUi);
    }

    /// Guarantees: an item counts once, a container by its item count, an attachment by its bytes.
    #[test]
    fn counts() {
        let mut item = envelope::item("profile_chunk", None, &b"{}"[..]);
        assert_eq!(Category::count_of(&item), Some((Category::ProfileChunk, 1)));
        item.header = br#"{"type":"span","item_count":17}"#[..].into();
        assert_eq!(Category::count_of(&item), Some((Category::Span, 17)));
        item = envelope::item("attachment", None, &b"12345"[..]);
        assert_eq!(Category::count_of(&item), Some((Category::Attachment, 5)));
        item.header = b"?"[..].into();
        assert_eq!(Category::count_of(&item), None);
    }
}
