//! JSON values as YAML: block style, strings in quotes where they could be taken for something else.

use serde::Serialize;
use serde_json::Value;

/// An answer as a document, without the end of its last line.
///
/// # Errors
/// It is nothing that JSON can say.
pub(crate) fn text<T: Serialize>(answer: &T) -> anyhow::Result<String> {
    Ok(document(&serde_json::to_value(answer)?).trim_end().to_owned())
}

/// A document.
fn document(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                indent(depth, text);
                text.push_str(&scalar(key));
                text.push(':');
                beneath(value, depth + 1, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, text);
                text.push('-');
                first_beside(item, depth + 1, text);
            }
        }
        other => {
            text.push_str(&inline(other));
            text.push('\n');
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What follows `key:`.
fn beneath(value: &Value, depth: usize, text: &mut String) {
    if is_block(value) {
        text.push('\n');
    } else {
        text.push(' ');
    }
    write(value, depth, text);
}

/// What follows `-`: the first line of a block stands beside it.
fn first_beside(value: &Value, depth: usize, text: &mut String) {
    text.push(' ');
    let mut block = String::new();
    write(value, depth, &mut block);
    text.push_str(block.trim_start_matches(' '));
}

fn indent(depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(s) => scalar(s),
        other => other.to_string(),
    }
}

/// A string without quotes where nothing else can be meant, else as JSON writes it, which YAML reads.
fn scalar(s: &str) -> String {
    let starts = s.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'/');
    let plain = s.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if starts && plain && !word.contains(&s.to_ascii_lowercase().as_str()) {
        s.to_owned()
    } else {
        Value::String(s.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_blocks_and_strings_stay_strings() {
        let value = serde_json::json!([
            { "name": "home", "sets": [{ "id": 1, "bricks": ["h:/a", "/b"] }], "options": {}, "none": null },
            { "name": "no", "size": "10", "open": true, "list": [] }
        ]);
        let expected = "\
- name: home
  none: null
  options: {}
  sets:
    - bricks:
        - \"h:/a\"
        - /b
      id: 1
- list: []
  name: \"no\"
  open: true
  size: \"10\"
";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&serde_json::json!([])), "[]\n");
    }
}
