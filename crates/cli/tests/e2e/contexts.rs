//! Which server is asked: by word, variable, context, and the first of several that answers.

use crate::harness::{Output, Pool, mortar, run};
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
