//! GPU data from NVML, the library behind nvidia-smi. No setting is changed.
//!
//! A value that a GPU or driver does not support is unknown, and not an error. The crate `nvml-wrapper` does not have the
//! PCI address of a link's other end, which tells which GPUs are connected.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

use super::CudaError;
use super::library::Wanted;
use results::gpus::{Gpu, IDLE, NvLink, State};

/// NVML, with the functions of every driver.
pub const NVML: Wanted = Wanted {
    about: "NVML",
    variable: None,
    names: &["libnvidia-ml.so.1"],
    functions: &[
        "nvmlInit_v2",
        "nvmlShutdown",
        "nvmlErrorString",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo_v3",
    ],
    advice: "it comes with NVIDIA's driver; without it clocks, temperatures and throttling are unknown",
};

/// Reasons for reduced clocks: `nvmlClocksThrottleReason...`, as text.
const REASONS: [(u64, &str); 9] = [
    (0x1, IDLE),
    (0x2, "clocks set by applications"),
    (0x4, "power limit"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "heat (software)"),
    (0x40, "heat (hardware)"),
    (0x80, "power brake"),
    (0x100, "clocks of the display"),
];

/// More links than any GPU has.
const MOST_LINKS: u32 = 36;

/// `nvmlClockType_t`.
const SM: u32 = 1;
const MEMORY: u32 = 2;

/// `nvmlPerfPolicyType_t`.
const POWER: u32 = 0;
const THERMAL: u32 = 1;

/// NVML's handle of a GPU.
type Handle = *mut c_void;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PciInfo {
    legacy: [c_char; 16],
    /// Domain, bus, device, identifier, identifier of the subsystem.
    numbers: [u32; 5],
    bus_id: [c_char; 32],
}

/// NVML, initialised.
pub struct Nvml {
    library: ManuallyDrop<Library>,
}

impl Nvml {
    /// Opens it.
    ///
    /// # Errors
    /// When it was not found, or finds no driver.
    pub fn open() -> Result<Nvml, CudaError> {
        let nvml = Nvml { library: NVML.open()?.library };
        // SAFETY: `nvmlReturn_t nvmlInit_v2(void)`.
        let code = unsafe {
            nvml.function::<unsafe extern "C" fn() -> c_int>("nvmlInit_v2").map(|init| init())
        };
        nvml.ended("nvmlInit_v2", code).map(|()| nvml)
    }

    /// The version of NVIDIA's driver: 550.54.15.
    pub fn driver(&self) -> Option<String> {
        let mut text = [0; 96];
        // SAFETY: `nvmlReturn_t (char *, unsigned int)`; it writes no more than the given length.
        let code = unsafe {
            let ask = self.function::<unsafe extern "C" fn(*mut c_char, u32) -> c_int>(
                "nvmlSystemGetDriverVersion",
            )?;
            ask(text.as_mut_ptr(), text.len() as u32)
        };
        (code == 0).then(|| words(&text))
    }

    /// Every GPU of the machine, used by any process, or why it is unknown.
    ///
    /// # Errors
    /// When NVML cannot count the GPUs.
    pub fn gpus(&self) -> Result<Vec<Result<Gpu, CudaError>>, CudaError> {
        let handles = self.handles()?;
        Ok(handles.into_iter().map(|handle| handle.map(|handle| self.gpu(handle))).collect())
    }

    /// How each GPU is doing, by its UUID.
    ///
    /// # Errors
    /// When NVML cannot count the GPUs.
    pub fn states(&self) -> Result<Vec<(String, State)>, CudaError> {
        let known = self.handles()?.into_iter().flatten();
        Ok(known.map(|gpu| (self.uuid(gpu), self.state(gpu))).collect())
    }

    /// The connection of each two GPUs, in nvidia-smi's terms; X for itself.
    ///
    /// # Errors
    /// When NVML cannot count the GPUs.
    pub fn topology(&self, gpus: &[Gpu]) -> Result<Vec<Vec<String>>, CudaError> {
        let handles: Vec<Handle> = self.handles()?.into_iter().flatten().collect();
        let between = |a: usize, b: usize| match (a == b, links(&gpus[a], &gpus[b])) {
            (true, _) => "X".to_string(),
            (_, 0) => self.level(handles[a], handles[b]).unwrap_or("unknown").to_string(),
            (_, links) => format!("NV{links}"),
        };
        let all = || 0..handles.len().min(gpus.len());
        Ok(all().map(|a| all().map(|b| between(a, b)).collect()).collect())
    }

    fn handles(&self) -> Result<Vec<Result<Handle, CudaError>>, CudaError> {
        let mut count = 0;
        // SAFETY: `nvmlReturn_t (unsigned int *)`.
        let code = unsafe {
            let name = "nvmlDeviceGetCount_v2";
            self.function::<unsafe extern "C" fn(*mut u32) -> c_int>(name)
                .map(|ask| ask(&mut count))
        };
        self.ended("nvmlDeviceGetCount_v2", code)?;
        let handle = |index: u32| {
            let (name, mut handle) = ("nvmlDeviceGetHandleByIndex_v2", std::ptr::null_mut());
            // SAFETY: `nvmlReturn_t (unsigned int, nvmlDevice_t *)`.
            let code = unsafe {
                self.function::<unsafe extern "C" fn(u32, *mut Handle) -> c_int>(name)
                    .map(|ask| ask(index, &mut handle))
            };
            self.ended(&format!("{name} of GPU {index}"), code).map(|()| handle)
        };
        Ok((0..count).map(handle).collect())
    }

    fn gpu(&self, gpu: Handle) -> Gpu {
        let switch = |name: &str| self.number(name, gpu).map(|value| value != 0);
        let pair = |name: &str| self.pair(name, gpu).map(|(now, _)| now != 0);
        let most = |clock| self.number_of("nvmlDeviceGetMaxClockInfo", gpu, clock);
        Gpu {
            name: self.text("nvmlDeviceGetName", gpu).unwrap_or_default(),
            uuid: self.uuid(gpu),
            bus_id: self.bus_id("nvmlDeviceGetPciInfo_v3", gpu, None).unwrap_or_default(),
            sm_mhz_most: most(SM),
            memory_mhz_most: most(MEMORY),
            power_limit_w: self.number("nvmlDeviceGetEnforcedPowerLimit", gpu).map(watts),
            persistence: switch("nvmlDeviceGetPersistenceMode"),
            ecc: pair("nvmlDeviceGetEccMode"),
            mig: pair("nvmlDeviceGetMigMode"),
            compute_mode: self.number("nvmlDeviceGetComputeMode", gpu).map(compute_mode),
            pcie_generation_most: self.number("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
            pcie_width_most: self.number("nvmlDeviceGetMaxPcieLinkWidth", gpu),
            nvlinks: (0..MOST_LINKS).filter_map(|link| self.nvlink(gpu, link)).collect(),
            cpus: self.cpus(gpu),
            pci_path: String::new(),
            numa_node: None,
            before: self.state(gpu),
            after: None,
        }
    }

    fn state(&self, gpu: Handle) -> State {
        let clock = |clock| self.number_of("nvmlDeviceGetClockInfo", gpu, clock);
        let reasons = self
            .long("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
            .or_else(|| self.long("nvmlDeviceGetCurrentClocksEventReasons", gpu));
        State {
            sm_mhz: clock(SM),
            memory_mhz: clock(MEMORY),
            temperature_c: self.number_of("nvmlDeviceGetTemperature", gpu, 0),
            power_w: self.number("nvmlDeviceGetPowerUsage", gpu).map(watts),
            throttle: reasons.map(reasons_in_words),
            held_by_power_ns: self.held(gpu, POWER),
            held_by_heat_ns: self.held(gpu, THERMAL),
            pcie_generation: self.number("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
            pcie_width: self.number("nvmlDeviceGetCurrPcieLinkWidth", gpu),
        }
    }

    fn uuid(&self, gpu: Handle) -> String {
        self.text("nvmlDeviceGetUUID", gpu).unwrap_or_default()
    }

    /// A link that is up.
    fn nvlink(&self, gpu: Handle, link: u32) -> Option<NvLink> {
        let is_up = self.number_of("nvmlDeviceGetNvLinkState", gpu, link)? == 1;
        let peer = self.number_of("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link);
        is_up.then(|| NvLink {
            link,
            version: self.number_of("nvmlDeviceGetNvLinkVersion", gpu, link),
            peer: match peer {
                Some(0) => "GPU",
                Some(1) => "processor",
                Some(2) => "switch",
                _ => "unknown",
            }
            .into(),
            peer_bus_id: self
                .bus_id("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, Some(link))
                .unwrap_or_default(),
        })
    }

    /// `nvmlDeviceGetTopologyCommonAncestor`, in nvidia-smi's words.
    fn level(&self, a: Handle, b: Handle) -> Option<&'static str> {
        let mut level = 0;
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t *)`, of handles just given.
        let code = unsafe {
            let ask = self.function::<unsafe extern "C" fn(Handle, Handle, *mut u32) -> c_int>(
                "nvmlDeviceGetTopologyCommonAncestor",
            )?;
            ask(a, b, &mut level)
        };
        match (code, level) {
            (0, 0) => Some("same board"),
            (0, 10) => Some("PIX"),
            (0, 20) => Some("PXB"),
            (0, 30) => Some("PHB"),
            (0, 40) => Some("NODE"),
            (0, 50) => Some("SYS"),
            _ => None,
        }
    }

    /// Processors near a GPU, as ranges.
    fn cpus(&self, gpu: Handle) -> Option<String> {
        let mut set = [0 as c_ulong; 64];
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, unsigned int, unsigned long *)`; the length is in words.
        let code = unsafe {
            let ask = self.function::<unsafe extern "C" fn(Handle, u32, *mut c_ulong) -> c_int>(
                "nvmlDeviceGetCpuAffinity",
            )?;
            ask(gpu, set.len() as u32, set.as_mut_ptr())
        };
        let is_set = |cpu: &usize| {
            let bits = c_ulong::BITS as usize;
            set[cpu / bits] >> (cpu % bits) & 1 == 1
        };
        (code == 0).then(|| ranges((0..set.len() * c_ulong::BITS as usize).filter(is_set)))
    }

    /// For how long a policy has kept clocks down since the driver was loaded.
    fn held(&self, gpu: Handle, policy: u32) -> Option<u64> {
        // `nvmlViolationTime_t`: the time of the query, and the duration.
        let mut times = [0u64; 2];
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, nvmlPerfPolicyType_t, nvmlViolationTime_t *)`.
        let code = unsafe {
            let ask = self.function::<unsafe extern "C" fn(Handle, u32, *mut u64) -> c_int>(
                "nvmlDeviceGetViolationStatus",
            )?;
            ask(gpu, policy, times.as_mut_ptr())
        };
        (code == 0).then_some(times[1])
    }

    fn bus_id(&self, name: &str, gpu: Handle, link: Option<u32>) -> Option<String> {
        let mut info = PciInfo { legacy: [0; 16], numbers: [0; 5], bus_id: [0; 32] };
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, nvmlPciInfo_t *)`, or with the link's number in between.
        let code = unsafe {
            match link {
                None => self
                    .function::<unsafe extern "C" fn(Handle, *mut PciInfo) -> c_int>(name)?(
                    gpu, &mut info,
                ),
                Some(link) => self
                    .function::<unsafe extern "C" fn(Handle, u32, *mut PciInfo) -> c_int>(name)?(
                    gpu, link, &mut info,
                ),
            }
        };
        (code == 0).then(|| words(&info.bus_id))
    }

    fn text(&self, name: &str, gpu: Handle) -> Option<String> {
        let mut text = [0; 96];
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, char *, unsigned int)`; it writes no more than the given length.
        let code = unsafe {
            let ask =
                self.function::<unsafe extern "C" fn(Handle, *mut c_char, u32) -> c_int>(name)?;
            ask(gpu, text.as_mut_ptr(), text.len() as u32)
        };
        (code == 0).then(|| words(&text))
    }

    fn number(&self, name: &str, gpu: Handle) -> Option<u32> {
        let mut value = 0;
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, unsigned int *)`; enumerations are as wide.
        let code = unsafe {
            self.function::<unsafe extern "C" fn(Handle, *mut u32) -> c_int>(name)?(gpu, &mut value)
        };
        (code == 0).then_some(value)
    }

    fn number_of(&self, name: &str, gpu: Handle, which: u32) -> Option<u32> {
        let mut value = 0;
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, unsigned int, unsigned int *)`; enumerations are as wide.
        let code = unsafe {
            let ask =
                self.function::<unsafe extern "C" fn(Handle, u32, *mut u32) -> c_int>(name)?;
            ask(gpu, which, &mut value)
        };
        (code == 0).then_some(value)
    }

    fn pair(&self, name: &str, gpu: Handle) -> Option<(u32, u32)> {
        let (mut now, mut pending) = (0, 0);
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, unsigned int *, unsigned int *)`; enumerations are as wide.
        let code = unsafe {
            let ask =
                self.function::<unsafe extern "C" fn(Handle, *mut u32, *mut u32) -> c_int>(name)?;
            ask(gpu, &mut now, &mut pending)
        };
        (code == 0).then_some((now, pending))
    }

    fn long(&self, name: &str, gpu: Handle) -> Option<u64> {
        let mut value = 0;
        // SAFETY: `nvmlReturn_t (nvmlDevice_t, unsigned long long *)`.
        let code = unsafe {
            self.function::<unsafe extern "C" fn(Handle, *mut u64) -> c_int>(name)?(gpu, &mut value)
        };
        (code == 0).then_some(value)
    }

    /// A function, if this driver has it.
    ///
    /// # Safety
    /// It must be of that type.
    unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller's promise; the library is open as long as this lives.
        unsafe { self.library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }

    /// The result of a required call.
    fn ended(&self, call: &str, code: Option<c_int>) -> Result<(), CudaError> {
        let why = match code {
            Some(0) => return Ok(()),
            Some(code) => self.error(code),
            None => "it is not there".into(),
        };
        Err(CudaError::Failed { call: call.into(), why })
    }

    fn error(&self, code: c_int) -> String {
        // SAFETY: `const char *nvmlErrorString(nvmlReturn_t)`, of texts that stay.
        let text = unsafe {
            let name = "nvmlErrorString";
            let ask = self.function::<unsafe extern "C" fn(c_int) -> *const c_char>(name);
            ask.map(|ask| ask(code)).filter(|text| !text.is_null()).map(|text| CStr::from_ptr(text))
        };
        text.map_or(format!("error {code}"), |text| text.to_string_lossy().into_owned())
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: `nvmlReturn_t nvmlShutdown(void)`; initialisations are counted.
        unsafe {
            if let Some(shutdown) = self.function::<unsafe extern "C" fn() -> c_int>("nvmlShutdown")
            {
                shutdown();
            }
        }
    }
}

/// NVLinks between two GPUs: those that lead to the other; or if both lead to switches, the smaller number of the
/// two, since a switch connects all its GPUs.
fn links(a: &Gpu, b: &Gpu) -> usize {
    let direct = a.nvlinks.iter().filter(|link| link.peer_bus_id == b.bus_id).count();
    let switched = |gpu: &Gpu| gpu.nvlinks.iter().filter(|link| link.peer == "switch").count();
    if direct > 0 { direct } else { switched(a).min(switched(b)) }
}

fn words(text: &[c_char]) -> String {
    let bytes: Vec<u8> =
        text.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

fn compute_mode(mode: u32) -> String {
    match mode {
        0 => "default".into(),
        1 => "exclusive thread".into(),
        2 => "prohibited".into(),
        3 => "exclusive process".into(),
        other => format!("mode {other}"),
    }
}

fn reasons_in_words(bits: u64) -> Vec<String> {
    let known = REASONS.iter().filter(|(bit, _)| bits & bit != 0);
    let mut words: Vec<String> = known.map(|(_, word)| word.to_string()).collect();
    let rest = REASONS.iter().fold(bits, |bits, (bit, _)| bits & !bit);
    if rest != 0 {
        words.push(format!("unknown reason {rest:#x}"));
    }
    words
}

/// Ascending numbers as people write them: 0-3,8.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words_whatever_comes() {
        assert_eq!(reasons_in_words(0), Vec::<String>::new());
        assert_eq!(reasons_in_words(0x1), [IDLE]);
        assert_eq!(reasons_in_words(0x44), ["power limit", "heat (hardware)"]);
        assert_eq!(reasons_in_words(0x5000_0001), ["idle", "unknown reason 0x50000000"]);
    }

    #[test]
    fn numbers_are_written_as_ranges() {
        assert_eq!(ranges([].into_iter()), "");
        assert_eq!(ranges([0, 1, 2, 3, 8, 10, 11].into_iter()), "0-3,8,10-11");
    }

    #[test]
    fn links_are_counted_directly_or_through_switches() {
        let gpu = |bus_id: &str, peers: &[(&str, &str)]| Gpu {
            bus_id: bus_id.into(),
            nvlinks: (0..)
                .zip(peers)
                .map(|(link, (peer, at))| NvLink {
                    link,
                    version: Some(3),
                    peer: peer.to_string(),
                    peer_bus_id: at.to_string(),
                })
                .collect(),
            ..Gpu::default()
        };
        let a = gpu("a", &[("GPU", "b"), ("GPU", "b"), ("GPU", "c")]);
        let b = gpu("b", &[("GPU", "a"), ("GPU", "a")]);
        assert_eq!((links(&a, &b), links(&b, &a), links(&b, &gpu("c", &[]))), (2, 2, 0));
        let switched = gpu("d", &[("switch", "s"), ("switch", "t"), ("switch", "t")]);
        let other = gpu("e", &[("switch", "s"), ("switch", "t")]);
        assert_eq!((links(&switched, &other), links(&switched, &a)), (2, 0));
    }
}
