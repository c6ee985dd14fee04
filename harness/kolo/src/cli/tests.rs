//! Tests of help texts: the examples are valid commands.

use super::command;

/// Commands and their subcommands, hidden ones too, with the words that name them.
fn every_command() -> Vec<(String, clap::Command)> {
    fn add(words: &str, command: &clap::Command, all: &mut Vec<(String, clap::Command)>) {
        all.push((words.into(), command.clone()));
        for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
            add(&format!("{words} {}", subcommand.get_name()), subcommand, all);
        }
    }
    let mut all = Vec::new();
    let mut command = command();
    command.build();
    add("kolo", &command, &mut all);
    all
}

/// The lines under `Examples:`.
fn examples(command: &clap::Command) -> Vec<String> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (_, lines) = after.split_once("Examples:\n").unwrap_or_default();
    lines.lines().map(|line| line.trim().to_string()).collect()
}

/// The words of an example from `kolo` on, without shell syntax.
fn words(example: &str) -> Vec<&str> {
    let words = example.split_whitespace().skip_while(|word| *word != "kolo");
    words.take_while(|word| !["#", ">", "|"].contains(word)).collect()
}

#[test]
fn every_example_can_be_typed() {
    for (name, shown) in every_command() {
        let examples = examples(&shown);
        let is_for_scripts = ["kolo site shell-env", "kolo site step"].contains(&&*name);
        assert!(examples.len() == 2 || is_for_scripts, "{name}: {examples:?}");
        for example in examples {
            let words = words(&example);
            assert!(words.join(" ").starts_with(&name), "{name}: {example}");
            if let Err(error) = command().try_get_matches_from(&words) {
                panic!("{example}: {error}");
            }
        }
    }
    let error = command().try_get_matches_from(words("srun kolo sweep --nowhere | cat"));
    assert!(error.is_err(), "an example that cannot be typed is noticed");
}

/// The commands with most options show the usual ones only.
#[test]
fn short_help_fits_on_a_screen() {
    for (name, mut command) in every_command() {
        let text = command.render_help().to_string();
        let lines = text.trim_end().lines().count();
        let most = if ["kolo", "kolo bench"].contains(&&*name) { 34 } else { 24 };
        assert!(lines <= most, "{name} has {lines} lines\n{text}");
        let width = text.lines().map(|line| line.chars().count()).max();
        assert!(width <= Some(100), "{name}\n{text}");
    }
}

#[test]
fn every_option_has_a_heading_where_there_are_many() {
    for (name, command) in every_command() {
        let options: Vec<_> = command.get_opts().filter(|option| !option.is_hide_set()).collect();
        let without: Vec<_> = options
            .iter()
            .filter(|option| option.get_help_heading().is_none())
            .map(|option| option.get_id())
            .collect();
        assert!(options.len() < 4 || without.is_empty(), "{name}: {without:?}");
    }
}
