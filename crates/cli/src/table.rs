//! Tables: aligned columns, the same on a terminal and in a pipe, but that long text is wrapped between words on a terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use ids::visible;
use std::io::IsTerminal;
use std::net::Ipv6Addr;

/// A host or name as it is shown: an address of IPv6 stands in brackets, and what has them already is as it was.
pub(crate) fn shown_host(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { ids::bracketed(host) } else { host.to_owned() }
}

/// A table of text.
#[derive(Debug)]
pub(crate) struct Rows {
    table: Table,
    columns: usize,
}

impl Rows {
    /// With these heads.
    pub(crate) fn new(heads: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(heads.iter().copied());
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Rows { table, columns: heads.len() }
    }

    /// One more row. Control characters are shown as what they are: names of files may have them, and no terminal is to
    /// obey those.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.table.add_row(cells.into_iter().map(|cell| visible(&cell)));
    }

    /// Numbers stand to the right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Rows {
        for column in columns {
            if let Some(column) = self.table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// The last column is text for people: on a terminal it is wrapped, and no other column.
    pub(crate) fn wrapped(mut self) -> Rows {
        if std::io::stdout().is_terminal() {
            self.table.set_content_arrangement(ContentArrangement::Dynamic);
            for i in 0..self.columns.saturating_sub(1) {
                if let Some(column) = self.table.column_mut(i) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        self
    }

    /// The table as text, without spaces at the ends of its lines.
    pub(crate) fn text(&self) -> String {
        let text = self.table.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }
}

/// Text of one line, which a terminal does not break within words: it is wrapped there, and indented from the second line on.
pub(crate) fn paragraph(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    let columns = Table::new().width().unwrap_or(80).into();
    fill(text, columns)
}

fn fill(text: &str, columns: usize) -> String {
    let (mut all, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if used == 0 {
            used = width;
        } else if used + 1 + width > columns {
            all.push_str("\n  ");
            used = 2 + width;
        } else {
            all.push(' ');
            used += 1 + width;
        }
        all.push_str(word);
    }
    all
}

/// Bytes for people: 1.5 GiB.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut unit, mut scale) = (0, 1024u64);
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale <<= 10;
        unit += 1;
    }
    // Tenths, in whole numbers: exact also where floats are not.
    let tenths = u128::from(bytes) * 10 / u128::from(scale);
    let unit = UNITS.get(unit).copied().unwrap_or("EiB");
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

/// "yes" or "no".
pub(crate) fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        let shown =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (10 << 20, "10 MiB")];
        for (bytes, text) in shown {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(u64::MAX), "15 EiB");
    }

    #[test]
    fn addresses_of_ipv6_stand_in_brackets() {
        let hosts = ["h1", "192.0.2.1", "fd00::1", "[fd00::1]", "[fd00::1]:24240", "h1:24240", "web"];
        let shown = ["h1", "192.0.2.1", "[fd00::1]", "[fd00::1]", "[fd00::1]:24240", "h1:24240", "web"];
        assert_eq!(hosts.map(shown_host), shown);
    }

    #[test]
    fn plain_tables_are_aligned() {
        let mut rows = Rows::new(&["A", "LONG"]).right(&[1]);
        rows.row(["xyz".to_owned(), "1".to_owned()]);
        assert_eq!(rows.text(), "A    LONG\nxyz     1");
    }

    #[test]
    fn paragraphs_break_between_words() {
        assert_eq!(fill("aaa bb c ddddddddddd e", 8), "aaa bb c\n  ddddddddddd\n  e");
        assert_eq!(fill("aaa bb", 80), "aaa bb");
        assert_eq!(paragraph("not on a terminal"), "not on a terminal");
    }

    #[test]
    fn a_file_name_does_not_command_the_terminal() {
        let mut rows = Rows::new(&["FILE"]);
        rows.row(["/\u{1b}[2Ja\nb é".to_owned()]);
        assert_eq!(rows.text(), "FILE\n/\\u{1b}[2Ja\\nb é");
    }
}
