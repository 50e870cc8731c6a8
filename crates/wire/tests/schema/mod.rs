//! The declarations in the sources as data, and bytes made by them: what new samples begin with.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A type of the protocol.
pub(crate) enum Shape {
    /// Fields in order: their types.
    Struct(Vec<String>),
    /// In the order of declaration.
    Enum(Vec<Variant>),
}

/// A variant of an enum.
pub(crate) struct Variant {
    pub(crate) tag: u8,
    pub(crate) name: String,
    pub(crate) fields: Vec<String>,
}

/// All types that `wire_enum!` and `wire_struct!` declare.
pub(crate) struct Schema {
    shapes: BTreeMap<String, Shape>,
}

/// The source without comments and attributes.
fn bare(source: &str) -> String {
    let lines = source.lines().map(|l| l.split("//").next().unwrap_or_default().trim());
    lines.filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join(" ")
}

/// Splits at commas that are in no bracket.
fn split(list: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in list.chars() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts.into_iter().map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
}

/// The types of `name: Type, ...`.
fn types(fields: &str) -> Vec<String> {
    split(fields).iter().map(|f| f.split_once(':').unwrap().1.trim().to_owned()).collect()
}

/// The text up to the brace that closes the one before it.
fn block(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    panic!("a block has no end: {text}")
}

impl Schema {
    /// Reads the sources of this crate.
    pub(crate) fn read() -> Schema {
        let mut shapes = BTreeMap::new();
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let path = file.unwrap().path();
            if path.ends_with("codec.rs") {
                // It declares the macros.
                continue;
            }
            let source = bare(&fs::read_to_string(path).unwrap());
            for (word, is_enum) in [("wire_enum! {", true), ("wire_struct! {", false)] {
                for declared in source.split(word).skip(1).map(block) {
                    let (head, body) = declared.split_once('{').unwrap();
                    let name = head.split_whitespace().last().unwrap().to_owned();
                    let body = block(body);
                    let shape = if is_enum {
                        Shape::Enum(split(body).iter().map(|v| variant(v)).collect())
                    } else {
                        Shape::Struct(types(body))
                    };
                    shapes.insert(name, shape);
                }
            }
        }
        assert!(shapes.len() > 20, "the declarations are written in another way now");
        Schema { shapes }
    }

    /// A type.
    pub(crate) fn shape(&self, name: &str) -> &Shape {
        self.shapes.get(name).unwrap_or_else(|| panic!("{name} is not declared"))
    }

    /// The names of all enums.
    pub(crate) fn enums(&self) -> impl Iterator<Item = &str> {
        self.shapes.iter().filter(|(_, s)| matches!(s, Shape::Enum(_))).map(|(name, _)| name.as_str())
    }

    /// Bytes of a value of that type.
    pub(crate) fn value(&self, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(name, &mut 1, &mut out);
        out
    }

    /// Bytes of that variant.
    pub(crate) fn variant(&self, variant: &Variant) -> Vec<u8> {
        let mut out = vec![variant.tag];
        let mut next = 1;
        variant.fields.iter().for_each(|f| self.put(f, &mut next, &mut out));
        out
    }

    /// Each number differs from the one before, so that no two fields can change places unseen.
    fn put(&self, kind: &str, next: &mut u64, out: &mut Vec<u8>) {
        if let Some(inner) = kind.strip_prefix("Option<").and_then(|k| k.strip_suffix('>')) {
            out.push(1);
            return self.put(inner, next, out);
        }
        if let Some(inner) = kind.strip_prefix("Vec<").and_then(|k| k.strip_suffix('>')) {
            out.extend(2u32.to_le_bytes());
            self.put(inner, next, out);
            return self.put(inner, next, out);
        }
        if let Some(inner) = kind.strip_prefix('(').and_then(|k| k.strip_suffix(')')) {
            return split(inner).iter().for_each(|k| self.put(k, next, out));
        }
        let mut number = |bytes: usize| {
            *next += 1;
            // The second byte too, so that the order of bytes shows.
            let n = if bytes == 1 { *next } else { *next << 8 | *next };
            out.extend(n.to_le_bytes().into_iter().take(bytes));
        };
        match kind {
            "u8" => number(1),
            "bool" => {
                *next += 1;
                out.push(u8::from(next.is_multiple_of(2)));
            }
            "u16" => number(2),
            "u32" | "i32" | "VolumeId" | "SetId" | "BrickId" | "Epoch" => number(4),
            "u64" | "Lsn" | "SessionId" | "ServerId" => number(8),
            "[u8; 16]" => (0..16).for_each(|_| number(1)),
            "Fid" => ["SetId", "Epoch", "Lsn"].iter().for_each(|k| self.put(k, next, out)),
            "OpId" => ["SessionId", "u64"].iter().for_each(|k| self.put(k, next, out)),
            "Time" => ["u64", "u32"].iter().for_each(|k| self.put(k, next, out)),
            "Blob" | "Name" => {
                *next += 1;
                let text = format!("text{next}");
                out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
                out.extend(text.as_bytes());
            }
            declared => match self.shape(declared) {
                Shape::Struct(fields) => fields.iter().for_each(|f| self.put(f, next, out)),
                Shape::Enum(variants) => {
                    let v = variants.iter().find(|v| !v.fields.is_empty()).unwrap_or(&variants[0]);
                    out.push(v.tag);
                    v.fields.iter().for_each(|f| self.put(f, next, out));
                }
            },
        }
    }
}

/// `12 Read { fid: Fid, offset: u64 }`, or `16 StatFs`.
fn variant(text: &str) -> Variant {
    let (tag, rest) = text.split_once(' ').unwrap();
    let (name, fields) = rest.split_once('{').unwrap_or((rest, "}"));
    let fields = fields.trim().strip_suffix('}').unwrap();
    Variant { tag: tag.parse().unwrap(), name: name.trim().to_owned(), fields: types(fields) }
}
