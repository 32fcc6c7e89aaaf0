//! libFuzzer, called from inside a test: the binary stays an ordinary test binary.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock};

use libfuzzer_sys as _; // links it

use crate::{Target, held};

type Test = dyn Fn(&[u8]);

struct Running {
    target: Target,
    test: Box<Test>,
}

// SAFETY: libFuzzer calls on the one thread that made it
unsafe impl Send for Running {}

static RUNNING: OnceLock<Mutex<Running>> = OnceLock::new();

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        call: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// What the crate's own entry point calls; ours does not go that way.
#[unsafe(no_mangle)]
fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
    0
}

unsafe extern "C" fn one_input(data: *const u8, size: usize) -> c_int {
    // SAFETY: libFuzzer hands over so many bytes, and keeps them until this returns
    let bytes = if size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, size) } };
    if let Some(running) = RUNNING.get() {
        let running = running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held(&running.target, &*running.test, bytes);
    }
    0
}

/// Run until the words (separated by spaces) say that it ends. Most often this does not return: libFuzzer leaves the
/// process.
pub(crate) fn run(target: Target, test: impl Fn(&[u8]) + 'static, seeds: &[Vec<u8>], words: &OsStr) {
    let test: Box<Test> = Box::new(test);
    if RUNNING.set(Mutex::new(Running { target, test })).is_err() {
        panic!("one target at a time: name it in full, with --exact");
    }
    // a panic must end the process before it unwinds through C++
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        std::process::abort();
    }));
    let folder = std::env::temp_dir().join(format!("semel-seeds-{}", target.name));
    let dictionary = folder.with_extension("words");
    if std::fs::create_dir_all(&folder).is_ok() {
        for (at, seed) in seeds.iter().enumerate() {
            let _ = std::fs::write(folder.join(at.to_string()), seed);
        }
        let lines = target.words.iter().map(|word| {
            let hex: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{hex}\"\n")
        });
        let _ = std::fs::write(&dictionary, lines.collect::<String>());
    }
    // what libFuzzer starts when it needs a process of its own: a script that starts this test again
    let itself = std::env::var_os("SEMEL_FUZZ_SELF").unwrap_or_else(|| target.name.into());
    let mut argv = vec![itself.as_bytes().to_vec()];
    argv.extend(
        words.as_bytes().split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(<[u8]>::to_vec),
    );
    argv.push(format!("-dict={}", dictionary.display()).into_bytes());
    argv.push(folder.display().to_string().into_bytes());
    let argv: Vec<CString> = argv.into_iter().filter_map(|word| CString::new(word).ok()).collect();
    let mut pointers: Vec<*mut c_char> = argv.iter().map(|word| word.as_ptr().cast_mut()).collect();
    let mut count = c_int::try_from(pointers.len()).unwrap_or(0);
    pointers.push(std::ptr::null_mut());
    let mut start = pointers.as_mut_ptr();
    // SAFETY: the words live until libFuzzer has ended, and the list ends with a null
    unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut start, one_input) };
}
