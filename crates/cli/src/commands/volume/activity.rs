//! `mortar volume status VOL clients` and `queues`: who uses a volume and what waits in it.

use crate::ask;
use crate::cli::Global;
use crate::live::Live;
use crate::output::with_notes;
use crate::table::{Rows, shown_host, size};
use admin::{ClientReports, OpenFileReports, QueueReports, RestingMounts};

pub(super) fn clients(global: &Global, live: Live, name: String) -> anyhow::Result<()> {
    let look = || ask::ask(global, admin::VolumeClients { name: name.clone() });
    live.show(global, look, show_clients)
}

pub(super) fn fds(global: &Global, live: Live, name: String) -> anyhow::Result<()> {
    let look = || ask::ask(global, admin::VolumeFds { name: name.clone() });
    live.show(global, look, |answer, _| show_fds(answer))
}

pub(super) fn queues(global: &Global, live: Live, name: String) -> anyhow::Result<()> {
    let look = || ask::ask(global, admin::VolumeQueues { name: name.clone() });
    live.show(global, look, |answer, _| show_queues(answer))
}

fn show_clients(r: &ClientReports, wide: bool) -> String {
    let resting = show_resting(r);
    let mut text = match r.clients.len() {
        0 if r.resting.is_empty() => {
            return with_notes(format!("volume {}: nobody uses it", r.name), &r.notes);
        }
        0 => return with_notes(format!("volume {}: nobody asks for anything\n{resting}", r.name), &r.notes),
        1 => format!("volume {}: 1 client\n", r.name),
        many => format!("volume {}: {many} clients\n", r.name),
    };
    let mut heads = vec!["ADDRESS", "NAME", "SESSION", "REQUESTS", "READ", "WRITTEN", "OPEN", "FOR"];
    if wide {
        heads.extend(["CONN", "KEY"]);
    }
    let mut rows = Rows::new(&heads).right(&[3, 4, 5, 6, 7, 8, 9]);
    for c in &r.clients {
        let session = match wide {
            true => c.session.clone(),
            // Enough to tell them apart.
            false => c.session.chars().take(8).collect(),
        };
        let mut cells = vec![
            shown_host(&c.address),
            shown_name(c.name.as_deref(), wide),
            session,
            c.requests.to_string(),
            size(c.read_bytes),
            size(c.written_bytes),
            c.open_files.to_string(),
            span(c.seconds),
        ];
        if wide {
            cells.push(c.connections.to_string());
            cells.push(c.key.map_or_else(|| "-".to_owned(), |key| key.to_string()));
        }
        rows.row(cells);
    }
    text.push_str(&rows.text());
    if !resting.is_empty() {
        text.push('\n');
        text.push_str(&resting);
    }
    with_notes(text, &r.notes)
}

/// The name of a key. That of root on a server says the volume, too (`root.server1.volume2`).
fn shown_name(name: Option<&str>, wide: bool) -> String {
    let Some(name) = name else { return "-".to_owned() };
    let of_root = name.rsplit_once(".volume").filter(|_| !wide && name.starts_with("root."));
    of_root.map_or(name, |(server, _)| server).to_owned()
}

/// Mounts that ask for nothing, a line for each address.
fn show_resting(r: &ClientReports) -> String {
    let line = |RestingMounts { address, mounts }: &RestingMounts| {
        let address = shown_host(address);
        match mounts {
            1 => format!("{address}: 1 mount that rests"),
            many => format!("{address}: {many} mounts that rest"),
        }
    };
    r.resting.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn show_fds(r: &OpenFileReports) -> String {
    let mut text = match r.total {
        0 => return with_notes(format!("volume {}: no file is open", r.name), &r.notes),
        1 => format!("volume {}: 1 file is open\n", r.name),
        many => format!("volume {}: {many} files are open\n", r.name),
    };
    let mut rows = Rows::new(&["SET", "CLIENTS", "FILE"]).right(&[0, 1]);
    for f in &r.files {
        rows.row([f.set.to_string(), f.clients.to_string(), f.path.clone()]);
    }
    text.push_str(&rows.text());
    if r.total > r.files.len() as u64 {
        text.push_str("\n...");
    }
    with_notes(text, &r.notes)
}

fn show_queues(r: &QueueReports) -> String {
    let heads = ["SET", "BRICK", "WAIT", "DISK", "ASKED", "QUEUED", "TO SYNC", "JOURNAL", "LONG"];
    let mut rows = Rows::new(&heads).right(&[0, 2, 3, 4, 5, 6, 7, 8]);
    for b in &r.bricks {
        rows.row([
            b.set.to_string(),
            b.brick.clone(),
            b.waiting.to_string(),
            b.disk.to_string(),
            b.asked.to_string(),
            size(b.queued_bytes),
            b.unsynced.to_string(),
            size(b.journal_bytes),
            b.long_steps.to_string(),
        ]);
    }
    with_notes(format!("volume {}\n{}", r.name, rows.text()), &r.notes)
}

/// A span of time in its largest unit.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::ClientStatus;
    use ids::KeyId;

    #[test]
    fn spans_are_for_people() {
        let shown: Vec<String> = [0, 119, 120, 7199, 7200, 172_800].map(span).into();
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }

    #[test]
    fn addresses_of_ipv6_stand_in_brackets() {
        let client = ClientStatus { address: "fd00::1".to_owned(), ..ClientStatus::default() };
        let resting = vec![RestingMounts { address: "fd00::2".to_owned(), mounts: 1 }];
        let clients = vec![client];
        let text = show_clients(&ClientReports { clients, resting, ..ClientReports::default() }, false);
        assert!(
            text.contains("\n[fd00::1]  ") && text.ends_with("\n[fd00::2]: 1 mount that rests"),
            "{text}"
        );
    }

    #[test]
    fn clients_fit_into_80_columns() {
        let busy = ClientStatus {
            address: "192.168.100.200".to_owned(),
            name: Some("web-1".to_owned()),
            key: Some(KeyId(12)),
            session: "00c0ffee00c0ffee".to_owned(),
            connections: 99,
            requests: 9_999_999_999,
            read_bytes: 1 << 62,
            written_bytes: 1023 << 30,
            open_files: 65_536,
            seconds: 7100,
            mounts: 0,
        };
        let resting = vec![RestingMounts { address: "192.168.100.201".to_owned(), mounts: 2 }];
        let all = ClientReports { name: "home".to_owned(), clients: vec![busy], resting, notes: vec![] };
        let text = show_clients(&all, false);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.contains("\n192.168.100.200  web-1  00c0ffee  "), "{text}");
        let wide = show_clients(&all, true);
        assert!(wide.contains("  00c0ffee00c0ffee  ") && wide.contains("    99   12\n"), "{wide}");
        assert!(text.ends_with("\n192.168.100.201: 2 mounts that rest"), "{text}");
        let told = show_clients(&ClientReports { clients: vec![], ..all }, false);
        assert_eq!(told, "volume home: nobody asks for anything\n192.168.100.201: 2 mounts that rest");
        let nobody = ClientReports { name: "home".to_owned(), ..ClientReports::default() };
        assert_eq!(show_clients(&nobody, false), "volume home: nobody uses it");
    }

    #[test]
    fn keys_of_root_are_named_by_their_server() {
        let shown = |name| [shown_name(name, false), shown_name(name, true)];
        assert_eq!(shown(None), ["-", "-"]);
        assert_eq!(shown(Some("web.volume2")), ["web.volume2", "web.volume2"]);
        assert_eq!(shown(Some("root.server1.volume2")), ["root.server1", "root.server1.volume2"]);
    }
}
