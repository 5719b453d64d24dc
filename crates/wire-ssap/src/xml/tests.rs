//! The reader beside quick-xml: the same steps for whatever both read, and the same refusals.

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::limits::{DETAIL_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Steps as text; none if the document is refused.
fn ours(text: &str) -> Option<Vec<String>> {
    let mut document = XmlDocument::new(text);
    let mut steps = Vec::new();
    loop {
        match document.next().ok()? {
            None => return Some(steps),
            Some(XmlStep::Close) => steps.push("/".to_string()),
            Some(XmlStep::Text(text)) => steps.push(format!("text {text}")),
            Some(XmlStep::Open(start)) => {
                let found = start.attribute("name").ok()?;
                steps.push(format!("open {} {} {found:?}", start.name(), start.local_name()));
            }
        }
    }
}

/// The same by quick-xml, with the same limits.
fn theirs(text: &str) -> Option<Vec<String>> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let (mut steps, mut depth) = (Vec::new(), 0);
    let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                depth += 1;
                let found = start.try_get_attribute("name").ok()?;
                let found = found.map(|found| found.unescape_value().map(Cow::into_owned)).transpose().ok()?;
                let (name, local) = (text_of(start.name().as_ref())?, text_of(start.local_name().as_ref())?);
                steps.push(format!("open {name} {local} {found:?}"));
                if depth > DEPTH_MAX {
                    return None;
                }
            }
            Event::End(_) => {
                depth -= 1;
                steps.push("/".to_string());
            }
            Event::Text(text) => steps.push(format!("text {}", text.unescape().ok()?)),
            Event::CData(data) => steps.push(format!("text {}", text_of(&data)?)),
            Event::DocType(_) => return None,
            Event::Eof if depth > 0 => return None,
            Event::Eof => return Some(steps),
            _ => {}
        }
    }
}

/// Pieces that make documents, whole ones now and then.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z ü]{0,8}",
        Just("&lt;&#65;&#x42;&amp;".to_string()),
        Just("<![CDATA[<raw> & ]] ]]>".to_string()),
        Just("<!-- a > comment - -->".to_string()),
        Just("<?pi a?>".to_string()),
        Just("<e name='&quot;x>'/>".to_string()),
        Just("<p:e other=\"1\" name = \"two\" />".to_string()),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 0..4), "[a-z]{1,3}(:[a-z]{1,2})?", "( name=\"[a-z&;<>']{0,4}\")?")
            .prop_map(|(inside, name, attribute)| format!("<{name}{attribute}>{}</{name}>", inside.concat()))
    });
    proptest::collection::vec(tree, 0..3).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn documents_are_read_as_quick_xml_reads_them(text in document()) {
        prop_assert_eq!(ours(&text), theirs(&text));
    }

    /// With pieces of markup anywhere: nothing panics, and what both read they read alike.
    #[test]
    fn broken_documents_are_refused_or_mean_the_same(
        text in document(),
        breaks in proptest::collection::vec((any::<prop::sample::Index>(), "[<>/&;!?'\"= a\\]\\[-]{1,3}"), 1..4),
    ) {
        let mut text = text;
        for (place, piece) in breaks {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            text.insert_str(places[place.index(places.len())], &piece);
        }
        if let (Some(ours), Some(theirs)) = (ours(&text), theirs(&text)) {
            prop_assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn what_is_inside_is_given_as_it_is_written() {
    let mut document = XmlDocument::new("<a><b x='>'>1 &lt; <!-- c --><c/></b><d/>end</a>");
    let mut inside = vec![];
    while let Some(step) = document.next().unwrap() {
        if matches!(&step, XmlStep::Open(start) if start.name() != "a") {
            inside.push(document.inside().unwrap());
        }
    }
    assert_eq!(inside, ["1 &lt; <!-- c --><c/>", ""]);
}

#[test]
fn what_is_no_xml_is_refused() {
    let deep = "<a>".repeat(DEPTH_MAX + 1);
    let bad = [
        "<",
        "<a",
        "<a>",
        "</a>",
        "<a></b>",
        "<a b='>",
        "&",
        "&;",
        "&nbsp;",
        "&#0;",
        "&#x110000;",
        "&#+65;",
        "<!x>",
        "<!DOCTYPE a>",
        "<!doctype a>",
        "<!-- -",
        "<![CDATA[ ]]",
        "<?x",
        "<!-->",
        &deep,
    ];
    for text in bad {
        assert_eq!(ours(text), None, "{text}");
    }
    for attributes in ["name", "name=x", "name='x", "='1'"] {
        let tag = StartTag { name: "a", attributes };
        assert!(tag.attribute("name").is_err(), "{attributes}");
    }
}

#[test]
fn a_fault_does_not_repeat_a_long_name() {
    let long = "ä".repeat(MESSAGE_BYTES_MAX / 4);
    for text in [format!("</{long}>"), format!("<{long}></b>"), format!("<b></{long}>")] {
        let mut document = XmlDocument::new(&text);
        let fault = loop {
            match document.next() {
                Ok(step) => assert!(step.is_some(), "it is not well-formed"),
                Err(fault) => break fault,
            }
        };
        assert!(fault.detail.len() <= DETAIL_BYTES_MAX + '…'.len_utf8(), "{} bytes", fault.detail.len());
        assert!(fault.detail.starts_with("not well-formed: </"), "{}", fault.detail);
    }
}
