//! The layout that a request declares: by its path, or by a version number in its metadata.

use http::HeaderMap;
use profbridge_wire::otlp::Layout;

use crate::fault::CallFault;

/// The metadata key for the version of the `v1development` layout (opentelemetry-proto#857). A missing version means 1,
/// so a forwarded request needs no such header.
pub(crate) const HEADER: &str = "otlp-profiles-development-version";

/// The known versions and their layouts.
const VERSIONS: [(u32, Layout); 1] = [(1, Layout::V1_10)];

/// The layout that the metadata of a `v1development` request declares. `None` if there is no version: the layout is
/// then detected, because senders of earlier layouts do not know the header.
pub(crate) fn announced(headers: &HeaderMap) -> Result<Option<Layout>, CallFault> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(CallFault::invalid(HEADER, "stands more than once"));
    }
    let text = value.to_str().unwrap_or_default();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = digits.then(|| text.parse::<u32>().ok()).flatten() else {
        return Err(CallFault::invalid(HEADER, format!("{:?} is not a number", value)));
    };
    match VERSIONS.iter().find(|(known, _)| *known == number) {
        Some((_, layout)) => Ok(Some(*layout)),
        None => Err(CallFault::invalid(HEADER, format!("{number} is not supported, 1 is"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a single known number selects the layout, without a number no layout is selected, and everything
    /// else is refused.
    /// rule: otlp-profiles#development-version, otlp#development-version
    #[test]
    fn one_known_number() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, http::HeaderValue::from_static(value));
            }
            announced(&headers)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["1"]), Ok(Some(Layout::V1_10)));
        for wrong in [&["1", "1"][..], &["0"], &["2"], &[""], &["+1"], &["1.0"], &["one"], &["99999999999999999999"]] {
            let fault = read(wrong).unwrap_err();
            assert_eq!(fault.code(), tonic::Code::InvalidArgument, "{wrong:?}");
            assert_eq!(fault.violation.unwrap().place, HEADER);
        }
    }
}
