//! A task, an in-process server for it, and clients that write raw bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use undertone::tensor::Device;
use undertone_provider::serve::{Limits, Options, Ready, serve};
use undertone_provider::store::{Location, new_token};
use undertone_provider::{Frame, Kind, Release, TaskFolder, frame_length, init};

/// A task, and a server with short time limits.
pub struct World {
    pub folder: tempfile::TempDir,
    pub ready: Ready,
    pub stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    pub task: TaskFolder,
    pub token: String,
}

pub fn limits() -> Limits {
    Limits {
        header: Duration::from_millis(400),
        body: Duration::from_millis(400),
        per_second: 10_000.0,
        burst: 10_000.0,
        ..Limits::default()
    }
}

impl World {
    /// A server with a store in the task's folder.
    pub fn start(limits: Limits) -> Self {
        Self::with_store(limits, None)
    }

    /// A server with a store at an address.
    pub fn with_store(limits: Limits, store: Option<Location>) -> Self {
        Self::forged(limits, store, |_| ())
    }

    /// A server of a task whose folder is modified before it is served.
    pub fn forged(limits: Limits, store: Option<Location>, forge: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../undertone/tests/fixtures");
        for (from, to) in [
            ("models/bert-classification/config.json", "config.json"),
            ("models/bert-classification/model.safetensors", "model.safetensors"),
            ("tokenizer-wordpiece/tokenizer.json", "tokenizer.json"),
        ] {
            fs::copy(fixtures.join(from), model.join(to)).unwrap();
        }
        let file = folder.path().join("task.toml");
        let text = format!(
            "[model]\npath = {model:?}\ntuning = \"head\"\n[data]\ntext = \"text\"\nlabels = \
             [\"bad\", \"<good>\", \"neutral\"]\nmax_tokens = 16\n[privacy]\nmethod = \
             \"dp-forward\"\nepsilon = 4.0\ndelta = 1e-5\n"
        );
        fs::write(&file, text).unwrap();
        let out = folder.path().join("task");
        init(&file, &out, &Device::Cpu, 1000).unwrap();
        forge(&out);
        let task = TaskFolder::open(&out).unwrap();
        let store = store.unwrap_or_else(|| Location::Sqlite(task.store()));
        let mut owners = store.open(&task.hash).unwrap();
        let token = new_token(owners.as_mut(), "ada", 1000).unwrap();
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let options = Options { listen, admin: Some(listen), tls: None, store, limits };
        let stop = Arc::new(AtomicBool::new(false));
        let (ready_sender, tell) = channel();
        let (served, stopping) = (TaskFolder::open(&out).unwrap(), stop.clone());
        let serving = std::thread::spawn(move || {
            serve(served, &options, &stopping, &mut |ready| {
                ready_sender.send(ready.clone()).unwrap()
            })
            .unwrap();
        });
        let ready = tell.recv().unwrap();
        Self { folder, ready, stop, serving: Some(serving), task, token }
    }

    pub fn connect(&self) -> TcpStream {
        connect(&self.ready.url)
    }

    /// A frame with one release.
    pub fn frame(&self, id: u8) -> Vec<u8> {
        self.frame_of(id, 0.5)
    }

    /// A frame with one release whose values are all equal.
    pub fn frame_of(&self, id: u8, number: f32) -> Vec<u8> {
        let numbers = vec![number; self.task.task.width];
        let release = Release { id: [id; 16], label: 1, numbers };
        let frame = Frame { kind: Kind::Contribution, epoch: 0, releases: vec![release] };
        frame.encode(&self.task.task, &self.task.hash)
    }

    pub fn head(&self, path: &str, length: usize) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-length: \
             {length}\r\n\r\n",
            self.token
        )
    }

    /// Sends a frame with one release; returns the response.
    pub fn contribute(&self, id: u8) -> String {
        self.send(&self.frame(id))
    }

    /// Sends a frame; returns the response.
    pub fn send(&self, frame: &[u8]) -> String {
        let mut socket = self.connect();
        let head = self.head("/v1/contributions", frame_length(&self.task.task));
        let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(frame)).unwrap();
        rest(socket)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.serving.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

pub fn connect(url: &str) -> TcpStream {
    let socket = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Everything received until the connection is closed.
///
pub fn rest(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn get(url: &str, path: &str, more: &str) -> String {
    let mut socket = connect(url);
    let ask = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{more}\r\n");
    socket.write_all(ask.as_bytes()).unwrap();
    rest(socket)
}
