//! Frozen samples of JSON: `NAME.json`, and `NAME.2.json`, ... for the message with fields that were added later.
//!
//! The newest is exactly what the code writes. In the older ones nothing has another name or value: fields were added only.
//! UPDATE=1 writes the first sample or the next one, and never changes one.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether all of `part` is in `whole`, which may have more fields.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|w| contains(w, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| contains(w, p))
        }
        _ => whole == part,
    }
}

fn file(folder: &Path, name: &str, number: usize) -> PathBuf {
    let name = if number == 1 { format!("{name}.json") } else { format!("{name}.{number}.json") };
    folder.join(name)
}

/// The samples of a message that is written as `fresh` today.
pub(crate) fn frozen(folder: &Path, name: &str, fresh: &Value) -> Vec<Value> {
    let read = |n: usize| fs::read_to_string(file(folder, name, n)).ok();
    let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let mut samples: Vec<Value> = (1..).map_while(read).map(parse).collect();
    for sample in &samples {
        assert!(
            contains(fresh, sample),
            "{name}: the sample {sample} is not in what the code writes: {fresh}"
        );
    }
    if samples.last() != Some(fresh) {
        let next = file(folder, name, samples.len() + 1);
        assert!(
            std::env::var_os("UPDATE").is_some(),
            "{} is missing: UPDATE=1 cargo test writes it",
            next.display()
        );
        fs::create_dir_all(folder).unwrap();
        fs::write(next, serde_json::to_string_pretty(fresh).unwrap() + "\n").unwrap();
        samples.push(fresh.clone());
    }
    samples
}
