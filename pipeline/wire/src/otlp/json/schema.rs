//! The OTLP messages that occur in JSON: the names of their fields, and their protobuf types.
//!
//! Source: opentelemetry-proto 1.10, `opentelemetry/proto/` `profiles/v1development/profiles.proto`,
//! `trace/v1/trace.proto`, `common/v1/common.proto`, `resource/v1/resource.proto`, and the services below `collector/`.

use crate::otlp::signal;

/// Maximum number of fields in a message.
pub(super) const MAX_FIELDS: usize = 16;

/// A message.
#[derive(Debug)]
pub(super) struct Schema {
    /// Its fields, at most [`MAX_FIELDS`], in the order in which they are written.
    pub(super) fields: &'static [Field],
    /// Whether it is a `oneof`: at most one of its fields is present, even if its value is zero.
    pub(super) one_of: bool,
    /// Field names that only earlier layouts of the message have. Ignoring them as unknown would lose the message's
    /// main content.
    pub(super) former: &'static [&'static str],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    /// Its protobuf number.
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Its name in the protocol's definition, which protobuf's JSON parsers also accept.
    pub(super) proto_name: &'static str,
    pub(super) kind: FieldKind,
    pub(super) repeated: bool,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    Message(&'static Schema),
    String,
    /// Base64 in JSON.
    Bytes,
    /// Bytes that are hexadecimal digits in JSON: ids of traces and spans (opentelemetry-proto `docs/specification.md`,
    /// "JSON Protobuf Encoding").
    Hex,
    /// The id of a profile. The specification excludes only trace and span ids from base64, but the Collector and
    /// opentelemetry-rust write hexadecimal digits here too. Both are accepted, digits are written.
    ProfileId,
    Bool,
    Double,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Fixed32,
    Fixed64,
    /// An enumeration: numbers are written, as OTLP requires, and names are accepted too.
    Enum(&'static [(&'static str, i32)]),
}

impl FieldKind {
    /// Whether repeated values are packed on the wire: numbers are.
    pub(super) fn is_packed(self) -> bool {
        !matches!(self, Self::Message(_) | Self::String | Self::Bytes | Self::Hex | Self::ProfileId)
    }
}

use FieldKind::{
    Bool, Bytes, Double, Enum, Fixed32, Fixed64, Hex, Int32, Int64, Message, ProfileId, String, Uint32, Uint64,
};

const fn one(number: u32, name: &'static str, proto_name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, proto_name, kind, repeated: false }
}

const fn many(number: u32, name: &'static str, proto_name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, proto_name, kind, repeated: true }
}

const fn message(fields: &'static [Field]) -> Schema {
    Schema { fields, one_of: false, former: &[] }
}

/// The fields of a top-level message.
pub(super) fn fields_of(message: signal::Message) -> &'static Schema {
    match message {
        signal::Message::ProfilesRequest => &PROFILES_REQUEST,
        signal::Message::ProfilesResponse => &PROFILES_RESPONSE,
        signal::Message::TracesRequest => &TRACES_REQUEST,
        signal::Message::TracesResponse => &TRACES_RESPONSE,
    }
}

/// `ExportProfilesServiceRequest`, and `ProfilesData`, which has the same fields. Before opentelemetry-proto 1.7 the
/// tables were next to the resources.
static PROFILES_REQUEST: Schema = Schema {
    fields: &[
        many(1, "resourceProfiles", "resource_profiles", Message(&RESOURCE_PROFILES)),
        one(2, "dictionary", "dictionary", Message(&DICTIONARY)),
    ],
    one_of: false,
    former: &["stringTable", "locationTable", "functionTable", "mappingTable"],
};

static PROFILES_RESPONSE: Schema =
    message(&[one(1, "partialSuccess", "partial_success", Message(&PROFILES_PARTIAL_SUCCESS))]);

static PROFILES_PARTIAL_SUCCESS: Schema =
    message(&[one(1, "rejectedProfiles", "rejected_profiles", Int64), one(2, "errorMessage", "error_message", String)]);

/// `ExportTraceServiceRequest`, and `TracesData`, which has the same field.
static TRACES_REQUEST: Schema = message(&[many(1, "resourceSpans", "resource_spans", Message(&RESOURCE_SPANS))]);

static TRACES_RESPONSE: Schema =
    message(&[one(1, "partialSuccess", "partial_success", Message(&TRACES_PARTIAL_SUCCESS))]);

static TRACES_PARTIAL_SUCCESS: Schema =
    message(&[one(1, "rejectedSpans", "rejected_spans", Int64), one(2, "errorMessage", "error_message", String)]);

static RESOURCE_PROFILES: Schema = message(&[
    one(1, "resource", "resource", Message(&RESOURCE)),
    many(2, "scopeProfiles", "scope_profiles", Message(&SCOPE_PROFILES)),
    one(3, "schemaUrl", "schema_url", String),
]);

static SCOPE_PROFILES: Schema = message(&[
    one(1, "scope", "scope", Message(&SCOPE)),
    many(2, "profiles", "profiles", Message(&PROFILE)),
    one(3, "schemaUrl", "schema_url", String),
]);

/// Until opentelemetry-proto 1.8 samples were named `sample`, until 1.5 the tables were here, and in 1.3 the profile
/// was in a container.
static PROFILE: Schema = Schema {
    fields: &[
        one(1, "sampleType", "sample_type", Message(&VALUE_TYPE)),
        many(2, "samples", "samples", Message(&SAMPLE)),
        one(3, "timeUnixNano", "time_unix_nano", Fixed64),
        one(4, "durationNano", "duration_nano", Uint64),
        one(5, "periodType", "period_type", Message(&VALUE_TYPE)),
        one(6, "period", "period", Int64),
        one(7, "profileId", "profile_id", ProfileId),
        one(8, "droppedAttributesCount", "dropped_attributes_count", Uint32),
        one(9, "originalPayloadFormat", "original_payload_format", String),
        one(10, "originalPayload", "original_payload", Bytes),
        many(11, "attributeIndices", "attribute_indices", Int32),
    ],
    one_of: false,
    former: &["sample", "stringTable", "timeNanos", "startTimeUnixNano"],
};

static SAMPLE: Schema = Schema {
    fields: &[
        one(1, "stackIndex", "stack_index", Int32),
        many(2, "attributeIndices", "attribute_indices", Int32),
        one(3, "linkIndex", "link_index", Int32),
        many(4, "values", "values", Int64),
        many(5, "timestampsUnixNano", "timestamps_unix_nano", Fixed64),
    ],
    one_of: false,
    former: &["value", "locationsStartIndex", "locationsLength"],
};

static VALUE_TYPE: Schema = Schema {
    fields: &[one(1, "typeStrindex", "type_strindex", Int32), one(2, "unitStrindex", "unit_strindex", Int32)],
    one_of: false,
    former: &["aggregationTemporality"],
};

static DICTIONARY: Schema = Schema {
    fields: &[
        many(1, "mappingTable", "mapping_table", Message(&MAPPING)),
        many(2, "locationTable", "location_table", Message(&LOCATION)),
        many(3, "functionTable", "function_table", Message(&FUNCTION)),
        many(4, "linkTable", "link_table", Message(&LINK)),
        many(5, "stringTable", "string_table", String),
        many(6, "attributeTable", "attribute_table", Message(&KEY_VALUE_AND_UNIT)),
        many(7, "stackTable", "stack_table", Message(&STACK)),
    ],
    one_of: false,
    former: &["attributeUnits"],
};

static MAPPING: Schema = message(&[
    one(1, "memoryStart", "memory_start", Uint64),
    one(2, "memoryLimit", "memory_limit", Uint64),
    one(3, "fileOffset", "file_offset", Uint64),
    one(4, "filenameStrindex", "filename_strindex", Int32),
    many(5, "attributeIndices", "attribute_indices", Int32),
]);

/// Until opentelemetry-proto 1.8 the lines were named `line`.
static LOCATION: Schema = Schema {
    fields: &[
        one(1, "mappingIndex", "mapping_index", Int32),
        one(2, "address", "address", Uint64),
        many(3, "lines", "lines", Message(&LINE)),
        many(4, "attributeIndices", "attribute_indices", Int32),
    ],
    one_of: false,
    former: &["line"],
};

static LINE: Schema = message(&[
    one(1, "functionIndex", "function_index", Int32),
    one(2, "line", "line", Int64),
    one(3, "column", "column", Int64),
]);

static FUNCTION: Schema = message(&[
    one(1, "nameStrindex", "name_strindex", Int32),
    one(2, "systemNameStrindex", "system_name_strindex", Int32),
    one(3, "filenameStrindex", "filename_strindex", Int32),
    one(4, "startLine", "start_line", Int64),
]);

static LINK: Schema = message(&[one(1, "traceId", "trace_id", Hex), one(2, "spanId", "span_id", Hex)]);

static STACK: Schema = message(&[many(1, "locationIndices", "location_indices", Int32)]);

static KEY_VALUE_AND_UNIT: Schema = message(&[
    one(1, "keyStrindex", "key_strindex", Int32),
    one(2, "value", "value", Message(&ANY_VALUE)),
    one(3, "unitStrindex", "unit_strindex", Int32),
]);

static RESOURCE: Schema = message(&[
    many(1, "attributes", "attributes", Message(&KEY_VALUE)),
    one(2, "droppedAttributesCount", "dropped_attributes_count", Uint32),
    many(3, "entityRefs", "entity_refs", Message(&ENTITY_REF)),
]);

static ENTITY_REF: Schema = message(&[
    one(1, "schemaUrl", "schema_url", String),
    one(2, "type", "type", String),
    many(3, "idKeys", "id_keys", String),
    many(4, "descriptionKeys", "description_keys", String),
]);

static SCOPE: Schema = message(&[
    one(1, "name", "name", String),
    one(2, "version", "version", String),
    many(3, "attributes", "attributes", Message(&KEY_VALUE)),
    one(4, "droppedAttributesCount", "dropped_attributes_count", Uint32),
]);

static KEY_VALUE: Schema = message(&[
    one(1, "key", "key", String),
    one(2, "value", "value", Message(&ANY_VALUE)),
    one(3, "keyStrindex", "key_strindex", Int32),
]);

static ANY_VALUE: Schema = Schema {
    fields: &[
        one(1, "stringValue", "string_value", String),
        one(2, "boolValue", "bool_value", Bool),
        one(3, "intValue", "int_value", Int64),
        one(4, "doubleValue", "double_value", Double),
        one(5, "arrayValue", "array_value", Message(&ARRAY_VALUE)),
        one(6, "kvlistValue", "kvlist_value", Message(&KEY_VALUE_LIST)),
        one(7, "bytesValue", "bytes_value", Bytes),
        one(8, "stringValueStrindex", "string_value_strindex", Int32),
    ],
    one_of: true,
    former: &[],
};

static ARRAY_VALUE: Schema = message(&[many(1, "values", "values", Message(&ANY_VALUE))]);

static KEY_VALUE_LIST: Schema = message(&[many(1, "values", "values", Message(&KEY_VALUE))]);

static RESOURCE_SPANS: Schema = message(&[
    one(1, "resource", "resource", Message(&RESOURCE)),
    many(2, "scopeSpans", "scope_spans", Message(&SCOPE_SPANS)),
    one(3, "schemaUrl", "schema_url", String),
]);

static SCOPE_SPANS: Schema = message(&[
    one(1, "scope", "scope", Message(&SCOPE)),
    many(2, "spans", "spans", Message(&SPAN)),
    one(3, "schemaUrl", "schema_url", String),
]);

static SPAN: Schema = message(&[
    one(1, "traceId", "trace_id", Hex),
    one(2, "spanId", "span_id", Hex),
    one(3, "traceState", "trace_state", String),
    one(4, "parentSpanId", "parent_span_id", Hex),
    one(16, "flags", "flags", Fixed32),
    one(5, "name", "name", String),
    one(6, "kind", "kind", Enum(&SPAN_KINDS)),
    one(7, "startTimeUnixNano", "start_time_unix_nano", Fixed64),
    one(8, "endTimeUnixNano", "end_time_unix_nano", Fixed64),
    many(9, "attributes", "attributes", Message(&KEY_VALUE)),
    one(10, "droppedAttributesCount", "dropped_attributes_count", Uint32),
    many(11, "events", "events", Message(&SPAN_EVENT)),
    one(12, "droppedEventsCount", "dropped_events_count", Uint32),
    many(13, "links", "links", Message(&SPAN_LINK)),
    one(14, "droppedLinksCount", "dropped_links_count", Uint32),
    one(15, "status", "status", Message(&SPAN_STATUS)),
]);

static SPAN_KINDS: [(&str, i32); 6] = [
    ("SPAN_KIND_UNSPECIFIED", 0),
    ("SPAN_KIND_INTERNAL", 1),
    ("SPAN_KIND_SERVER", 2),
    ("SPAN_KIND_CLIENT", 3),
    ("SPAN_KIND_PRODUCER", 4),
    ("SPAN_KIND_CONSUMER", 5),
];

static SPAN_EVENT: Schema = message(&[
    one(1, "timeUnixNano", "time_unix_nano", Fixed64),
    one(2, "name", "name", String),
    many(3, "attributes", "attributes", Message(&KEY_VALUE)),
    one(4, "droppedAttributesCount", "dropped_attributes_count", Uint32),
]);

static SPAN_LINK: Schema = message(&[
    one(1, "traceId", "trace_id", Hex),
    one(2, "spanId", "span_id", Hex),
    one(3, "traceState", "trace_state", String),
    many(4, "attributes", "attributes", Message(&KEY_VALUE)),
    one(5, "droppedAttributesCount", "dropped_attributes_count", Uint32),
    one(6, "flags", "flags", Fixed32),
]);

static SPAN_STATUS: Schema =
    message(&[one(2, "message", "message", String), one(3, "code", "code", Enum(&STATUS_CODES))]);

static STATUS_CODES: [(&str, i32); 3] = [("STATUS_CODE_UNSET", 0), ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)];

/// Converts a name of the protocol's definition to JSON: `time_unix_nano` becomes `timeUnixNano`.
#[cfg(test)]
fn lower_camel_case(proto_name: &str) -> std::string::String {
    let mut parts = proto_name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::Signal;

    fn visit(schema: &'static Schema, seen: &mut Vec<&'static Schema>) {
        if seen.iter().any(|known| std::ptr::eq(*known, schema)) {
            return;
        }
        seen.push(schema);
        for field in schema.fields {
            if let Message(inner) = field.kind {
                visit(inner, seen);
            }
        }
    }

    /// Guarantees: names and numbers are unique in every message, the JSON name follows from the definition's, and no
    /// message exceeds the maximum number of fields.
    /// rule: otlp#json-names
    #[test]
    fn names() {
        let mut all = Vec::new();
        for names in Signal::ALL.map(Signal::names) {
            [names.request, names.response].into_iter().for_each(|message| visit(fields_of(message), &mut all));
        }
        assert_eq!(all.len(), 32);
        for schema in all {
            assert!(schema.fields.len() <= MAX_FIELDS);
            for (position, field) in schema.fields.iter().enumerate() {
                assert_eq!(lower_camel_case(field.proto_name), field.name);
                assert!(!schema.former.contains(&field.name), "{}", field.name);
                let earlier = &schema.fields[..position];
                assert!(earlier.iter().all(|other| other.name != field.name && other.number != field.number));
                assert!(!(field.repeated && schema.one_of), "{}", field.name);
            }
        }
    }
}
