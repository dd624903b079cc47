//! The process of a span, described like that of profiles, so that `profbridge_identity` can compare the two.

use std::sync::Arc;

use profbridge_model::profiles::{Resource, ResourceProfiles};
use profbridge_model::{Attribute, Builder, Dictionary, SpanForm, Value};

use super::SpanView;
use crate::otlp::traces::AnyValue;
use crate::otlp::traces::read::resource_attributes;

/// The attributes of a process, in the form of a profile's resource.
#[derive(Debug, Clone)]
pub struct SpanProcess {
    /// The tables that the attributes refer to.
    pub dictionary: Arc<Dictionary>,
    /// The attributes.
    pub attributes: Vec<Attribute>,
}

/// The process of a span: the resource of an OTLP span, including additions made on the way, or the host name of a
/// Sentry span. If neither names a host, `host` is the one that it was sent from. A profiler that the span names
/// ([`SpanView::profiler_id`]) is not included. `None` if the tables would be too large to be addressed.
pub fn process(view: &SpanView<'_>, host: Option<&str>) -> Option<SpanProcess> {
    let mut builder = Builder::new();
    let mut attributes = Vec::new();
    let resource = view.spans.resource_of(view.span);
    if view.spans.form() == SpanForm::Otlp {
        for (key, value) in resource_attributes(view.spans, resource) {
            attributes.push(Attribute {
                key: builder.string(key),
                value: self::value(&mut builder, value),
                unit: None,
            });
        }
    } else if let Some(host) = view.host_name() {
        attributes.push(builder.key_value("host.name", (&host).into()));
    }
    for (key, value) in &resource.added {
        attributes.push(builder.key_value(key, (&**value).into()));
    }
    if let Some(host) = host.filter(|_| view.resource_attribute("host.name").is_none() && view.host_name().is_none()) {
        attributes.push(builder.key_value("host.name", host.into()));
    }
    let resource = Resource { attributes, ..Resource::default() };
    builder.resource_profiles(ResourceProfiles { resource, ..ResourceProfiles::default() });
    let batch = builder.finish().ok()?;
    let attributes = batch.resources().first()?.resource.attributes.clone();
    Some(SpanProcess { dictionary: Arc::clone(batch.dictionary()), attributes })
}

/// A value with its strings in the tables. The decoder has limited its nesting.
fn value(builder: &mut Builder, value: AnyValue<'_>) -> Value {
    match value {
        AnyValue::Empty => Value::Empty,
        AnyValue::Text(text) => Value::String(builder.string(text)),
        AnyValue::Bool(value) => Value::Bool(value),
        AnyValue::Int(value) => Value::Int(value),
        AnyValue::Double(value) => Value::Double(value),
        AnyValue::Bytes(bytes) => Value::Bytes(builder.bytes(bytes)),
        AnyValue::Array(values) => Value::Array(values.map(|value| self::value(builder, value)).collect()),
        AnyValue::KeyValueList(list) => Value::KeyValueList(
            list.map(|(key, value)| Attribute {
                key: builder.string(key),
                value: self::value(builder, value),
                unit: None,
            })
            .collect(),
        ),
    }
}
