//! `tidegate --help` with its commands in groups, by what somebody wants to do: clap itself has one list for all.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use super::Cli;

/// Every command, once.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Run a broker", &["serve", "guard", "init", "cluster", "user", "token", "check", "config", "import"]),
    ("Messages", &["pub", "sub"]),
    (
        "See what is going on",
        &["status", "top", "why", "alarms", "clients", "drops", "log", "bridges", "sinks", "health"],
    ),
    ("Do something about it", &["limits", "ban", "kick", "reload", "drain"]),
    ("Keep", &["backup", "restore", "store"]),
    ("Smart space", &["kp", "kps", "rdf", "map"]),
    ("Try and measure", &["demo", "bench", "lab", "trace", "what-if"]),
    ("Shell", &["completions", "man", "help"]),
];

/// The definition that arguments are parsed with. Manual pages and completions are made from the plain one: here the commands
/// are hidden from clap's own list.
pub(crate) fn grouped() -> Command {
    let mut command = Cli::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{{all-args}}{{after-help}}",
        list(&command)
    );
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |it| it.hide(true));
    }
    command.help_template(template).override_usage("tidegate [OPTIONS]\n       tidegate COMMAND [ARGUMENTS]")
}

fn list(command: &Command) -> String {
    let mut text = "Commands:\n".to_owned();
    for (group, names) in GROUPS {
        text.extend(["  ", group, "\n"]);
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print what a command does and takes".to_owned());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {name:<12} {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_its_line_fits() {
        let command = Cli::command();
        let mut named: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).filter(|it| *it != "help").collect();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
        for line in list(&command).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn the_help_has_the_groups_and_the_options() {
        let text = grouped().render_help().to_string();
        assert!(text.contains("Commands:\n  Run a broker\n    serve        Run the broker"), "{text}");
        assert_eq!(text.matches("Commands:").count(), 1, "{text}");
        assert!(text.contains("Listeners:") && text.contains("Examples:"), "{text}");
    }

    #[test]
    fn a_mistyped_command_is_answered_with_the_right_one() {
        let error = grouped().try_get_matches_from(["tidegate", "stauts"]).unwrap_err().to_string();
        assert!(error.contains("'status'"), "{error}");
    }
}
