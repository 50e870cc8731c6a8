//! The table of all metrics: names, kinds, labels and what they mean. `docs/metrics.md` is made of it.

/// What may be done with the values of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Only grows while the server runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in classes.
    Histogram,
}

/// Samples that differ in labels only.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($metric:ident, $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// A metric.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Metric { $($metric),* }

        /// All of them.
        pub(crate) const FAMILIES: &[Family] = &[
            $(Family { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help }),*
        ];
    };
}

families! {
    BuildInfo, Gauge, "mortar_build_info", ["version"], "Always 1; the program's version.";
    ServerInfo, Gauge, "mortar_server_info", ["pool", "server", "host"], "Always 1; the pool and this server's number and host in it.";
    StartTime, Gauge, "process_start_time_seconds", [], "When the process started, as Unix time.";
    Cpu, Counter, "process_cpu_seconds_total", [], "Processor time of the process.";
    Resident, Gauge, "process_resident_memory_bytes", [], "Memory of the process.";
    Virtual, Gauge, "process_virtual_memory_bytes", [], "Address space of the process.";
    OpenFds, Gauge, "process_open_fds", [], "Open descriptors of the process.";
    MaxFds, Gauge, "process_max_fds", [], "Descriptors that the process may have.";
    Threads, Gauge, "process_threads", [], "Threads of the process.";
    Connections, Gauge, "mortar_connections", [], "Connections of clients, servers and the command line, those in their handshake too.";
    Handshakes, Gauge, "mortar_connections_in_handshake", [], "Connections whose handshake has not ended.";
    Addresses, Gauge, "mortar_connected_addresses", [], "Addresses that have a connection; servers on them count apart.";
    ConnectionsRefused, Counter, "mortar_connections_refused_total", ["reason"], "Connections that were not let in.";
    Sessions, Gauge, "mortar_sessions", [], "Mounted clients and other servers that have a session here.";
    Lease, Gauge, "mortar_lease_remaining_seconds", [], "For how long this server may still answer; 0 without a lease.";
    PoolVersion, Gauge, "mortar_pool_version", [], "Changes of the pool's state that this server knows.";
    PoolServers, Gauge, "mortar_pool_servers", [], "Servers in the pool.";
    PoolServersDown, Gauge, "mortar_pool_servers_down", [], "Servers of the pool whose leases ran out, as the leader last said.";
    PoolLeader, Gauge, "mortar_pool_leader", [], "1 on the server that leads the pool's store.";
    PoolHeard, Gauge, "mortar_pool_leader_heard", [], "1 if the pool's leader answered this server's last heartbeat.";
    VolumeStarted, Gauge, "mortar_volume_started", ["volume"], "1 if the volume is started.";
    SetEpoch, Gauge, "mortar_set_epoch", ["volume", "set"], "The epoch of the set's view; each change of the view adds one.";
    SetLed, Gauge, "mortar_set_led", ["volume", "set"], "1 if the set has a primary.";
    SetBricks, Gauge, "mortar_set_bricks", ["volume", "set"], "Bricks of the set.";
    SetInSync, Gauge, "mortar_set_bricks_in_sync", ["volume", "set"], "Bricks of the set that hold every acknowledged change.";
    BrickUp, Gauge, "mortar_brick_up", ["volume", "set", "brick"], "1 if this server serves its brick.";
    BrickPrimary, Gauge, "mortar_brick_primary", ["volume", "set", "brick"], "1 if the brick is its set's primary.";
    BrickInSync, Gauge, "mortar_brick_in_sync", ["volume", "set", "brick"], "1 if the brick holds every acknowledged change.";
    BrickFree, Gauge, "mortar_brick_free_bytes", ["volume", "set", "brick"], "Room left for users on the brick's file system.";
    BrickSize, Gauge, "mortar_brick_size_bytes", ["volume", "set", "brick"], "Size of the brick's file system.";
    BrickLsn, Counter, "mortar_brick_changes_total", ["volume", "set", "brick"], "The position of the brick's last change: its lsn.";
    BrickUnsynced, Gauge, "mortar_brick_unsynced_changes", ["volume", "set", "brick"], "Changes that are not known to be on the brick's disk yet.";
    JournalBytes, Gauge, "mortar_brick_journal_bytes", ["volume", "set", "brick"], "Size of the brick's journal.";
    HealDone, Gauge, "mortar_heal_done_objects", ["volume", "set", "brick"], "Objects done by the healing that is under way.";
    HealLeft, Gauge, "mortar_heal_left_objects", ["volume", "set", "brick"], "Objects that the healing still has to look at, as far as it knows.";
    HealBytes, Gauge, "mortar_heal_copied_bytes", ["volume", "set", "brick"], "Bytes copied by the healing that is under way.";
    HealSeconds, Gauge, "mortar_heal_duration_seconds", ["volume", "set", "brick"], "For how long the healing has been under way.";
    MovedFiles, Counter, "mortar_moved_files_total", ["volume", "set"], "Files that moved from this set to others.";
    MovedBytes, Counter, "mortar_moved_bytes_total", ["volume", "set"], "Bytes of them.";
    MovedDirectories, Counter, "mortar_moved_directories_total", ["volume", "set"], "Directories that went from this set to others.";
    QueueWaiting, Gauge, "mortar_set_waiting_requests", ["volume", "set"], "Requests that wait for their change to be on all bricks in sync.";
    QueueDisk, Gauge, "mortar_set_disk_jobs", ["volume", "set"], "Reads, syncs and walks that run on threads for the disk.";
    QueueAsked, Gauge, "mortar_set_questions", ["volume", "set"], "Questions to other sets that wait for an answer.";
    QueuePeers, Gauge, "mortar_set_queued_bytes", ["volume", "set"], "Bytes that wait for connections to the set's other bricks.";
    OpenFiles, Gauge, "mortar_set_open_files", ["volume", "set"], "Files that clients hold open, as the primary knows.";
    RequestDuration, Histogram, "mortar_request_duration_seconds", ["volume", "set", "operation"], "From the moment a request reaches its set until its answer leaves it.";
    ClientDuration, Histogram, "mortar_client_request_duration_seconds", ["volume", "client"], "Requests of a client, which its key names or, without one, its address, timed in the same way; _other are all clients beyond 64.";
    RequestFailures, Counter, "mortar_request_failures_total", ["volume", "set", "reason"], "Requests that were answered with an error.";
    ReadBytes, Counter, "mortar_read_bytes_total", ["volume", "set"], "File data and names sent to clients.";
    WrittenBytes, Counter, "mortar_written_bytes_total", ["volume", "set"], "File data received from clients.";
    LongSteps, Counter, "mortar_long_steps_total", ["volume", "set"], "Times that the set held up its thread for more than 10 ms.";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prometheus' conventions, as far as a machine can check them without promtool.
    #[test]
    fn names_keep_the_conventions() {
        for f in FAMILIES {
            let ours = f.name.starts_with("mortar_") || f.name.starts_with("process_");
            assert!(ours, "{}", f.name);
            assert_eq!(f.kind == Kind::Counter, f.name.ends_with("_total"), "{}", f.name);
            assert!(f.help.ends_with('.') && !f.help.contains('\n'), "{}", f.name);
        }
    }

    /// The page names all metrics, and says of them what the code says.
    #[test]
    fn the_page_tells_what_there_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).unwrap();
        let row = |f: &Family| {
            let kind = format!("{:?}", f.kind).to_lowercase();
            let help = f.help.trim_end_matches('.');
            format!("| `{}` | {kind} | {} | {help} |\n", f.name, f.labels.join(", "))
        };
        let table: String = FAMILIES.iter().map(row).collect();
        let (before, rest) = page.split_once("|---|---|---|---|\n").expect("a table");
        let end = rest.find("\n\n").map_or(rest.len(), |n| n + 1);
        if std::env::var_os("UPDATE").is_some() {
            let page = format!("{before}|---|---|---|---|\n{table}{}", &rest[end..]);
            std::fs::write(path, page).unwrap();
            return;
        }
        assert_eq!(&rest[..end], table, "UPDATE=1 cargo test -p daemon writes the table of docs/metrics.md");
    }
}
