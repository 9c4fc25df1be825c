//! Checks that `docs/settings.md` agrees with the command line: its table lists every setting, and its example is accepted.

use crate::args::serve_command;

const BEGIN: &str = "<!-- settings: begin -->\n";
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
const END: &str = "<!-- settings: end -->\n";

fn table() -> String {
    let mut table = String::from("| setting | value | default | what for |\n|---|---|---|---|\n");
    for argument in serve_command().get_arguments() {
        let name = argument.get_id().as_str();
        let is_setting = !matches!(name, "config" | "help" | "version");
        if !is_setting {
            continue;
        }
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        // A default that depends on other settings is not known to clap; the help text ends with it
        // instead.
        let (help, dependent_default) = match help.split_once(" [default: ") {
            Some((help, default)) => (help.to_owned(), default.trim_end_matches(['.', ']']).to_owned()),
            None => (help, String::new()),
        };
        let default: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = if default.is_empty() { dependent_default } else { format!("`{}`", default.join(",")) };
        let value = argument.get_value_names().unwrap_or_default().join(" ").to_lowercase();
        let help = help.replace('|', "\\|");
        table += &format!("| `{name}` | {value} | {default} | {help} |\n");
    }
    table
}

#[test]
fn the_settings_page_lists_every_setting_with_its_default() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var("MILLRACE_README").is_ok_and(|what| what == "write") {
        std::fs::write(PATH, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        return;
    }
    assert!(
        found == table(),
        "{PATH} is out of date; this writes it: MILLRACE_README=write cargo test -p millrace readme"
    );
}

#[test]
fn the_settings_pages_example_file_is_accepted() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let example = text.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    let file = std::env::temp_dir().join(format!("millrace-settings-{}.toml", std::process::id()));
    std::fs::write(&file, example).unwrap();
    let args = ["millrace".into(), "serve".into(), "--config".into(), file.clone().into_os_string()];
    let loaded = crate::settings::load(args.into(), std::iter::empty());
    std::fs::remove_file(&file).unwrap();
    assert_eq!(loaded.unwrap().0.edge.mqtt_listen.len(), 2);
}
