//! Models by name: the local Hugging Face cache, a Hub on this machine, tokens and revisions.

use crate::bench::{fixture, refused};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

/// A commit hash in the Hub's format.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A Hub with one sharded model at one revision, for clients with its token.
struct Hub {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects does not matter.
                let _ = answer(stream, &log);
            }
        });
        Self { address, requests }
    }

    fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn answer(mut stream: TcpStream, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let (mut token, mut from, mut to) = (false, 0, usize::MAX);
    for line in lines.by_ref() {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        token |= line == "authorization: bearer open-sesame";
        if let Some(range) = line.strip_prefix("range: bytes=") {
            let (start, end) = range.split_once('-').unwrap_or((range, ""));
            (from, to) = (start.parse().unwrap_or(0), end.parse().unwrap_or(usize::MAX));
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap().push(path.clone());
    if !token {
        return write!(
            stream,
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let file = path.strip_prefix("/owner/small/resolve/v2/").unwrap_or("none");
    let content = match file {
        "tokenizer.json" => fs::read(fixture("tokenizer-wordpiece").join(file)),
        _ => fs::read(fixture("models/bert-sharded").join(file)),
    };
    let Ok(bytes) = content else {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    };
    let end = to.saturating_add(1).min(bytes.len());
    let part = &bytes[from.min(end)..end];
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\n\
         ETag: \"{file}-etag\"\r\nx-repo-commit: {COMMIT}\r\nConnection: close\r\n\r\n",
        part.len(),
        end.saturating_sub(1),
        bytes.len()
    )?;
    stream.write_all(part)
}

/// `undertone model show` with these variables and no other Hugging Face variables.
fn show(model: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(["model", "show", model, "--json"]);
    for name in ["HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"] {
        command.env_remove(name);
    }
    command.env("NO_PROXY", "127.0.0.1").envs(variables.iter().copied()).output().unwrap()
}

fn folder_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["folder"].as_str().unwrap().to_owned()
}

#[test]
fn a_model_is_fetched_once_with_its_token_and_revision() {
    let hub = Hub::start();
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    let base = [("HF_HOME", home), ("HF_ENDPOINT", hub.address.as_str())];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    refused(&show("owner/small@v2", &base), "set HF_TOKEN");
    refused(&show("owner/small@v2", &with(&[("HF_HUB_OFFLINE", "1")])), "HF_HUB_OFFLINE is set");
    let token = [("HF_TOKEN", "open-sesame")];
    refused(&show("owner/small", &with(&token)), "owner/small could not be downloaded");
    let fetched = folder_of(&show("owner/small@v2", &with(&token)));
    assert!(Path::new(&fetched).starts_with(Path::new(home).join("hub")), "{fetched}");
    assert!(fetched.ends_with(COMMIT), "{fetched}");
    // From now on nothing is requested, by name or by commit, with or without a network.
    let asked = hub.asked();
    assert_eq!(folder_of(&show("owner/small@v2", &with(&token))), fetched);
    let offline = with(&[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(folder_of(&show("owner/small@v2", &offline)), fetched);
    assert_eq!(folder_of(&show(&format!("owner/small@{COMMIT}"), &offline)), fetched);
    let cache = Path::new(home).join("hub");
    let by_cache = [("HF_HUB_CACHE", cache.to_str().unwrap()), ("HF_HUB_OFFLINE", "true")];
    assert_eq!(folder_of(&show("owner/small@v2", &by_cache)), fetched);
    assert_eq!(hub.asked(), asked);
    // A cache with a missing shard is not used.
    fs::remove_file(Path::new(&fetched).join("model-00003-of-00003.safetensors")).unwrap();
    refused(&show("owner/small@v2", &offline), "does not have the whole model");
}
