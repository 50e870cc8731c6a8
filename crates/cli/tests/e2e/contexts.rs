//! Which server is asked: by word, variable, context, and the first of several that answers.

use crate::harness::{Output, Pool, mortar, mortar_elsewhere, run};
use std::fs;

/// Runs `pool list` with these words and variables.
fn list(pool: &Pool, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = mortar();
    command
        .args(words)
        .args(["pool", "list"])
        .env("XDG_CONFIG_HOME", &pool.dir)
        .envs(variables.iter().copied());
    run(command)
}

#[test]
fn words_are_stronger_than_variables_and_those_than_files() {
    let pool = Pool::new(1);
    let (address, dead) = (pool.servers[0].address.clone(), pool.spare_address());
    let several = format!("{dead},{address}");
    list(&pool, &["--server", &several], &[]).ok();
    list(&pool, &[], &[("MORTAR_SERVER", &several)]).ok();
    list(&pool, &["--server", &address], &[("MORTAR_SERVER", &dead)]).ok();
    let other = dead.replace(".200:", ".201:");
    list(&pool, &["--server", &format!("{dead},{other}")], &[]).refused_with(&[&dead, &other]);

    fs::create_dir(pool.dir.join("mortar")).unwrap();
    let contexts = format!(
        "context = \"home\"\n[contexts.home]\nserver = \"{several}\"\n[contexts.dead]\nserver = \"{dead}\"\n"
    );
    fs::write(pool.dir.join("mortar/config.toml"), contexts).unwrap();
    list(&pool, &[], &[]).ok();
    list(&pool, &["--context", "dead"], &[]).refused_with(&[&dead]);
    list(&pool, &["--context", "home"], &[("MORTAR_SERVER", &dead)]).ok();
    list(&pool, &[], &[("MORTAR_SERVER", &dead)]).refused_with(&[&dead]);
    list(&pool, &["--context", "moon"], &[]).refused_with(&["moon", "dead, home"]);
}

/// From machines that are none of the pool's servers, each pool needs a key of its own.
#[test]
fn a_context_names_its_key() {
    let pool = Pool::new(1);
    fs::create_dir(pool.dir.join("mortar")).unwrap();
    let key = pool.dir.join("mortar/home.key");
    pool.ok(&format!("pool key ann --out {}", key.display()));
    let server = format!("server = \"{}\"\n", pool.servers[0].address);
    let contexts = format!(
        "[contexts.home]\n{server}key = \"home.key\"\n[contexts.bare]\n{server}[contexts.lost]\n{server}key = \"no.key\"\n"
    );
    fs::write(pool.dir.join("mortar/config.toml"), contexts).unwrap();
    let elsewhere = |words: &[&str], variable: &str| {
        let mut command = mortar_elsewhere();
        command
            .args(words)
            .args(["pool", "list"])
            .env("XDG_CONFIG_HOME", &pool.dir)
            .env("MORTAR_KEY", variable);
        run(command)
    };
    elsewhere(&["--context", "home"], "").ok();
    elsewhere(&["--context", "bare"], "").refused_with(&["--key FILE"]);
    elsewhere(&["--context", "bare"], key.to_str().unwrap()).ok();
    elsewhere(&["--context", "lost"], "").refused_with(&["no.key", "No such file"]);
    // What is said with the command is stronger than the file.
    elsewhere(&["--context", "lost", "--key", key.to_str().unwrap()], "").ok();
}
