//! Chromium without a window.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::protocol::cdp::{Emulation, Network, Page, Runtime};
use headless_chrome::types::PrintToPdfOptions;
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::Value;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The greatest height of a picture.
const MOST_PIXELS: u64 = 12_000;

/// Names of the program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page.
pub struct Chromium {
    tab: Arc<Tab>,
    complaints: Arc<Mutex<Vec<String>>>,
    _browser: Browser,
    _seat: MutexGuard<'static, ()>,
}

/// Two browsers run at once, however many tests do: more take longer than [`TIMEOUT`] on few cores.
static SEATS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
static STARTED: AtomicUsize = AtomicUsize::new(0);

impl Chromium {
    /// Starts the browser that `KOLO_CHROMIUM` names, or the first that is installed.
    pub fn start() -> Chromium {
        let seat = STARTED.fetch_add(1, Ordering::Relaxed) % SEATS.len();
        // A test that failed has left its seat.
        let seat = SEATS[seat].lock().unwrap_or_else(PoisonError::into_inner);
        let given = std::env::var_os("KOLO_CHROMIUM").map(PathBuf::from);
        let program = given.or_else(|| NAMES.iter().find_map(|name| installed(name)));
        let program = program.expect("no Chromium; install it, or name it in KOLO_CHROMIUM");
        let options = LaunchOptions::default_builder()
            .path(Some(program))
            .sandbox(false)
            .idle_browser_timeout(TIMEOUT)
            .args(vec!["--hide-scrollbars".as_ref()])
            .build()
            .unwrap();
        let browser = Browser::new(options).unwrap();
        let tab = browser.new_tab().unwrap();
        tab.set_default_timeout(TIMEOUT);
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&complaints);
        let listener = move |event: &Event| kept.lock().unwrap().extend(complaint(event));
        tab.add_event_listener(Arc::new(listener)).unwrap();
        tab.enable_log().unwrap().enable_runtime().unwrap();
        tab.call_method(Network::Enable {
            max_total_buffer_size: None,
            max_resource_buffer_size: None,
            max_post_data_size: None,
            report_direct_socket_traffic: None,
            enable_durable_messages: None,
        })
        .unwrap();
        Chromium { tab, complaints, _browser: browser, _seat: seat }
    }

    /// Errors and warnings of the console since the page was opened, and requests for anything but the file.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }

    /// Scripts of pages that are opened from now on do not run.
    pub fn disable_scripts(&self) {
        self.tab.call_method(Emulation::SetScriptExecutionDisabled { value: true }).unwrap();
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&self, file: &Path) {
        self.complaints.lock().unwrap().clear();
        self.tab.navigate_to(&format!("file://{}", file.display())).unwrap();
        self.tab.wait_until_navigated().unwrap();
        while self.value("document.readyState") != "complete" {}
    }

    /// The value of an expression in the page.
    pub fn value(&self, expression: &str) -> Value {
        let evaluated = self.tab.call_method(Runtime::Evaluate {
            expression: expression.into(),
            return_by_value: Some(true),
            await_promise: Some(true),
            object_group: None,
            include_command_line_api: None,
            silent: None,
            context_id: None,
            generate_preview: None,
            user_gesture: None,
            throw_on_side_effect: None,
            timeout: None,
            disable_breaks: None,
            repl_mode: None,
            allow_unsafe_eval_blocked_by_csp: None,
            unique_context_id: None,
            serialization_options: None,
        });
        let evaluated = evaluated.unwrap();
        assert!(evaluated.exception_details.is_none(), "{expression}: {evaluated:?}");
        evaluated.result.value.unwrap_or_default()
    }

    /// Presses and releases a key, such as `Enter`.
    pub fn press(&self, key: &str) {
        self.tab.press_key(key).unwrap();
    }

    /// Width of the page in pixels, and its colour scheme: `light` or `dark`.
    pub fn show(&self, width: u32, scheme: &str) {
        let size = Emulation::SetDeviceMetricsOverride {
            width,
            height: 900,
            device_scale_factor: 1.0,
            mobile: false,
            scale: None,
            screen_width: None,
            screen_height: None,
            position_x: None,
            position_y: None,
            dont_set_visible_size: None,
            screen_orientation: None,
            viewport: None,
            display_feature: None,
            device_posture: None,
        };
        self.tab.call_method(size).unwrap();
        let feature =
            Emulation::MediaFeature { name: "prefers-color-scheme".into(), value: scheme.into() };
        let media = Emulation::SetEmulatedMedia { media: None, features: Some(vec![feature]) };
        self.tab.call_method(media).unwrap();
    }

    /// The page as PNG, as far down as the browser can draw at once.
    pub fn picture(&self) -> Vec<u8> {
        let size = "[document.documentElement.clientWidth, document.documentElement.scrollHeight]";
        let size = self.value(size);
        let height = size[1].as_u64().unwrap().min(MOST_PIXELS);
        let clip = Page::Viewport {
            x: 0.0,
            y: 0.0,
            width: size[0].as_f64().unwrap(),
            height: height as f64,
            scale: 1.0,
        };
        // The crate's own method draws the viewport alone.
        let picture = self.tab.call_method(Page::CaptureScreenshot {
            format: Some(Page::CaptureScreenshotFormatOption::Png),
            quality: None,
            clip: Some(clip),
            from_surface: Some(true),
            capture_beyond_viewport: Some(true),
            optimize_for_speed: None,
        });
        STANDARD.decode(picture.unwrap().data).unwrap()
    }

    /// The page as PDF.
    pub fn print(&self) -> Vec<u8> {
        let a4 = PrintToPdfOptions {
            paper_width: Some(8.27),
            paper_height: Some(11.69),
            ..PrintToPdfOptions::default()
        };
        self.tab.print_to_pdf(Some(a4)).unwrap()
    }
}

/// What should not happen while a report is shown.
fn complaint(event: &Event) -> Option<String> {
    match event {
        Event::RuntimeExceptionThrown(event) => Some(format!("{event:?}")),
        Event::RuntimeConsoleAPICalled(event) => Some(format!("{event:?}")),
        Event::LogEntryAdded(event) => Some(format!("{event:?}")),
        Event::NetworkRequestWillBeSent(event) => {
            let url = &event.params.request.url;
            let is_own = url.ends_with("/report.html") || url.starts_with("data:");
            (!is_own).then(|| format!("asked for {url}"))
        }
        _ => None,
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
