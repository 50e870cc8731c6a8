//! How an answer is shown: a table, more of it, or a document for programs.

use crate::cli::Global;
use crate::{output, yaml};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The option of all commands that show something.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// How to show it: all columns, or a document for programs.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM")]
    form: Option<Form>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// All columns.
    Wide,
    /// A JSON document, as with --json.
    Json,
    /// A YAML document.
    Yaml,
}

impl View {
    /// Whether programs read it.
    pub(crate) fn is_document(self, global: &Global) -> bool {
        matches!(self.form(global), Some(Form::Json | Form::Yaml))
    }

    fn form(self, global: &Global) -> Option<Form> {
        match self.form {
            Some(Form::Yaml) => Some(Form::Yaml),
            _ if global.json => Some(Form::Json),
            form => form,
        }
    }

    /// Prints an answer. `text`: what people see; its argument says whether in all columns. Nothing to see prints nothing.
    pub(crate) fn show<T: Serialize>(
        self,
        global: &Global,
        answer: &T,
        text: impl FnOnce(bool) -> String,
    ) -> anyhow::Result<()> {
        match self.form(global) {
            Some(Form::Yaml) => output::line(&yaml::text(answer)?),
            Some(Form::Json) => output::json(answer),
            form => people(&text(form == Some(Form::Wide))),
        }
    }

    /// The same of one answer of several: for programs a line of JSON, or a YAML document that begins with `---`.
    pub(crate) fn show_one_of_many<T: Serialize>(
        self,
        global: &Global,
        answer: &T,
        text: impl FnOnce(bool) -> String,
    ) -> anyhow::Result<()> {
        match self.form(global) {
            Some(Form::Yaml) => output::line(&format!("---\n{}", yaml::text(answer)?)),
            Some(Form::Json) => output::line(&serde_json::to_string(answer)?),
            form => people(&text(form == Some(Form::Wide))),
        }
    }

    /// What stands before each of several answers that are shown as by [`View::show`].
    pub(crate) fn begin_one_of_many(self, global: &Global) -> anyhow::Result<()> {
        if self.form(global) == Some(Form::Yaml) { output::line("---") } else { Ok(()) }
    }
}

fn people(text: &str) -> anyhow::Result<()> {
    if text.is_empty() { Ok(()) } else { output::line(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        global: Global,
        #[command(flatten)]
        view: View,
    }

    #[test]
    fn the_form_is_that_which_says_more() {
        let form = |words: &str| {
            let words = Words::parse_from(["x"].into_iter().chain(words.split_whitespace()));
            (words.view.form(&words.global), words.view.is_document(&words.global))
        };
        assert_eq!(form(""), (None, false));
        assert_eq!(form("-o wide"), (Some(Form::Wide), false));
        assert_eq!(form("--json"), (Some(Form::Json), true));
        assert_eq!(form("-o json"), (Some(Form::Json), true));
        assert_eq!(form("-o wide --json"), (Some(Form::Json), true));
        assert_eq!(form("-o yaml --json"), (Some(Form::Yaml), true));
    }
}
