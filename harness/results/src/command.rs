//! The words of a command that is run again.

use std::ffi::OsStr;

/// Options for the results of a run, or for the end of one launch.
pub const OF_RESULTS: [&str; 8] = [
    "--out",
    "--until",
    "--out-prefix",
    "-J",
    "--output-file",
    "--output_file",
    "--format",
    "--retry",
];

/// Flags of one launch of a run.
pub const OF_A_LAUNCH: [&str; 5] =
    ["--resume", "--go-on", "--after-break", "--retry-failed", "--json"];

/// The words of a command without options that take a value, and without flags.
pub fn without<'o, W: AsRef<OsStr>>(
    mut words: impl Iterator<Item = W>,
    options: &'o [&str],
    flags: &'o [&str],
) -> impl Iterator<Item = W> {
    std::iter::from_fn(move || {
        loop {
            let word = words.next()?;
            let text = word.as_ref().to_string_lossy();
            let is_joined = text.split_once('=').is_some_and(|(name, _)| options.contains(&name));
            if options.contains(&&*text) {
                words.next();
            } else if !is_joined && !flags.contains(&&*text) {
                drop(text);
                return Some(word);
            }
        }
    })
}
