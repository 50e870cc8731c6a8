//! How an answer is shown: a table, more of it, or a document for programs.

use crate::cli::Global;
use crate::output;
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
        global.json || matches!(self.form, Some(Form::Json | Form::Yaml))
    }

    /// Prints an answer. `text`: what people see; its argument says whether in all columns. Nothing to see prints nothing.
    pub(crate) fn show<T: Serialize>(
        self,
        global: &Global,
        answer: &T,
        text: impl FnOnce(bool) -> String,
    ) -> anyhow::Result<()> {
        match self.form {
            Some(Form::Yaml) => {
                output::line(crate::yaml::document(&serde_json::to_value(answer)?).trim_end())
            }
            Some(Form::Json) => output::json(answer),
            _ if global.json => output::json(answer),
            form => match text(form == Some(Form::Wide)) {
                text if text.is_empty() => Ok(()),
                text => output::line(&text),
            },
        }
    }
}
