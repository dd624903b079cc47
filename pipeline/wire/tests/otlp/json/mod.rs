//! Compares OTLP in JSON with JSON made from prost's structs.

mod attacks;
mod spans;
mod text;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::{Layout, Limits};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};

use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::{canonical, to_prost};
use crate::scramble::{OTLP, Random, scramble};
use text::Style;

fn read(message: Message, text: &str) -> Result<Vec<u8>, String> {
    json::read(message, text.as_bytes(), &Limits::default(), &mut |_| true).map_err(|error| error.to_string())
}

fn written(message: Message, protobuf: &[u8]) -> Value {
    let mut out = Vec::new();
    json::write(message, protobuf, usize::MAX, &mut out).unwrap();
    assert!(!out.contains(&b'\n'));
    serde_json::from_slice(&out).unwrap()
}

/// The same value with doubles as `serde_json` reads them, which may differ in the last bit.
fn through_text(value: Value) -> Value {
    json_of(&value.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Guarantees: every field of an arbitrary valid request is read, in any valid form and order, with unknown fields
    /// in between; the batch equals the batch of the same request in protobuf.
    /// rule: otlp#json-names, otlp#json-unknown
    #[test]
    fn profiles_are_read(request in requests(), seed: u64, pretty: bool) {
        let json = text::request(&mut Style::any(seed), &request);
        let text = if pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) }.unwrap();
        let protobuf = read(Message::ProfilesRequest, &text).unwrap();
        prop_assert_eq!(ExportProfilesServiceRequest::decode(&*protobuf).unwrap(), request.clone());
        let decoded = json::decode(text.as_bytes(), &Limits::default()).unwrap();
        prop_assert_eq!((&decoded.refused, decoded.layout), (&Vec::new(), Layout::V1_10));
        prop_assert_eq!(to_prost(&decoded.profiles), canonical(request));
        prop_assert_eq!(decoded.profiles.received.as_deref(), Some(&*protobuf));
    }

    /// Guarantees: JSON is written as specified, whatever the encoding of the protobuf message.
    /// rule: otlp#json-names, otlp#json-64-bit
    #[test]
    fn profiles_are_written(request in requests(), seed: u64) {
        let expected = through_text(text::request(&mut Style::canonical(), &request));
        let canonical = request.encode_to_vec();
        prop_assert_eq!(&written(Message::ProfilesRequest, &canonical), &expected);
        let scrambled = scramble(&canonical, &OTLP, &mut Random::new(seed));
        prop_assert_eq!(written(Message::ProfilesRequest, &scrambled), expected);
    }

    /// Guarantees: spans are read and written in the same way.
    /// rule: otlp#json-ids, otlp#json-enums
    #[test]
    fn traces(request in crate::traces::arbitrary::requests(), seed: u64) {
        let text = spans::request(&mut Style::any(seed), &request).to_string();
        let protobuf = read(Message::TracesRequest, &text).unwrap();
        prop_assert_eq!(&ExportTraceServiceRequest::decode(&*protobuf).unwrap(), &request);
        let expected = through_text(spans::request(&mut Style::canonical(), &request));
        prop_assert_eq!(written(Message::TracesRequest, &protobuf), expected);
    }

    /// Guarantees: written doubles are read back with the same bits.
    #[test]
    fn doubles(number: f64) {
        let value = AnyValue { value: Some(any_value::Value::DoubleValue(number)) };
        let attribute = proto::KeyValueAndUnit { value: Some(value), ..Default::default() };
        let dictionary = proto::ProfilesDictionary { attribute_table: vec![attribute], ..Default::default() };
        let request = ExportProfilesServiceRequest { dictionary: Some(dictionary), ..Default::default() };
        let protobuf = request.encode_to_vec();
        let text = written(Message::ProfilesRequest, &protobuf).to_string();
        let mut out = Vec::new();
        json::write(Message::ProfilesRequest, &protobuf, usize::MAX, &mut out).unwrap();
        let again = read(Message::ProfilesRequest, std::str::from_utf8(&out).unwrap());
        prop_assert!(number.is_nan() || again.as_deref() == Ok(&*protobuf), "{}", text);
    }
}

/// Reads a request that has an attribute with this JSON value, and returns the attribute's value.
fn value(value: &str) -> Result<Option<any_value::Value>, String> {
    let text = format!(r#"{{"dictionary":{{"attributeTable":[{{"value":{value}}}]}}}}"#);
    let request = ExportProfilesServiceRequest::decode(&*read(Message::ProfilesRequest, &text)?).unwrap();
    Ok(request.dictionary.unwrap().attribute_table[0].value.clone().unwrap_or_default().value)
}

/// Guarantees: an attribute's value of zero is kept, doubles may be one of three names, numbers may be strings, and a
/// value has only one type.
/// rule: otlp#json-64-bit, otlp#json-mapping
#[test]
fn values() {
    use any_value::Value as Any;
    for (text, expected) in [
        (r#"{"stringValue":""}"#, Some(Any::StringValue(String::new()))),
        (r#"{"intValue":0}"#, Some(Any::IntValue(0))),
        (r#"{"intValue":"-9223372036854775808"}"#, Some(Any::IntValue(i64::MIN))),
        (r#"{"intValue":-9223372036854775808}"#, Some(Any::IntValue(i64::MIN))),
        (r#"{"intValue":-0}"#, Some(Any::IntValue(0))),
        (r#"{"intValue":1e3}"#, Some(Any::IntValue(1000))),
        (r#"{"intValue":"1.5e3"}"#, Some(Any::IntValue(1500))),
        (r#"{"boolValue":false}"#, Some(Any::BoolValue(false))),
        (r#"{"doubleValue":0}"#, Some(Any::DoubleValue(0.0))),
        (r#"{"doubleValue":-0.0}"#, Some(Any::DoubleValue(-0.0))),
        (r#"{"doubleValue":"Infinity"}"#, Some(Any::DoubleValue(f64::INFINITY))),
        (r#"{"doubleValue":"-Infinity"}"#, Some(Any::DoubleValue(f64::NEG_INFINITY))),
        (r#"{"doubleValue":"1.25"}"#, Some(Any::DoubleValue(1.25))),
        (r#"{"bytesValue":"_-8"}"#, Some(Any::BytesValue(vec![0xff, 0xef]))),
        (r#"{"bytesValue":"/+8="}"#, Some(Any::BytesValue(vec![0xff, 0xef]))),
        (r#"{"stringValueStrindex":0}"#, Some(Any::StringValueStrindex(0))),
        (r#"{"stringValue":null,"intValue":1}"#, Some(Any::IntValue(1))),
        (r#"{"string_value":"a\ud83d\ude00\u0000"}"#, Some(Any::StringValue("a😀\0".to_owned()))),
        ("{}", None),
        ("null", None),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
    assert!(matches!(value(r#"{"doubleValue":"NaN"}"#), Ok(Some(Any::DoubleValue(number))) if number.is_nan()));
    assert!(matches!(value(r#"{"doubleValue":-0.0}"#), Ok(Some(Any::DoubleValue(n))) if n.is_sign_negative()));
    for (text, rule) in [
        (r#"{"stringValue":"a","intValue":"1"}"#, r#"has both "stringValue" and "intValue""#),
        (r#"{"intValue":"1","intValue":"1"}"#, r#"the field "intValue" stands twice"#),
        (r#"{"intValue":1,"int_value":1}"#, r#"the field "intValue" stands twice"#),
        (r#"{"intValue":1.5}"#, "1.5 is not an integer"),
        (r#"{"intValue":9007199254740994.5}"#, "is out of range, or not exact"),
        (r#"{"intValue":18446744073709551616}"#, "is out of range, or not exact"),
        (r#"{"intValue":9223372036854775808}"#, "9223372036854775808 is out of the range of its field"),
        (r#"{"intValue":"9223372036854775808"}"#, "is out of the range of its field"),
        (r#"{"intValue":"99999999999999999999"}"#, "is out of the range of its field"),
        (r#"{"stringValueStrindex":2147483648}"#, "2147483648 is out of the range of its field"),
        (r#"{"stringValueStrindex":-2147483649}"#, "-2147483649 is out of the range of its field"),
        (r#"{"intValue":""}"#, r#"the string "" stands where an integer belongs"#),
        (r#"{"intValue":" 1"}"#, r#"the string " 1" stands where an integer belongs"#),
        (r#"{"intValue":"0x10"}"#, "stands where an integer belongs"),
        (r#"{"intValue":"NaN"}"#, "stands where an integer belongs"),
        (r#"{"intValue":true}"#, "true stands where an integer belongs"),
        (r#"{"intValue":[1]}"#, "expected an integer"),
        (r#"{"boolValue":1}"#, "the number 1 stands where true or false belongs"),
        (r#"{"boolValue":"true"}"#, r#"the string "true" stands where true or false belongs"#),
        (r#"{"stringValue":1}"#, "the number 1 stands where a string belongs"),
        (r#"{"stringValue":{}}"#, "expected a string"),
        (r#"{"doubleValue":"nan"}"#, r#""nan" stands where a number belongs"#),
        (r#"{"doubleValue":"inf"}"#, "stands where a number belongs"),
        (r#"{"doubleValue":"-inf"}"#, "stands where a number belongs"),
        (r#"{"doubleValue":1e999}"#, "\"1e999\" is out of the range of a double"),
        (r#"{"doubleValue":NaN}"#, "expected value"),
        (r#"{"bytesValue":"a*b="}"#, "is not base64"),
        (r#"{"bytesValue":"a"}"#, "is not base64"),
        (r#"{"bytesValue":[1,2]}"#, "expected base64"),
        (r#"{"stringValue":"\ud83d"}"#, "hex escape"),
        (r#"{"arrayValue":{"values":[null]}}"#, "expected an object"),
        (r#"[]"#, "expected an object"),
    ] {
        let error = value(text).unwrap_err();
        assert!(error.contains(rule), "{text}: {error}");
        assert!(error.contains("dictionary.attribute_table[0].value"), "{text}: {error}");
        assert!(error.contains("(at byte "), "{text}: {error}");
    }
}

/// Guarantees: an id is hexadecimal, or base64 that decodes to the length of an id; anything else is refused.
/// rule: otlp#json-ids
#[test]
fn ids() {
    let link = |text: &str| {
        let text = json!({ "dictionary": { "linkTable": [{ "traceId": text }] } }).to_string();
        let request = ExportProfilesServiceRequest::decode(&*read(Message::ProfilesRequest, &text)?).unwrap();
        Ok::<_, String>(request.dictionary.unwrap().link_table[0].trace_id.clone())
    };
    assert_eq!(link("00fF10"), Ok(vec![0, 0xff, 0x10]));
    assert_eq!(link(""), Ok(Vec::new()));
    assert_eq!(link("AQEBAQEBAQEBAQEBAQEBAQ=="), Ok(vec![1; 16]));
    assert_eq!(link("AQEBAQEBAQEBAQEBAQEBAQ"), Ok(vec![1; 16]));
    assert_eq!(link("AgICAgICAgI="), Ok(vec![2; 8]));
    assert_eq!(link("0123456789abcdef012345").map(|id| id.len()), Ok(11), "digits");
    for (text, has) in [
        (r#"{"traceId" : "AQEBAQEBAQEBAQEBAQEBAQ=="}"#, true),
        (r#"{"parent_span_id":"AgICAgICAgI="}"#, true),
        (r#"{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708"}"#, false),
        (r#"{"traceId":"","id":"x","name":"AgICAgICAgI=","spanId"#, false),
    ] {
        assert_eq!(json::has_base64_ids(text.as_bytes()), has, "{text}");
    }
    for (text, rule) in [("0", "an odd number of digits"), ("0g", "is not hexadecimal"), ("éé", "is not hexadecimal")]
    {
        assert!(link(text).unwrap_err().contains(rule), "{text}");
    }
    let profile = |text: &str| {
        let text = json!({ "resourceProfiles": [{ "scopeProfiles": [{ "profiles": [{ "profileId": text }] }] }] });
        let request =
            ExportProfilesServiceRequest::decode(&*read(Message::ProfilesRequest, &text.to_string())?).unwrap();
        Ok::<_, String>(request.resource_profiles[0].scope_profiles[0].profiles[0].profile_id.clone())
    };
    let id: Vec<u8> = (0..16).map(|byte| byte * 17).collect();
    for text in [
        "00112233445566778899aabbccddeeff",
        "00112233445566778899AABBCCDDEEFF",
        "ABEiM0RVZneImaq7zN3u/w==",
        "ABEiM0RVZneImaq7zN3u_w",
    ] {
        assert_eq!(profile(text), Ok(id.clone()), "{text}");
    }
    assert_eq!(profile("00112233445566778899aabbccddeefg").map(|bytes| bytes.len()), Ok(24));
    assert!(profile("00112233*not-an-id").unwrap_err().contains("is not base64"));
}

/// Guarantees: an error names the field as in the protobuf definition, and the byte where it was noticed, also in text
/// with line breaks.
#[test]
fn places() {
    for (text, expected) in [
        (
            "{\n\"resourceProfiles\": [{},\n {\"scopeProfiles\": [{\"profiles\":[{\"samples\":[{\"values\":[1,\n\"x\"]}]}]}]}]}",
            "resource_profiles[1].scope_profiles[0].profiles[0].samples[0].values[1] (at byte 88): the string \"x\" stands where an integer belongs",
        ),
        ("{\"dictionary\":5}", "dictionary (at byte 14): invalid type: integer `5`, expected an object"),
        ("{}x", "request (at byte 2): trailing characters"),
        ("{} {}", "request (at byte 3): trailing characters"),
        ("[]", "request (at byte 0): invalid type: sequence, expected an object"),
        ("", "request (at byte 0): EOF while parsing a value"),
        ("{\"dictionary\":{", "dictionary (at byte 14): EOF while parsing an object"),
        (
            "{\"resourceProfiles\":[{}],\"resource_profiles\":[]}",
            "resource_profiles (at byte 43): the field \"resourceProfiles\" stands twice",
        ),
    ] {
        let error = read(Message::ProfilesRequest, text).unwrap_err();
        assert_eq!(error, format!("malformed request: {expected}"), "{text}");
    }
    let bytes = b"{\"a\":\"\xff\"}";
    let error = json::decode(bytes, &Limits::default()).unwrap_err().to_string();
    assert_eq!(error, "malformed request: request (at byte 6): the text is not UTF-8");
}

/// Guarantees: field names of earlier layouts are refused by name, since a reader that ignored them would lose the
/// profile.
/// rule: otlp#json-unknown
#[test]
fn earlier_layouts() {
    for (text, name) in [
        (json!({ "stringTable": [""] }), "stringTable"),
        (json!({ "resourceProfiles": [{ "scopeProfiles": [{ "profiles": [{ "sample": [] }] }] }] }), "sample"),
        (json!({ "dictionary": { "locationTable": [{ "line": [] }] } }), "line"),
        (json!({ "dictionary": { "attributeUnits": [] } }), "attributeUnits"),
    ] {
        let error = read(Message::ProfilesRequest, &text.to_string()).unwrap_err();
        assert!(error.contains(&format!("the field {name:?} is of an earlier layout")), "{error}");
    }
}

/// Guarantees: JSON is refused by the same rules, and at the same place, as the same request in protobuf.
#[test]
fn rules_of_the_decoder() {
    let text = json!({ "dictionary": { "stackTable": [{}, { "locationIndices": [7] }] } }).to_string();
    let error = json::decode(text.as_bytes(), &Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("malformed request: dictionary.stack_table[1]"), "{error}");
    assert!(!error.contains("(at byte"), "{error}");
    let bad =
        json!({ "resourceProfiles": [{ "scopeProfiles": [{ "profiles": [{ "samples": [{ "stackIndex": 9 }] }] }] }] });
    let decoded = json::decode(bad.to_string().as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.refused_profiles(), decoded.profiles.received.is_none()), (1, true));
}

/// Guarantees: responses are read and written.
#[test]
fn responses() {
    let text = r#"{"partialSuccess":{"rejectedProfiles":"3","errorMessage":"no"}}"#;
    let protobuf = read(Message::ProfilesResponse, text).unwrap();
    assert_eq!(protobuf, b"\x0a\x06\x08\x03\x12\x02no");
    assert_eq!(written(Message::ProfilesResponse, &protobuf).to_string(), json_of(text).to_string());
    assert_eq!(written(Message::ProfilesResponse, b""), json!({}));
    let text = r#"{"partialSuccess":{"rejectedSpans":"3"}}"#;
    let protobuf = read(Message::TracesResponse, text).unwrap();
    assert_eq!(written(Message::TracesResponse, &protobuf), json_of(text));
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
