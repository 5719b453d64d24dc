//! Characters on the wire: ASCII only, because a widespread client decodes nothing else.

use alloc::string::String;
use core::fmt::Write;

/// Appends text with everything escaped that means something in XML or is not ASCII.
pub(crate) fn escaped(text: &str, out: &mut String) {
    let mut plain = 0;
    for (position, character) in text.char_indices() {
        let entity = match character {
            '<' => "&lt;",
            '>' => "&gt;",
            '&' => "&amp;",
            '"' => "&quot;",
            '\'' => "&apos;",
            ' '..='~' | '\n' | '\t' => continue,
            _ => "",
        };
        out.push_str(&text[plain..position]);
        plain = position + character.len_utf8();
        if entity.is_empty() {
            // XML cannot carry control characters in any form.
            let code = if is_allowed(character) { u32::from(character) } else { 0xFFFD };
            let _ = write!(out, "&#{code};");
        } else {
            out.push_str(entity);
        }
    }
    out.push_str(&text[plain..]);
}

/// The characters of XML 1.0.
fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Appends a literal: as CDATA like every other broker, unless that would change it or end the message early.
pub(crate) fn literal(text: &str, out: &mut String) {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'));
    if is_plain && !text.contains("]]>") && !text.contains("</SSAP_message") {
        out.push_str("<![CDATA[");
        out.push_str(text);
        out.push_str("]]>");
    } else {
        escaped(text, out);
    }
}

pub(crate) fn open(element: &str, attributes: &str, out: &mut String) {
    out.push('<');
    out.push_str(element);
    out.push_str(attributes);
    out.push('>');
}

pub(crate) fn close(element: &str, out: &mut String) {
    out.push_str("</");
    out.push_str(element);
    out.push('>');
}

pub(crate) fn element(name: &str, text: &str, out: &mut String) {
    open(name, "", out);
    escaped(text, out);
    close(name, out);
}
