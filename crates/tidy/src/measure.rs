//! How long files and functions are, and tests that check nothing. Works on text as rustfmt lays it out.

/// Lines of a file without its tests at the end.
pub fn product_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|w| w == ["#[cfg(test)]", "mod tests {"]);
    tests.unwrap_or(lines.len())
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// From `fn` to the closing brace.
    pub lines: usize,
}

fn indent(line: &str) -> &str {
    line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
}

/// The name, if a function begins in this line.
fn begins(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub(") {
        rest = after.split_once(") ")?.1;
    }
    for word in ["pub ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name: String =
        rest.strip_prefix("fn ")?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The functions of the product part of a file.
pub fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().take(product_lines(text)).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = begins(line) else { continue };
        let rest = lines.iter().skip(at);
        // A declaration ends with a semicolon before any brace opens.
        let opens = rest.clone().find(|l| l.ends_with(['{', '}', ';']));
        if !opens.is_some_and(|l| l.ends_with('{')) {
            continue;
        }
        let end = format!("{}}}", indent(line));
        if let Some(length) = rest.clone().position(|l| *l == end) {
            found.push(Function { name, lines: length + 1 });
        }
    }
    found
}

/// Lines with what looks like a check and is none, or switches one off: line number and pattern.
pub fn empty_checks(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut before = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        let patterns = ["assert!(true", "#[ignore", "todo!(", "dbg!(", "unimplemented!("];
        found.extend(patterns.into_iter().filter(|p| line.contains(p)).map(|p| (at + 1, p)));
        let is_statement = before.is_empty() || before.ends_with([';', '{', '}']);
        if line.starts_with("matches!(") && is_statement && thrown_away(text, at) {
            found.push((at + 1, "matches!(..);"));
        }
        if !line.is_empty() {
            before = line;
        }
    }
    found
}

/// Whether the macro call that begins in this line ends with a semicolon: its value goes nowhere.
fn thrown_away(text: &str, at: usize) -> bool {
    let mut lines = text.lines().skip(at);
    let Some(first) = lines.next() else { return false };
    if !first.ends_with('(') {
        return first.ends_with(';');
    }
    let end = format!("{});", indent(first));
    let closes = format!("{})", indent(first));
    lines.find(|l| l.starts_with(&closes)).is_some_and(|l| l == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "\
pub(crate) async fn one(\n    a: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n    a\n}\n\n\
trait T {\n    fn declared(&self);\n    fn two(&self) -> u8 {\n        2\n    }\n    fn short() {}\n}\n\
#[cfg(test)]\nmod tests {\n    fn not_counted() {\n    }\n}\n";
        let found: Vec<(String, usize)> = functions(text).into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(found, [("one".to_owned(), 8), ("two".to_owned(), 3)]);
        assert_eq!(product_lines(text), 16);
    }

    #[test]
    fn checks_that_check_nothing_are_found() {
        let text = "fn f() {\n    matches!(a, b);\n    let x =\n        matches!(a, b);\n    matches!(\n        a,\n        b\n    );\n    matches!(a, b)\n    }\n    g(\n    );\n}\n";
        let lines: Vec<usize> = empty_checks(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 5]);
        assert_eq!(empty_checks("#[ignore]\n// todo!()\nassert!(true, \"x\");\n").len(), 2);
    }
}
