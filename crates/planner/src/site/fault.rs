//! What is wrong with a value of a site's file, and on which line it stands.

/// A value, and what is wrong with it.
pub(super) struct Fault {
    /// Table or array of tables that has the key; `None`: the top.
    table: Option<(&'static str, usize)>,
    key: &'static str,
    message: String,
}

impl Fault {
    pub(super) fn at_top(key: &'static str, message: String) -> Self {
        Self { table: None, key, message }
    }

    /// In a table of the top, or in that of number `index` of an array of tables.
    pub(super) fn within(table: &'static str, index: usize, key: &'static str, message: String) -> Self {
        Self { table: Some((table, index)), key, message }
    }

    /// The message, behind the line of `text` where the value stands, if it does.
    pub(super) fn with_line(self, text: &str) -> String {
        match self.line(text) {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message,
        }
    }

    fn line(&self, text: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(text).ok()?;
        let line_of = |start: usize| Some(text.get(..start)?.matches('\n').count() + 1);
        let Some((name, index)) = self.table else {
            let (key, _) = document.get_ref().get_key_value(self.key)?;
            return line_of(key.span().start);
        };
        let value = document.get_ref().get(name)?;
        let table = match value.get_ref().as_table() {
            Some(table) => table,
            None => value.get_ref().get(index)?.get_ref().as_table()?,
        };
        // A key that is missing is missed where its table begins.
        match table.get_key_value(self.key) {
            Some((key, _)) => line_of(key.span().start),
            None => line_of(value.get_ref().get(index).map_or(value.span().start, |table| table.span().start)),
        }
    }
}
