//! Writes prost's structs as JSON, field by field, independently of the table by which profbridge reads and writes
//! JSON.

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD, Engine as _};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, EntityRef, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::{Map, Value, json};

use crate::scramble::Random;

/// How JSON is written: as specified, or in random forms that readers accept.
pub(super) struct Style(Option<Random>);

/// A field in JSON: its name in the definition and its value; `None` where it is left out.
pub(super) type Field = (&'static str, Option<Value>);

impl Style {
    pub(super) fn canonical() -> Self {
        Self(None)
    }

    pub(super) fn any(seed: u64) -> Self {
        Self(Some(Random::new(seed)))
    }

    /// Chooses one of several forms; the first is the specified one.
    pub(super) fn way(&mut self, ways: usize) -> usize {
        self.0.as_mut().map_or(0, |random| random.below(ways))
    }

    pub(super) fn object<const N: usize>(&mut self, fields: [Field; N]) -> Value {
        let mut object = Map::new();
        for (name, value) in fields {
            let name = if self.way(4) == 3 { name.to_owned() } else { camel(name) };
            match value {
                Some(value) => drop(object.insert(name, value)),
                None if self.way(10) == 9 => drop(object.insert(name, Value::Null)),
                None => {}
            }
        }
        if self.way(10) == 9 {
            object.insert("aFieldOfTomorrow".to_owned(), json!({ "samples": [[{}], 1.5e300, null, "\u{1}"], "x": {} }));
        }
        Value::Object(object)
    }

    /// A scalar, which is in most cases omitted if it is zero.
    fn unless(&mut self, zero: bool, value: Value) -> Option<Value> {
        (!zero || self.way(4) == 3).then_some(value)
    }

    /// A list, which is in most cases omitted if it is empty.
    pub(super) fn list(&mut self, values: Vec<Value>) -> Option<Value> {
        self.unless(values.is_empty(), Value::Array(values))
    }

    pub(super) fn text(&mut self, text: &str) -> Option<Value> {
        self.unless(text.is_empty(), text.into())
    }

    pub(super) fn small(&mut self, value: impl Into<i64>) -> Option<Value> {
        let value = value.into();
        let text = self.integer(value);
        self.unless(value == 0, text)
    }

    fn integer(&mut self, value: i64) -> Value {
        match self.way(6) {
            4 => value.to_string().into(),
            5 => (value as f64).into(),
            _ => value.into(),
        }
    }

    pub(super) fn large(&mut self, value: impl Into<i128>) -> Option<Value> {
        let value = value.into();
        let text = self.long(value);
        self.unless(value == 0, text)
    }

    fn long(&mut self, value: i128) -> Value {
        match self.way(2) {
            1 => i64::try_from(value).map_or_else(|_| json!(value as u64), |value| json!(value)),
            _ => value.to_string().into(),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<Value> {
        let text = self.base64(bytes);
        self.unless(bytes.is_empty(), text)
    }

    fn base64(&mut self, bytes: &[u8]) -> Value {
        match self.way(4) {
            1 => BASE64_STANDARD_NO_PAD.encode(bytes),
            2 => BASE64_URL_SAFE.encode(bytes),
            3 => BASE64_URL_SAFE_NO_PAD.encode(bytes),
            _ => BASE64_STANDARD.encode(bytes),
        }
        .into()
    }

    pub(super) fn id(&mut self, bytes: &[u8]) -> Option<Value> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = if self.way(3) == 2 { digits.to_uppercase() } else { digits };
        self.unless(bytes.is_empty(), digits.into())
    }

    fn profile_id(&mut self, bytes: &[u8]) -> Option<Value> {
        if self.way(3) == 2 { self.bytes(bytes) } else { self.id(bytes) }
    }

    fn indices(&mut self, indices: &[i32]) -> Option<Value> {
        let indices = indices.iter().map(|&index| self.integer(index.into())).collect();
        self.list(indices)
    }

    pub(super) fn each<T>(&mut self, list: &[T], one: impl Fn(&mut Self, &T) -> Value) -> Option<Value> {
        let list = list.iter().map(|of| one(self, of)).collect();
        self.list(list)
    }
}

/// The name that a field has in JSON.
fn camel(name: &str) -> String {
    let mut camel = String::new();
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if std::mem::take(&mut upper) => camel.push(c.to_ascii_uppercase()),
            c => camel.push(c),
        }
    }
    camel
}

pub(super) fn request(style: &mut Style, of: &ExportProfilesServiceRequest) -> Value {
    let resources = style.each(&of.resource_profiles, resource_profiles);
    let dictionary = of.dictionary.as_ref().map(|of| dictionary(style, of));
    style.object([("resource_profiles", resources), ("dictionary", dictionary)])
}

fn resource_profiles(style: &mut Style, of: &proto::ResourceProfiles) -> Value {
    let fields = [
        ("resource", of.resource.as_ref().map(|of| resource(style, of))),
        ("scope_profiles", style.each(&of.scope_profiles, scope_profiles)),
        ("schema_url", style.text(&of.schema_url)),
    ];
    style.object(fields)
}

pub(super) fn resource(style: &mut Style, of: &Resource) -> Value {
    let entity = |style: &mut Style, of: &EntityRef| {
        let texts = |style: &mut Style, of: &[String]| style.each(of, |_, text| text.clone().into());
        let fields = [
            ("schema_url", style.text(&of.schema_url)),
            ("type", style.text(&of.r#type)),
            ("id_keys", texts(style, &of.id_keys)),
            ("description_keys", texts(style, &of.description_keys)),
        ];
        style.object(fields)
    };
    let fields = [
        ("attributes", style.each(&of.attributes, key_value)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
        ("entity_refs", style.each(&of.entity_refs, entity)),
    ];
    style.object(fields)
}

pub(super) fn scope(style: &mut Style, of: &InstrumentationScope) -> Value {
    let fields = [
        ("name", style.text(&of.name)),
        ("version", style.text(&of.version)),
        ("attributes", style.each(&of.attributes, key_value)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
    ];
    style.object(fields)
}

fn scope_profiles(style: &mut Style, of: &proto::ScopeProfiles) -> Value {
    let fields = [
        ("scope", of.scope.as_ref().map(|of| scope(style, of))),
        ("profiles", style.each(&of.profiles, profile)),
        ("schema_url", style.text(&of.schema_url)),
    ];
    style.object(fields)
}

fn profile(style: &mut Style, of: &proto::Profile) -> Value {
    let value_type = |style: &mut Style, of: &proto::ValueType| {
        let fields =
            [("type_strindex", style.small(of.type_strindex)), ("unit_strindex", style.small(of.unit_strindex))];
        style.object(fields)
    };
    let fields = [
        ("sample_type", of.sample_type.as_ref().map(|of| value_type(style, of))),
        ("samples", style.each(&of.samples, sample)),
        ("time_unix_nano", style.large(of.time_unix_nano)),
        ("duration_nano", style.large(of.duration_nano)),
        ("period_type", of.period_type.as_ref().map(|of| value_type(style, of))),
        ("period", style.large(of.period)),
        ("profile_id", style.profile_id(&of.profile_id)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
        ("original_payload_format", style.text(&of.original_payload_format)),
        ("original_payload", style.bytes(&of.original_payload)),
        ("attribute_indices", style.indices(&of.attribute_indices)),
    ];
    style.object(fields)
}

fn sample(style: &mut Style, of: &proto::Sample) -> Value {
    let fields = [
        ("stack_index", style.small(of.stack_index)),
        ("attribute_indices", style.indices(&of.attribute_indices)),
        ("link_index", style.small(of.link_index)),
        ("values", style.each(&of.values, |style, &value| style.long(value.into()))),
        ("timestamps_unix_nano", style.each(&of.timestamps_unix_nano, |style, &time| style.long(time.into()))),
    ];
    style.object(fields)
}

fn dictionary(style: &mut Style, of: &proto::ProfilesDictionary) -> Value {
    let fields = [
        ("mapping_table", style.each(&of.mapping_table, mapping)),
        ("location_table", style.each(&of.location_table, location)),
        ("function_table", style.each(&of.function_table, function)),
        ("link_table", style.each(&of.link_table, link)),
        ("string_table", style.each(&of.string_table, |_, text| text.clone().into())),
        ("attribute_table", style.each(&of.attribute_table, key_value_and_unit)),
        ("stack_table", style.each(&of.stack_table, stack)),
    ];
    style.object(fields)
}

fn mapping(style: &mut Style, of: &proto::Mapping) -> Value {
    let fields = [
        ("memory_start", style.large(of.memory_start)),
        ("memory_limit", style.large(of.memory_limit)),
        ("file_offset", style.large(of.file_offset)),
        ("filename_strindex", style.small(of.filename_strindex)),
        ("attribute_indices", style.indices(&of.attribute_indices)),
    ];
    style.object(fields)
}

fn location(style: &mut Style, of: &proto::Location) -> Value {
    let line = |style: &mut Style, of: &proto::Line| {
        let fields = [
            ("function_index", style.small(of.function_index)),
            ("line", style.large(of.line)),
            ("column", style.large(of.column)),
        ];
        style.object(fields)
    };
    let fields = [
        ("mapping_index", style.small(of.mapping_index)),
        ("address", style.large(of.address)),
        ("lines", style.each(&of.lines, line)),
        ("attribute_indices", style.indices(&of.attribute_indices)),
    ];
    style.object(fields)
}

fn function(style: &mut Style, of: &proto::Function) -> Value {
    let fields = [
        ("name_strindex", style.small(of.name_strindex)),
        ("system_name_strindex", style.small(of.system_name_strindex)),
        ("filename_strindex", style.small(of.filename_strindex)),
        ("start_line", style.large(of.start_line)),
    ];
    style.object(fields)
}

fn link(style: &mut Style, of: &proto::Link) -> Value {
    let fields = [("trace_id", style.id(&of.trace_id)), ("span_id", style.id(&of.span_id))];
    style.object(fields)
}

fn stack(style: &mut Style, of: &proto::Stack) -> Value {
    let fields = [("location_indices", style.indices(&of.location_indices))];
    style.object(fields)
}

fn key_value_and_unit(style: &mut Style, of: &proto::KeyValueAndUnit) -> Value {
    let fields = [
        ("key_strindex", style.small(of.key_strindex)),
        ("value", of.value.as_ref().map(|of| any(style, of))),
        ("unit_strindex", style.small(of.unit_strindex)),
    ];
    style.object(fields)
}

pub(super) fn key_value(style: &mut Style, of: &KeyValue) -> Value {
    let fields = [
        ("key", style.text(&of.key)),
        ("value", of.value.as_ref().map(|of| any(style, of))),
        ("key_strindex", style.small(of.key_strindex)),
    ];
    style.object(fields)
}

fn any(style: &mut Style, of: &AnyValue) -> Value {
    use any_value::Value as Any;
    let field = match &of.value {
        None => return style.object([]),
        Some(Any::StringValue(text)) => ("string_value", text.clone().into()),
        Some(Any::BoolValue(flag)) => ("bool_value", (*flag).into()),
        Some(Any::IntValue(number)) => ("int_value", style.long((*number).into())),
        Some(Any::DoubleValue(number)) => ("double_value", double(style, *number)),
        Some(Any::BytesValue(bytes)) => ("bytes_value", style.base64(bytes)),
        Some(Any::StringValueStrindex(index)) => ("string_value_strindex", style.integer((*index).into())),
        Some(Any::ArrayValue(array)) => {
            let fields = [("values", style.each(&array.values, any))];
            ("array_value", style.object(fields))
        }
        Some(Any::KvlistValue(list)) => {
            let fields = [("values", style.each(&list.values, key_value))];
            ("kvlist_value", style.object(fields))
        }
    };
    let (name, value) = field;
    style.object([(name, Some(value))])
}

fn double(style: &mut Style, number: f64) -> Value {
    match number {
        number if number.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        number if style.way(4) == 3 => format!("{number:e}").into(),
        number => number.into(),
    }
}
