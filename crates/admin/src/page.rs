//! The dashboard: files that are part of the program, besides those that all pages share.

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use tidegate_http::{HTML, PageFile, PageFiles, SCRIPT, page_file, wants_page};

use crate::problem::{Answered, Problem};
use crate::status;

macro_rules! files {
    ($($name:literal $kind:expr;)+) => {
        const FILES: &[PageFile] = &[$(page_file!($name, $kind, concat!("../ui/", $name))),+];
    };
}

files! {
    "index.html" HTML;
    "app.js" SCRIPT;
    "api.js" SCRIPT;
    "actions.js" SCRIPT;
    "bridges.js" SCRIPT;
    "chart.js" SCRIPT;
    "client.js" SCRIPT;
    "clients.js" SCRIPT;
    "cluster.js" SCRIPT;
    "demo.js" SCRIPT;
    "drops.js" SCRIPT;
    "gauge.js" SCRIPT;
    "limits.js" SCRIPT;
    "log.js" SCRIPT;
    "mqtt.js" SCRIPT;
    "now.js" SCRIPT;
    "space.js" SCRIPT;
    "system.js" SCRIPT;
    "tokens.js" SCRIPT;
    "topics.js" SCRIPT;
    "troubles.js" SCRIPT;
    "try.js" SCRIPT;
    "users.js" SCRIPT;
    "what_if.js" SCRIPT;
    "why.js" SCRIPT;
}

fn files() -> &'static PageFiles {
    static ALL: OnceLock<PageFiles> = OnceLock::new();
    ALL.get_or_init(|| PageFiles::new(FILES))
}

/// Whether this is a place of a file.
pub(crate) fn is_file(path: &str) -> bool {
    path == "/" || path.starts_with("/ui/")
}

/// A browser gets the page, everybody else a list of what there is.
pub(crate) async fn index(headers: HeaderMap) -> Answered {
    if wants_page(&headers) { serve("index.html", &headers) } else { Ok(status::welcome()) }
}

pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Answered {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Answered {
    let served = files().serve(name, headers);
    served.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no-such-place", "there is no such file"))
}

#[cfg(test)]
mod tests {
    use tidegate_http::forbidden_in;

    use super::*;

    /// All that a browser fetches, once.
    const BYTES_MAX: usize = 144 * 1024;

    #[test]
    fn f089_the_files_are_small_and_hold_nothing_that_the_policy_forbids() {
        assert!(files().iter().map(|file| file.text.len()).sum::<usize>() < BYTES_MAX);
        for file in FILES {
            assert_eq!(forbidden_in(file), None, "{}", file.name);
            // Nobody reads a module that is longer.
            assert!(file.text.lines().count() <= 350, "{} is too long", file.name);
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
