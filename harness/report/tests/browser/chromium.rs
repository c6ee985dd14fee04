//! Chromium without a window, driven through its DevTools protocol over a pipe: JSON messages that end with a zero.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The greatest height of a picture.
const MOST_PIXELS: u64 = 12_000;

/// Names of the program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page.
pub struct Chromium {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    last: u64,
    /// Events of the page since it was opened: method and parameters.
    pub events: Vec<(String, Value)>,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts the browser that `KOLO_CHROMIUM` names, or the first that is installed.
    pub fn start() -> Chromium {
        let profile = tempfile::tempdir().unwrap();
        let given = std::env::var("KOLO_CHROMIUM").ok();
        let program =
            given.or_else(|| NAMES.iter().find(|name| is_installed(name)).map(ToString::to_string));
        let program = program.expect("no Chromium; install it, or name it in KOLO_CHROMIUM");
        // The protocol's files are 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh", &program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .args(["--no-first-run", "--disable-background-networking", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, from) = channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Chromium {
            process,
            to,
            from,
            session: String::new(),
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_string();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let text = message.to_string() + "\0";
        self.to.write_all(text.as_bytes()).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == json!(self.last) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// The next message. Events are kept.
    fn next(&mut self) -> Value {
        let message = self.from.recv_timeout(TIMEOUT).expect("the browser answers");
        if let Some(method) = message["method"].as_str() {
            self.events.push((method.to_string(), message["params"].clone()));
        }
        message
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|(method, _)| method == "Page.loadEventFired") {
            self.next();
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Presses and releases a key, such as `Enter`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            other => panic!("{other} has no code here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}),
            );
        }
    }

    /// Width of the page in pixels, and its colour scheme: `light` or `dark`.
    pub fn show(&mut self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// The page as PNG, as far down as the browser can draw at once.
    pub fn picture(&mut self) -> Vec<u8> {
        let size = "[document.documentElement.clientWidth, document.documentElement.scrollHeight]";
        let size = self.value(size);
        let height = size[1].as_u64().unwrap().min(MOST_PIXELS);
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": height, "scale": 1});
        let params = json!({"captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", params);
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// The page as PDF.
    pub fn print(&mut self) -> Vec<u8> {
        let pdf = self.call("Page.printToPDF", json!({"paperWidth": 8.27, "paperHeight": 11.69}));
        STANDARD.decode(pdf["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
