//! What `-o json`, `-o yaml` and `-o wide` make of answers that are no tables alone: streams, profiles, plans, checks.

use crate::harness::{Pool, mortar, run};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The documents of a stream in YAML, each without the line that begins it.
fn yaml_documents(text: &str) -> Vec<&str> {
    let all = text.strip_prefix("---\n").unwrap_or_else(|| panic!("no document: {text}"));
    all.split("---\n").collect()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

#[test]
fn streams_are_documents_one_after_the_other() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    pool.ok("volume set v features.read-only on");
    let all: Vec<Value> = pool.ok("events --json --volume v").lines().map(parsed).collect();
    assert!(all.len() >= 2, "{all:?}");
    assert_eq!(pool.ok("events -o json --volume v").lines().map(parsed).collect::<Vec<_>>(), all);
    let text = pool.ok("events -o yaml --volume v");
    let documents = yaml_documents(&text);
    assert_eq!(documents.len(), all.len());
    let fits = |(document, event): (&&str, &Value)| {
        document.starts_with(&format!("at_ms: {}\n", event["at_ms"])) && document.contains("\nvolume: v\n")
    };
    assert!(documents.iter().zip(&all).all(fits), "{text}");
    let wide = pool.ok("events -o wide --volume v");
    assert!(wide.lines().count() == all.len() && wide.lines().all(|l| l.contains(" v  ")), "{wide}");
    assert_eq!(pool.ok("events webhook -o yaml"), "notes: []\nservers: []\nurl: null\n");

    // A top goes on without a terminal if it is asked to.
    let once = parsed(&pool.ok("volume top v -o json --seconds 1"));
    assert_eq!((&once["name"], once["rates"].as_array().map(Vec::len)), (&"v".into(), Some(0)));
    assert!(pool.ok("volume top v -o yaml --seconds 1").contains("name: v\n"));
    assert!(pool.ok("volume top v -o wide --seconds 1").contains("  SET  FILE"));
    let mut command = mortar();
    command.args(["--server", &pool.servers[0].address]);
    command.args("volume top v --follow --seconds 1 -o json".split(' ')).stdout(Stdio::piped());
    let mut follow = command.spawn().unwrap();
    let lines = BufReader::new(follow.stdout.take().unwrap()).lines().map_while(Result::ok);
    let two: Vec<Value> = lines.take(2).map(|line| parsed(&line)).collect();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(two.len() == 2 && two.iter().all(|d| d["name"] == "v"), "{two:?}");
    assert_eq!(pool.cli("volume top v --follow --once").code, Some(2));

    let mut command = mortar();
    command.args(["--server", &pool.servers[0].address]);
    command.args("volume status v --watch=1 -o yaml".split(' ')).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.filter(|line| line == "---").take(2).count(), 2, "a document each time");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn profiles_plans_and_checks() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    assert!(pool.ok("volume profile v start -o yaml").contains("name: v\n"));
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    mount.end();
    let report = parsed(&pool.ok("volume profile v info -o json"));
    assert!(!report["total"]["sets"][0]["operations"].as_array().unwrap().is_empty(), "{report}");
    assert!(pool.ok("volume profile v info -o yaml").contains("operation: write\n"));
    let wide = pool.ok("volume profile v info -o wide");
    assert!(wide.contains("99 % TO") && wide.contains("IN ALL") && wide.contains("> 10.0 s"), "{wide}");
    assert_eq!(pool.cli("volume profile v info -o table").code, Some(2));

    let file = pool.dir.join("pool.toml");
    fs::write(&file, pool.ok("config export")).unwrap();
    let diff = format!("config diff {}", file.display());
    assert_eq!(pool.ok(&diff), "");
    assert!(pool.ok(&format!("{diff} -o yaml")).starts_with("changes: []\n"));
    pool.ok("volume set v features.read-only on");
    let told = pool.ok(&format!("{diff} -o wide"));
    assert_eq!((told.lines().count(), &pool.ok(&diff)), (1, &told));
    assert_eq!(parsed(&pool.ok(&format!("{diff} -o json")))["changes"][0], told.trim_end());
    assert!(pool.ok(&format!("{diff} -o yaml")).starts_with("changes:\n  - "));

    pool.ok("volume stop v --yes");
    let check = |form: &str| {
        let mut command = mortar();
        command.args(["brick", "check"]).arg(pool.servers[0].path("b")).args(["-o", form]);
        run(command)
    };
    let json = parsed(&check("json").ok());
    assert_eq!((&json["files"], &json["problems"]), (&1.into(), &serde_json::json!([])), "{json}");
    assert!(check("yaml").ok().contains("problems: []\n"));
    assert!(check("wide").ok().contains(": 1 files, "));
    // What is wrong is in the document, and the command fails all the same.
    fs::write(pool.servers[0].path("b").join("stray"), "x").unwrap();
    let wrong = check("yaml");
    assert!(wrong.code == Some(1) && wrong.stdout.contains("path: stray\n"), "{wrong:?}");
}
