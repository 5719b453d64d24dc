//! Pages that are part of the program: files by name, and how they are served. Nothing is looked up in a file system, so
//! there is no path that leads out of it (F087). The files that all pages share are here; each door adds its own.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Everything from here and nothing from elsewhere; nobody may put it into a frame.
pub const PAGE_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// The media type of a module.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";

/// A file of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// As the page asks for it.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What is in it.
    pub text: &'static str,
}

/// A file of a page as it is in the program: its path is relative to the file of whoever says it.
#[macro_export]
macro_rules! page_file {
    ($name:literal, $kind:expr, $path:expr) => {{
        const SOURCE: &str = include_str!($path);
        const BYTES: [u8; $crate::packed_len(SOURCE)] = $crate::packed(SOURCE);
        // Whole characters were left out, if any.
        const TEXT: &str = match core::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => SOURCE,
        };
        $crate::PageFile { name: $name, kind: $kind, text: TEXT }
    }};
}

/// Without what only people need: indentation, empty lines and lines of comments. A tenth of the files.
pub const fn packed<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    pack(text.as_bytes(), &mut out);
    out
}

/// How long that is.
pub const fn packed_len(text: &str) -> usize {
    pack(text.as_bytes(), &mut [])
}

/// Writes as much as there is room for; how much there is.
const fn pack(bytes: &[u8], out: &mut [u8]) -> usize {
    let (mut at, mut length) = (0, 0);
    while at < bytes.len() {
        while at < bytes.len() && bytes[at] == b' ' {
            at += 1;
        }
        let is_comment = at + 1 < bytes.len() && bytes[at] == b'/' && bytes[at + 1] == b'/';
        let is_kept = at < bytes.len() && bytes[at] != b'\n' && !is_comment;
        loop {
            if at >= bytes.len() {
                break;
            }
            if is_kept {
                if length < out.len() {
                    out[length] = bytes[at];
                }
                length += 1;
            }
            at += 1;
            if bytes[at - 1] == b'\n' {
                break;
            }
        }
    }
    length
}

/// What all pages share: elements, the look, and the editor for SPARQL.
pub const SHARED_FILES: &[PageFile] = &[
    page_file!("style.css", "text/css; charset=utf-8", "../ui/style.css"),
    page_file!("icon.svg", "image/svg+xml", "../ui/icon.svg"),
    page_file!("dom.js", SCRIPT, "../ui/dom.js"),
    page_file!("editor.js", SCRIPT, "../ui/editor.js"),
    page_file!("result.js", SCRIPT, "../ui/result.js"),
];

/// The files of one door.
#[derive(Debug)]
pub struct PageFiles {
    own: &'static [PageFile],
    /// Of all files together: they change with the program, and not otherwise.
    tag: HeaderValue,
}

impl PageFiles {
    /// These besides the shared ones.
    pub fn new(own: &'static [PageFile]) -> Self {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        for file in own.iter().chain(SHARED_FILES) {
            hash.update(file.text.as_bytes());
        }
        let hash = hash.finish().as_ref().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let tag = HeaderValue::from_str(&format!("\"{hash:016x}\"")).unwrap_or(HeaderValue::from_static("\"0\""));
        Self { own, tag }
    }

    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = &'static PageFile> {
        self.own.iter().chain(SHARED_FILES)
    }

    /// A file, or word that the browser has it; none if there is no such file.
    pub fn serve(&self, name: &str, headers: &HeaderMap) -> Option<Response> {
        let file = self.iter().find(|file| file.name == name)?;
        let is_known = headers.get(header::IF_NONE_MATCH) == Some(&self.tag);
        let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { file.text.into_response() };
        let words = [
            (header::CONTENT_TYPE, file.kind),
            (header::CACHE_CONTROL, "no-cache"),
            (header::VARY, "accept"),
            (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        for (name, value) in words {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response.headers_mut().insert(header::ETAG, self.tag.clone());
        Some(response)
    }
}

/// Whether somebody looks with a browser, who gets a page.
pub fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok());
    accepted.is_some_and(|kinds| kinds.contains("text/html"))
}

/// What the policy forbids, or what would lead elsewhere, in a file; for the tests of all doors. None: it is well.
pub fn forbidden_in(file: &PageFile) -> Option<&'static str> {
    let words = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "<script>",
        " style=",
        " onclick=\"",
    ];
    // Names of name spaces are no addresses that are fetched.
    let text = NAME_SPACES.iter().fold(file.text.to_owned(), |text, name| text.replace(name, ""));
    let leads = ["http://", "https://"].into_iter().find(|scheme| text.contains(scheme));
    words.into_iter().find(|word| file.text.contains(word)).or(leads)
}

/// Those that pages name.
const NAME_SPACES: [&str; 8] = [
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2001/XMLSchema#",
    "http://www.w3.org/2002/07/owl#",
    "http://www.w3.org/ns/sosa/",
    "http://xmlns.com/foaf/0.1/",
    "http://schema.org/",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f089_shared_files_hold_nothing_that_the_policy_forbids() {
        for file in SHARED_FILES {
            assert_eq!(forbidden_in(file), None, "{}", file.name);
        }
    }

    #[test]
    fn what_only_people_need_is_not_in_the_program() {
        const TEXT: &str = "// a\n  // b\n\n  x(\"  // c\");\n    y\u{e9};";
        const LENGTH: usize = packed_len(TEXT);
        assert_eq!(std::str::from_utf8(&packed::<LENGTH>(TEXT)), Ok("x(\"  // c\");\ny\u{e9};"));
        assert_eq!(packed_len(""), 0);
    }

    #[test]
    fn every_shared_file_of_the_folder_is_served_once_and_then_known() {
        let (files, mut headers) = (PageFiles::new(&[]), HeaderMap::new());
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            assert!(files.serve(&name, &headers).is_some_and(|it| it.status() == StatusCode::OK), "{name}");
        }
        let seen = files.serve("dom.js", &headers).unwrap();
        assert_eq!(seen.headers()[header::CONTENT_SECURITY_POLICY], PAGE_POLICY);
        headers.insert(header::IF_NONE_MATCH, seen.headers()[header::ETAG].clone());
        assert_eq!(files.serve("dom.js", &headers).unwrap().status(), StatusCode::NOT_MODIFIED);
        assert!(files.serve("../Cargo.toml", &headers).is_none());
    }

    #[test]
    fn who_accepts_pages_gets_one_and_who_takes_anything_does_not() {
        let wants = |kinds: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(kinds));
            wants_page(&headers)
        };
        assert!(wants("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(!wants("*/*") && !wants("text/plain") && !wants_page(&HeaderMap::new()));
    }

    /// WCAG 2: relative luminance of `#rrggbb`.
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn letters_stand_out_from_what_is_behind_them_in_light_and_dark() {
        let style = SHARED_FILES.iter().find(|file| file.name == "style.css").unwrap().text;
        let themes: Vec<&str> = style.split(":root").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
        assert_eq!(themes.len(), 2);
        for theme in themes {
            let color = |name: &str| {
                let (_, after) = theme.split_once(&format!("--{name}: ")).unwrap();
                luminance(&after[..7])
            };
            let contrast = |one: f64, other: f64| (one.max(other) + 0.05) / (one.min(other) + 0.05);
            for front in ["ink", "quiet", "accent", "good", "warn", "bad"] {
                for back in ["card", "back", "soft"] {
                    let ratio = contrast(color(front), color(back));
                    assert!(ratio >= 4.5, "{front} on {back}: {ratio:.2}");
                }
            }
            assert!(contrast(color("accent-ink"), color("accent")) >= 4.5);
            for line in ["s1", "s2", "s3", "s4", "s5"] {
                assert!(contrast(color(line), color("card")) >= 3.0, "{line}");
            }
        }
    }
}
