//! `docs/formats/wire.md` names every message that the code has, under the tag that the code gives it.

use std::fs;
use std::path::Path;

/// A line of an enum's declaration: `12 Read { fid: Fid, ... },`.
fn variant(line: &str) -> Option<(u8, &str)> {
    let (tag, rest) = line.trim().split_once(' ')?;
    let name = rest.split([' ', ',']).next().filter(|n| n.starts_with(char::is_uppercase))?;
    Some((tag.parse().ok()?, name))
}

#[test]
fn every_message_is_documented() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../docs/formats/wire.md")).unwrap();
    let mut seen = 0;
    for file in fs::read_dir(here.join("src")).unwrap() {
        let source = fs::read_to_string(file.unwrap().path()).unwrap();
        let enums = source.split("wire_enum! {").skip(1).filter_map(|e| e.split("\n}").next());
        for (tag, name) in enums.flat_map(str::lines).filter_map(variant) {
            assert!(page.contains(&format!("| {tag} | `{name}` |")), "{name}, tag {tag}, is not in wire.md");
            seen += 1;
        }
    }
    assert!(seen > 80, "the declarations are written in another way now: only {seen} were found");
}
