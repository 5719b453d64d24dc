//! Content formats of CoAP and content types of MQTT: those that IoT devices use.

const FORMATS: &[(u16, &str)] = &[
    (0, "text/plain"),
    (0, "text/plain;charset=utf-8"),
    (0, "text/plain; charset=utf-8"),
    (40, "application/link-format"),
    (41, "application/xml"),
    (42, "application/octet-stream"),
    (47, "application/exi"),
    (50, "application/json"),
    (60, "application/cbor"),
    (110, "application/senml+json"),
    (112, "application/senml+cbor"),
];

/// The number of a content type.
pub(crate) fn format_of(content_type: &str) -> Option<u16> {
    FORMATS.iter().find(|(_, name)| name.eq_ignore_ascii_case(content_type)).map(|(number, _)| *number)
}

/// The name of a content format.
pub(crate) fn type_of(format: u16) -> Option<&'static str> {
    FORMATS.iter().find(|(number, _)| *number == format).map(|(_, name)| *name)
}
