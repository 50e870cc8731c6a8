//! Running programs to their end, with a deadline.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a program said.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary under test: MORTAR_BIN, or the one that `cargo build -p mortar` puts beside the folder of this test.
pub(crate) fn mortar() -> Command {
    let built = || {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
        profile.join("mortar").into_os_string()
    };
    Command::new(std::env::var_os("MORTAR_BIN").unwrap_or_else(built))
}

/// The binary as a terminal starts it: the end of the terminal is told to it, also where these tests run under `nohup`.
pub(crate) fn mortar_at_a_terminal() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(mortar().get_program());
    command
}

/// A program with a view of mounts of its own. Mounts of other tests, and their disks, are taken out of it, or they would last as
/// long as it runs: a disk that failed like in a power cut would be the same failed one when its test mounts it again.
pub(crate) fn own_mounts() -> Command {
    let mut command = Command::new("unshare");
    let alone = "umount -i -l -a -t fuse.mortar 2>/dev/null; \
        grep -o ' /[^ ]*/mortar-e2e\\.[^ ]* ' /proc/self/mounts | xargs -r umount -l 2>/dev/null; exec \"$0\" \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", alone]);
    command
}

/// The binary under test as on another machine: it sees none of the sockets that servers leave for root.
pub(crate) fn mortar_elsewhere() -> Command {
    std::fs::create_dir_all("/run/mortar").unwrap();
    let mut command = own_mounts();
    let elsewhere = "mount -t tmpfs -o mode=700 elsewhere /run/mortar && exec \"$0\" \"$@\"";
    command.args(["sh", "-c", elsewhere]).arg(mortar().get_program());
    command
}

/// Starts the binary under test, called by `command`, as a child that ends with us.
pub(crate) fn spawn(mut command: Command, configure: impl FnOnce(&mut Command)) -> Child {
    configure(&mut command);
    command.arg("--die-with").arg(std::process::id().to_string());
    command.spawn().unwrap()
}

/// Runs a program to its end.
pub(crate) fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let err = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let until = Instant::now() + Duration::from_secs(180);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(out.join().unwrap().unwrap()), text(err.join().unwrap().unwrap()));
    Output { code: status.code(), stdout, stderr }
}

/// Runs a tool of the system that has to succeed.
pub(crate) fn tool(line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let output = run(command);
    assert_eq!(output.code, Some(0), "{line}: {}{}", output.stdout, output.stderr);
    output.stdout
}

impl Output {
    /// Its stdout; it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "it failed: {}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The reason; it failed as the contract says: code 1 and one line.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(1), "code 1 was expected: {}{}", self.stdout, self.stderr);
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "one line was expected: {}", self.stderr);
        assert_eq!(self.stdout, "", "nothing was expected on stdout");
        let line =
            lines[0].strip_prefix("mortar: ").unwrap_or_else(|| panic!("mortar: was expected: {}", lines[0]));
        println!("refused: {line}");
        line.to_owned()
    }

    /// The reason, which contains all these words.
    #[track_caller]
    pub(crate) fn refused_with(self, words: &[&str]) -> String {
        let line = self.refused();
        for word in words {
            assert!(line.contains(word), "{word:?} was expected in {line:?}");
        }
        line
    }
}
