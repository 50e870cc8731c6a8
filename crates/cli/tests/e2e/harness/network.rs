//! Servers in network namespaces of their own, joined by a bridge in one more, where mounts and the command line run.
//!
//! All of it goes with the namespaces when this is dropped. Links are cut by rules at the receiver: the sender sees silence,
//! like with a broken cable.

use super::{process, tool};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The outside, as an end of links that are cut.
pub(crate) const OUTSIDE: usize = usize::MAX;

/// Namespaces.
pub(crate) struct Network {
    name: String,
    servers: usize,
    cut: RefCell<BTreeSet<(usize, usize)>>,
}

impl Network {
    pub(super) const SUBNET: &str = "10.60.99";

    pub(super) fn new(servers: usize) -> Network {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("mf-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let network = Network { name, servers, cut: RefCell::default() };
        let hub = network.space(OUTSIDE);
        tool(&format!("ip netns add {hub}"));
        tool(&format!("ip -n {hub} link add br0 type bridge"));
        tool(&format!("ip -n {hub} addr add {}/24 dev br0", Network::address(OUTSIDE)));
        tool(&format!("ip -n {hub} link set br0 up"));
        tool(&format!("ip -n {hub} link set lo up"));
        for i in 0..servers {
            let space = network.space(i);
            tool(&format!("ip netns add {space}"));
            tool(&format!("ip -n {hub} link add v{i} type veth peer name eth0 netns {space}"));
            tool(&format!("ip -n {hub} link set v{i} master br0 up"));
            tool(&format!("ip -n {space} addr add {}/24 dev eth0", Network::address(i)));
            tool(&format!("ip -n {space} link set eth0 up"));
            tool(&format!("ip -n {space} link set lo up"));
        }
        for i in (0..servers).chain([OUTSIDE]) {
            network.rules(i, "add table ip cut");
            network.rules(i, "add chain ip cut in { type filter hook input priority 0 ; }");
        }
        network
    }

    fn space(&self, i: usize) -> String {
        if i == OUTSIDE { format!("{}-o", self.name) } else { format!("{}-{i}", self.name) }
    }

    fn address(i: usize) -> String {
        format!("{}.{}", Network::SUBNET, if i == OUTSIDE { 1 } else { 11 + i })
    }

    fn inside(&self, i: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.space(i)));
        command
    }

    fn rules(&self, i: usize, rules: &str) {
        let mut command = self.inside(i);
        command.args(["nft", rules]);
        process::run(command).ok();
    }

    /// The binary under test, where a server is.
    pub(super) fn mortar(&self, i: usize) -> Command {
        let mut command = self.inside(i);
        command.arg(process::mortar().get_program());
        command
    }

    /// The binary under test, outside.
    pub(super) fn mortar_outside(&self) -> Command {
        self.mortar(OUTSIDE)
    }

    /// From now on nothing gets from the one to the other.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        self.rules(to, &format!("add rule ip cut in ip saddr {} drop", Network::address(from)));
        self.cut.borrow_mut().insert((from, to));
    }

    /// Cuts a server off from everybody.
    pub(crate) fn isolate(&self, i: usize) {
        for other in (0..self.servers).chain([OUTSIDE]).filter(|o| *o != i) {
            self.cut(i, other);
            self.cut(other, i);
        }
    }

    /// All links are whole again.
    pub(crate) fn repair(&self) {
        for i in (0..self.servers).chain([OUTSIDE]) {
            self.rules(i, "flush chain ip cut in");
        }
        self.cut.borrow_mut().clear();
    }

    /// Whether the command line cannot reach a server, or that server nobody.
    pub(super) fn is_cut(&self, i: usize) -> bool {
        self.cut.borrow().iter().any(|(a, b)| *a == i || *b == i)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for i in (0..self.servers).chain([OUTSIDE]) {
            let mut command = Command::new("ip");
            command.args(["netns", "del", &self.space(i)]);
            process::run(command);
        }
    }
}
