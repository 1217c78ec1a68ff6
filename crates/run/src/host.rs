//! The name of this machine.

use std::process::Command;

/// This machine's name on its network, if the system has one.
pub fn host_name() -> Option<String> {
    let linux = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let windows = || std::env::var("COMPUTERNAME").ok();
    // Shells set HOSTNAME, but rarely pass it on to programs.
    let other = || String::from_utf8(Command::new("hostname").output().ok()?.stdout).ok();
    let name =
        linux().or_else(windows).or_else(other).or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
