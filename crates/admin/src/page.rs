//! The dashboard: files that are part of the program. Nothing is looked up in a file system, so there is no path that
//! leads out of it (F087).

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::{Answered, Problem};
use crate::status;

/// Everything from here and nothing from elsewhere; nobody may put it into a frame.
pub(crate) const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

struct PageFile {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal $kind:expr;)+) => {
        const FILES: &[PageFile] = &[$(PageFile { name: $name, kind: $kind, text: include_str!(concat!("../ui/", $name)) }),+];
    };
}

files! {
    "index.html" "text/html; charset=utf-8";
    "style.css" "text/css; charset=utf-8";
    "icon.svg" "image/svg+xml";
    "app.js" SCRIPT;
    "api.js" SCRIPT;
    "dom.js" SCRIPT;
    "chart.js" SCRIPT;
    "now.js" SCRIPT;
    "clients.js" SCRIPT;
    "topics.js" SCRIPT;
    "drops.js" SCRIPT;
    "space.js" SCRIPT;
    "limits.js" SCRIPT;
    "system.js" SCRIPT;
    "demo.js" SCRIPT;
}

/// Whether this is a place of a file.
pub(crate) fn is_file(path: &str) -> bool {
    path == "/" || path.starts_with("/ui/")
}

/// A browser gets the page, everybody else a list of what there is.
pub(crate) async fn index(headers: HeaderMap) -> Answered {
    let accepted = headers.get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok()).unwrap_or_default();
    if accepted.contains("text/html") { serve("index.html", &headers) } else { Ok(status::welcome()) }
}

pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Answered {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Answered {
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no-such-place", "there is no such file"))?;
    let tag = tag();
    let seen = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response: Response =
        if seen == tag.to_str().ok() { StatusCode::NOT_MODIFIED.into_response() } else { file.text.into_response() };
    let words = [(header::CONTENT_TYPE, file.kind), (header::CACHE_CONTROL, "no-cache"), (header::VARY, "accept")];
    for (name, value) in words {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Of all files together: they change with the program, and not otherwise.
fn tag() -> HeaderValue {
    static TAG: OnceLock<HeaderValue> = OnceLock::new();
    let make = || {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        for file in FILES {
            hash.update(file.text.as_bytes());
        }
        let hash = hash.finish().as_ref().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        HeaderValue::from_str(&format!("\"{hash:016x}\"")).unwrap_or(HeaderValue::from_static("\"0\""))
    };
    TAG.get_or_init(make).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is compressed on the way is about a third of this.
    const BYTES_MAX: usize = 300 * 1024;

    #[test]
    fn f089_the_files_are_small_and_hold_nothing_that_the_policy_forbids() {
        assert!(FILES.iter().map(|file| file.text.len()).sum::<usize>() < BYTES_MAX);
        for file in FILES {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!file.text.contains(word), "{} has {word}", file.name);
            }
            // A name space of SVG is no address that is fetched.
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{} leads elsewhere", file.name);
        }
        let index = FILES[0].text;
        assert!(!index.contains("<script>") && !index.contains(" style=") && !index.contains(" onclick="));
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
        let style = FILES.iter().find(|file| file.name == "style.css").unwrap().text;
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

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            assert!(FILES.iter().any(|file| file.name == name), "{name} is not in the program");
        }
    }
}
