//! What idle volumes cost, and how fast many options are set.

use crate::harness::{Pool, alone, run};
use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

/// Resident megabytes of a process.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn descriptors(pid: u32) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    all.filter_map(|e| fs::read_link(e.path()).ok()?.into_os_string().into_string().ok()).collect()
}

/// TCP ports that a process listens on.
fn ports(pid: u32) -> BTreeSet<String> {
    let own: BTreeSet<String> = descriptors(pid).into_iter().collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let sockets = table.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>());
    let listening = sockets.filter(|c| c[3] == "0A" && own.contains(&format!("socket:[{}]", c[9])));
    listening.map(|c| c[1].to_owned()).collect()
}

#[test]
fn thirty_idle_volumes() {
    let _alone = alone();
    let pool = Pool::new(3);
    for i in 0..30 {
        pool.volume(&format!("v{i}"), 1, &[(i % 3, &format!("b{i}"))]);
    }
    for server in &pool.servers {
        let pid = server.pid();
        let (memory, open, ports) = (resident(pid), descriptors(pid).len(), ports(pid));
        println!("server {}: {memory} MB resident, {open} descriptors, ports {ports:?}", server.address);
        assert!(memory < 200, "{memory} MB resident");
        assert!(open < 1000, "{open} descriptors");
        assert_eq!(ports.len(), 1, "{ports:?}");
        let processes = crate::harness::files::processes_with(server.state().to_str().unwrap());
        assert_eq!(processes.len(), 1, "{processes:?}");
    }
    many_options(&pool);
}

fn many_options(pool: &Pool) {
    let mut text = String::new();
    for i in 0..30 {
        text.push_str(&format!(
            "[volume.v{i}.options]\n\"cluster.large-file-size\" = \"1MB\"\n\"network.ping-timeout\" = \"{}s\"\n\"user.size\" = \"512\"\n\
             \"storage.sync-interval\" = \"7s\"\n\"storage.fd-limit\" = 128\n\"user.note\" = \"n{i}\"\n",
            4 + i % 5
        ));
    }
    let file = pool.dir.join("options.toml");
    fs::write(&file, text).unwrap();
    let line = format!("config apply {}", file.display());
    let planned = pool.json(&format!("{line} --dry-run"));
    assert_eq!(planned["changes"].as_array().unwrap().len(), 150, "{planned}");
    let begun = Instant::now();
    pool.ok(&line);
    println!("150 options in {:?}", begun.elapsed());
    assert!(begun.elapsed().as_millis() < 1000, "150 options took {:?}", begun.elapsed());
    assert_eq!(pool.json("volume get v29 user.note")[0]["value"], "n29");
    assert!(pool.ok(&line).contains("nothing to change"));
    // The document of the pool, applied to it, changes nothing.
    let exported = pool.dir.join("exported.toml");
    fs::write(&exported, pool.ok("config export")).unwrap();
    assert!(pool.ok(&format!("config apply {}", exported.display())).contains("nothing to change"));
    let mut bad = crate::harness::mortar();
    let wrong = pool.dir.join("wrong.toml");
    fs::write(&wrong, "[volume.v0.options]\n\"network.ping-timeout\" = \"9s\"\n\"no.such\" = 1\n").unwrap();
    bad.args(["--server", &pool.servers[0].address, "config", "apply"]).arg(&wrong);
    run(bad).refused_with(&["line 3", "no.such"]);
    assert_ne!(pool.json("volume get v0 network.ping-timeout")[0]["value"], "9s");
}
