//! A PostgreSQL server for a single test, in a temporary folder: reachable through a socket in it,
//! and with a password and TLS on a loopback port. Tests that need it are skipped if PostgreSQL is
//! not installed.

// Each test binary uses only a part of it.
#![allow(dead_code)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A database server; killed when it is dropped.
pub struct Database {
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// PostgreSQL does not run as root.
    user: Option<(u32, u32)>,
    port: u16,
    server: Option<Child>,
}

/// The password of the user `undertone`.
pub const PASSWORD: &str = "a secret of the test";

/// The location of PostgreSQL's programs: on the path, or where Debian installs them.
fn programs() -> Option<PathBuf> {
    let debian = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.join("initdb").is_file());
    on_path.chain(debian.map(|version| version.path().join("bin"))).find(|folder| {
        ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file())
    })
}

/// A user other than root, from /etc/passwd.
fn somebody() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].iter().find_map(|name| {
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let fields = fields.find(|fields| fields.first() == Some(name) && fields.len() > 3)?;
        Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
    })
}

impl Database {
    /// Starts a server. Returns `None`, with a message, if PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let root = fs::metadata(folder.path()).unwrap().uid() == 0;
        let user = if root { Some(somebody().expect("a user that is not root")) } else { None };
        // A port that has just been free.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut database = Self { folder, programs, user, port, server: None };
        let password = database.path("password");
        fs::write(&password, PASSWORD).unwrap();
        database.give(database.folder.path());
        database.give(&password);
        let mut init = database.command("initdb");
        init.args(["--no-sync", "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8"]);
        init.args(["-U", "undertone", "--pwfile"]).arg(&password);
        let made = init.arg("-D").arg(database.path("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        database.run();
        Some(database)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the server's user the owner of a file or folder.
    pub fn give(&self, path: &Path) {
        if let Some((user, group)) = self.user {
            chown(path, Some(user), Some(group)).unwrap();
        }
        let mode = if path.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir(self.folder.path()).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Restarts the server after [`Database::stop`] or [`Database::kill`].
    pub fn run(&mut self) {
        let begun = Instant::now();
        let mut server = self.spawn();
        while !self.psql("postgres", "SELECT 1").status.success() {
            // A killed server may leave processes behind for a moment.
            if server.try_wait().unwrap().is_some() {
                server = self.spawn();
            }
            let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        self.server = Some(server);
    }

    fn spawn(&self) -> Child {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.path("data")).arg("-k").arg(self.folder.path());
        let port = format!("port={}", self.port);
        command.args(["-c", &port, "-c", "listen_addresses=127.0.0.1"]);
        let log = fs::File::create(self.path("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-At", "-U", "undertone", "-d", database, "-c", sql]);
        psql.arg("-h").arg(self.folder.path()).args(["-p", &self.port.to_string()]);
        psql.output().unwrap()
    }

    /// Runs SQL in a database; returns its output.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Creates a database; returns its address, through the socket.
    pub fn make(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://undertone@{folder}:{}/{name}", self.port)
    }

    /// The address of a database by TCP, without a password.
    pub fn by_port(&self, name: &str) -> String {
        format!("postgres://undertone@localhost:{}/{name}", self.port)
    }

    /// Requests the server to close its connections and stop.
    pub fn stop(&mut self) {
        self.end("-INT");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.end("-KILL");
        // Its child processes notice this and exit.
        std::thread::sleep(Duration::from_millis(300));
    }

    fn end(&mut self, signal: &str) {
        if let Some(mut server) = self.server.take() {
            let id = server.id().to_string();
            let _ = Command::new("kill").args([signal, &id]).status();
            let _ = server.wait();
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}
