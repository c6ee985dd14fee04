//! The kernels as they are shipped.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;

use gpu::cuda::PTX;
use gpu::cuda::library::NVRTC;
use gpu::cuda::work::Work;
use libloading::Library;

use crate::cuda::processor::sources;

/// The source of the PTX.
fn source() -> [String; 2] {
    ["kernels.cu", "device.h"].map(|name| fs::read_to_string(sources().join(name)).unwrap())
}

/// FNV-1a over both files: no secret, just to notice a change.
fn fingerprint() -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let hash = source().concat().bytes().fold(0xCBF2_9CE4_8422_2325, fold);
    format!(
        "// Made from kernels.cu and device.h with FNV-1a {hash:016x}; kernels/generate.sh makes it anew."
    )
}

const OPTIONS: [&str; 3] = ["--gpu-architecture=compute_80", "--std=c++17", "--fmad=false"];

/// Compiles the source with NVRTC, which takes no GPU.
fn generated(nvrtc: &Library) -> String {
    type Program = *mut c_void;
    let [kernels, device] = source().map(|text| CString::new(text).unwrap());
    let options = OPTIONS.map(|option| CString::new(option).unwrap());
    let options = [options[0].as_ptr(), options[1].as_ptr(), options[2].as_ptr()];
    // SAFETY: the functions are declared so, and get what they ask for.
    unsafe {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Text = unsafe extern "C" fn(Program, *mut u8) -> c_int;
        let mut program: Program = std::ptr::null_mut();
        let create = nvrtc.get::<Create>(b"nvrtcCreateProgram").unwrap();
        let (name, header) = (c"kernels.cu".as_ptr(), [c"device.h".as_ptr()]);
        let headers = [device.as_ptr()];
        let ended =
            create(&mut program, kernels.as_ptr(), name, 1, headers.as_ptr(), header.as_ptr());
        assert_eq!(ended, 0, "nvrtcCreateProgram");
        let compile = nvrtc.get::<Compile>(b"nvrtcCompileProgram").unwrap();
        let ended = compile(program, options.len() as c_int, options.as_ptr());
        let text = |size: &[u8], get: &[u8]| {
            let (mut bytes, size) = (0, nvrtc.get::<Size>(size).unwrap());
            assert_eq!(size(program, &mut bytes), 0);
            let mut text = vec![0; bytes];
            assert_eq!(nvrtc.get::<Text>(get).unwrap()(program, text.as_mut_ptr()), 0);
            String::from_utf8(text).unwrap().trim_end_matches('\0').to_string()
        };
        assert_eq!(ended, 0, "{}", text(b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog"));
        text(b"nvrtcGetPTXSize", b"nvrtcGetPTX")
    }
}

#[test]
fn ptx_is_made_from_the_source_beside_it() {
    if env::var_os("UPDATE_PTX").is_some() {
        let nvrtc = NVRTC.open().unwrap();
        let text = format!("{}\n{}", fingerprint(), generated(&nvrtc.library).trim_start());
        return fs::write(sources().join("kernels.ptx"), text).unwrap();
    }
    let first = PTX.lines().next().unwrap();
    assert_eq!(first, fingerprint(), "the kernels have changed: run kernels/generate.sh");
}

/// Kernel by kernel: its name, and its text.
fn kernels() -> Vec<(&'static str, &'static str)> {
    let parts = PTX.split(".visible .entry ").skip(1);
    parts.map(|part| part.split_once('(').unwrap()).collect()
}

#[test]
fn ptx_has_every_kernel_that_the_host_names_and_no_other() {
    let mut there: Vec<_> = kernels().into_iter().map(|(name, _)| name.to_string()).collect();
    let mut named = Work::entries();
    there.sort();
    named.sort();
    assert_eq!(there, named);
}

/// For old drivers and GPUs; vector loads are used where most of the work is, and no registers are spilled.
#[test]
fn ptx_is_for_any_driver_of_cuda_12_and_moves_whole_lines() {
    assert!(PTX.contains("\n.version 8.0\n.target sm_80\n.address_size 64\n"));
    assert!(!PTX.contains(".local"));
    for (name, text) in kernels().into_iter().filter(|(name, _)| *name != "busy") {
        let moves = |verb: &str| {
            let is_line = |line: &&str| line.contains(".v4.") || line.contains(".v2.");
            text.lines().map(str::trim).filter(is_line).any(|line| line.starts_with(verb))
        };
        assert!(name.starts_with("fill") || moves("ld."), "{name} reads few bytes at a time");
        assert!(name.starts_with("check") || moves("st."), "{name} writes few bytes at a time");
    }
}

/// A structure is as long as the words that the host passes.
#[test]
fn ptx_takes_as_many_words_as_the_host_passes() {
    for (name, text) in kernels() {
        let words = match name.split('_').next().unwrap() {
            "reduce" => 12,
            "pack" | "busy" => 3,
            "fill" => 7,
            _ => 8,
        };
        let parameter = format!(".param .align 8 .b8 {name}_param_0[{}]", words * 8);
        assert!(text.contains(&parameter), "{name}: {}", text.lines().nth(1).unwrap_or_default());
    }
}
