//! Downloads, verifies and stores the task and pre(·).

use super::book::Pin;
use super::client::{Client, Endpoint, Identity};
use super::home::{Home, make_private};
use super::send::send;
use super::verify::client_config;
use crate::error::{Error, Result};
use crate::hex::{Hash, hash, hash_file, hex, unhex};
use crate::task::{PublicFile, Task};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The provider, as specified by the owner.
#[derive(Clone, Debug)]
pub struct Provider {
    pub endpoint: Endpoint,
    /// The owner's token.
    pub token: Option<String>,
    /// SHA-256 of the certificate, as printed by the provider.
    pub fingerprint: Option<Hash>,
    /// Certificate authorities to trust for the server, instead of the default ones.
    pub authorities: Option<PathBuf>,
    /// The client certificate.
    pub identity: Option<Identity>,
    /// The expected hash of the task, as published by the provider.
    pub task: Option<Hash>,
}

/// A pinned task.
#[derive(Debug)]
pub struct Pinned {
    pub task: Task,
    pub hash: Hash,
    /// Whether the task or a file of pre(·) has just been downloaded.
    pub is_new: bool,
}

impl Pinned {
    /// When a task is new, the provider knows when it was downloaded. This rounds the time spent on
    /// the texts since then up to a power of two of seconds.
    pub fn wait_for_a_round_time(&self, begun: Instant) {
        if !self.is_new {
            return;
        }
        let mut until = Duration::from_secs(1);
        while begun.elapsed() > until {
            until *= 2;
        }
        std::thread::sleep(until.saturating_sub(begun.elapsed()));
    }
}

/// Maximum number of bytes per request.
const PART: u64 = 8 << 20;
const MOST_OF_TASK: usize = 4 << 20;

impl Provider {
    /// A client, with the certificate verification for this server.
    pub fn client(&self, home: &Home) -> Result<Client> {
        let pin = home.book.pin(&self.endpoint.url())?;
        let fingerprint = self.fingerprint.or(pin.and_then(|pin| pin.fingerprint));
        let config =
            client_config(fingerprint, self.authorities.as_deref(), self.identity.as_ref())?;
        Client::new(self.endpoint.clone(), config, fingerprint.as_ref(), self.token.clone())
    }

    /// The task of the address: the one pinned on first use, or the current one. For a pinned task
    /// the provider is not contacted, so it does not learn how long the texts take.
    pub fn pinned(&self, home: &Home, client: &mut Client) -> Result<Pinned> {
        let url = self.endpoint.url();
        let pin = home.book.pin(&url)?;
        if let Some(pin) = &pin {
            if self.task.is_some_and(|wanted| wanted != pin.task) {
                return Err(Error::mistake(format!(
                    "{url} was pinned to the task {}, not to the one that --task-hash names",
                    hex(&pin.task)
                )));
            }
            let path = home.task(&pin.task).join("task.json");
            if let Ok(bytes) = undertone_run::read_bytes(&path, MOST_OF_TASK as u64)
                && hash(&bytes) == pin.task
            {
                return Ok(Pinned { task: Task::parse(&bytes)?, hash: pin.task, is_new: false });
            }
        }
        let response = client.get("/v1/task", None, MOST_OF_TASK)?;
        if response.status != 200 {
            return Err(Error::failed(format!("{url} has no task: {}", response.problem())));
        }
        let current = hash(&response.body);
        let wanted = self.task.or(pin.as_ref().map(|pin| pin.task));
        if wanted.is_some_and(|wanted| wanted != current) {
            return Err(Error::mistake(changed(&url, &current)));
        }
        let task = Task::parse(&response.body)?;
        let folder = home.task(&current);
        make_private(&folder)?;
        undertone_run::write_atomically(&folder.join("task.json"), |out| {
            out.write_all(&response.body)
        })?;
        home.book.set_pin(&url, &Pin { task: current, fingerprint: self.fingerprint })?;
        Ok(Pinned { task, hash: current, is_new: true })
    }

    /// Checks that the token is valid and that the provider still has the task; returns the owner's
    /// name.
    pub fn enrol(&self, home: &Home, client: &mut Client, task: &Hash) -> Result<String> {
        #[derive(serde::Deserialize)]
        struct Enrolled {
            owner: String,
            task: String,
        }
        let url = self.endpoint.url();
        let response = send(client, "/v1/enrol", &[])?;
        match response.status {
            200 => {}
            401 => return Err(Error::mistake(format!("{url} refuses: {}", response.problem()))),
            _ => return Err(Error::failed(format!("{url} refuses: {}", response.problem()))),
        }
        let said: Enrolled = serde_json::from_slice(&response.body)
            .map_err(|e| Error::failed(format!("the answer from {url} cannot be read: {e}")))?;
        let current = unhex::<32>(&said.task).unwrap_or_default();
        if current != *task {
            return Err(Error::mistake(changed(&url, &current)));
        }
        if self.fingerprint.is_some() {
            // The user specified a certificate other than the pinned one, and the server presents
            // it.
            home.book.set_pin(&url, &Pin { task: current, fingerprint: self.fingerprint })?;
        }
        Ok(said.owner)
    }
}

fn changed(url: &str, current: &Hash) -> String {
    format!(
        "{url} now has another task ({}) than the one that was pinned; nothing was sent. Ask the \
         provider why: another task needs another address",
        hex(current)
    )
}

/// Downloads and verifies the missing files of pre(·), and returns their folder.
pub fn fetch_pre(home: &Home, pinned: &mut Pinned, client: &mut Client) -> Result<PathBuf> {
    let folder = home.task(&pinned.hash).join("pre");
    make_private(&folder)?;
    for file in &pinned.task.files {
        let path = folder.join(&file.name);
        let is_right = |path: &Path| {
            hash_file(path)
                .is_ok_and(|(hash, bytes)| hex(&hash) == file.sha256 && bytes == file.bytes)
        };
        if is_right(&path) {
            continue;
        }
        pinned.is_new = true;
        let part = folder.join(format!("{}.part", file.name));
        download(client, file, &part)?;
        if !is_right(&part) {
            let _ = std::fs::remove_file(&part);
            return Err(Error::mistake(format!(
                "{} is not the file that the task names: its SHA-256 differs; nothing was sent",
                file.name
            )));
        }
        std::fs::rename(&part, &path).map_err(Error::io(&path))?;
    }
    Ok(folder)
}

/// Downloads a file in parts, and resumes where an interrupted call stopped.
fn download(client: &mut Client, file: &PublicFile, path: &Path) -> Result<()> {
    // Not `append`, with which Windows could not cut the file.
    let mut out = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::io(path))?;
    let mut have = out.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
    if have > file.bytes {
        out.set_len(0).and_then(|()| out.rewind()).map_err(Error::io(path))?;
        have = 0;
    }
    while have < file.bytes {
        let end = (have + PART).min(file.bytes);
        let address = format!("/v1/pre/{}", file.name);
        let response = client.get(&address, Some(have..end), PART as usize)?;
        let wanted = (end - have) as usize;
        if response.status != 206 || response.body.len() != wanted {
            return Err(Error::failed(format!(
                "{} could not be fetched: {}",
                file.name,
                response.problem()
            )));
        }
        out.write_all(&response.body).map_err(Error::io(path))?;
        have = end;
    }
    out.sync_all().map_err(Error::io(path))
}
