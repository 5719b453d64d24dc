//! The editor for SPARQL that a browser finds at this door: files that are part of the program. It asks `/query` and
//! `/update` as every client does, with the password that the browser was told.

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tidegate_http::{HTML, PageFile, PageFiles, SCRIPT, page_file, wants_page};

use super::problem::SpaceProblem;

const FILES: &[PageFile] =
    &[page_file!("sparql.html", HTML, "../../ui/sparql.html"), page_file!("sparql.js", SCRIPT, "../../ui/sparql.js")];

fn files() -> &'static PageFiles {
    static ALL: OnceLock<PageFiles> = OnceLock::new();
    ALL.get_or_init(|| PageFiles::new(FILES))
}

/// The page, if it is a browser that asks.
pub(super) fn for_browser(headers: &HeaderMap) -> Option<Response> {
    wants_page(headers).then(|| files().serve("sparql.html", headers)).flatten()
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, SpaceProblem> {
    let served = files().serve(&name, &headers);
    served.ok_or_else(|| SpaceProblem::new(StatusCode::NOT_FOUND, "no-such-place", "there is no such file"))
}

#[cfg(test)]
mod tests {
    use tidegate_http::forbidden_in;

    use super::*;

    #[test]
    fn f089_the_page_holds_nothing_that_the_policy_forbids() {
        for file in FILES {
            assert_eq!(forbidden_in(file), None, "{}", file.name);
        }
    }
}
