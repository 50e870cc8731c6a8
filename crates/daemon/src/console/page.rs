//! The files of the console's page. They are in the binary, and ask nobody else for anything.

use crate::http::Answer;

/// What the page may do: load its own files, ask its own server. No script or style is written into it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Path, media type and content of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("page/app.js")),
    ("/api.js", "text/javascript; charset=utf-8", include_str!("page/api.js")),
    ("/dom.js", "text/javascript; charset=utf-8", include_str!("page/dom.js")),
    ("/views.js", "text/javascript; charset=utf-8", include_str!("page/views.js")),
    ("/volume.js", "text/javascript; charset=utf-8", include_str!("page/volume.js")),
    ("/chart.js", "text/javascript; charset=utf-8", include_str!("page/chart.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// The file at a path.
pub(super) fn file(path: &str) -> Option<Answer> {
    let (_, kind, content) = FILES.iter().find(|(p, _, _)| *p == path)?;
    Some(Answer::of(kind, content.as_bytes()).with("Cache-Control", "no-cache"))
}

/// An answer with what browsers are to keep to, whatever it is.
pub(super) fn guarded(answer: Answer) -> Answer {
    answer
        .with("Content-Security-Policy", POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("X-Frame-Options", "DENY")
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_hold_what_the_policy_allows() {
        let size: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(size < 60_000, "{size} bytes");
        for (path, _, content) in FILES {
            for not in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=",
                "onclick=",
            ] {
                assert!(!content.contains(not), "{path}: {not}");
            }
            let elsewhere =
                content.split("http").skip(1).filter(|rest| rest.starts_with("s:") || rest.starts_with(':'));
            let elsewhere: Vec<&str> =
                elsewhere.filter(|rest| !rest.starts_with("://www.w3.org/2000/svg")).collect();
            assert!(elsewhere.is_empty(), "{path} names another server: {elsewhere:?}");
        }
    }

    #[test]
    fn the_page_names_files_that_are_there() {
        let page = FILES.iter().find(|(path, _, _)| *path == "/").unwrap().2;
        let named = page.split(['"', '\'']).filter(|word| word.starts_with('/'));
        let named: Vec<&str> = named.filter(|word| *word != "/").collect();
        assert!(named.len() >= 3, "{named:?}");
        for path in named {
            assert!(file(path).is_some(), "{path}");
        }
        for (path, _, content) in FILES.iter().filter(|(path, _, _)| path.ends_with(".js")) {
            for from in content.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(file(&format!("/{from}")).is_some(), "{path}: {from}");
            }
        }
        assert!(file("/index.html").is_none());
    }
}
