//! Tables of columns for pages, from the types of a file's lines.

use schemars::{JsonSchema, Schema, schema_for};

/// The columns of a file with lines of this type and what they mean, as a table in Markdown. Columns whose meaning is that of
/// another (``See `other`.``) are beside it.
///
/// # Panics
/// When a column has no description.
pub fn columns_of<T: JsonSchema>() -> String {
    columns_in(&schema_for!(T))
}

/// The same from the schema of a line.
///
/// # Panics
/// When a column has no description.
pub fn columns_in(schema: &Schema) -> String {
    let properties = schema.get("properties").and_then(|it| it.as_object());
    let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
    for (column, property) in properties.into_iter().flatten() {
        let text = property.get("description").and_then(|text| text.as_str());
        let text = text.unwrap_or_else(|| panic!("{column} is not described"));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let other = text.strip_prefix("See `").and_then(|rest| rest.strip_suffix("`."));
        match lines.iter_mut().find(|(names, _)| Some(names[0]) == other) {
            Some((names, _)) => names.push(column),
            None => lines.push((vec![column], text)),
        }
    }
    let lines =
        lines.into_iter().map(|(names, text)| format!("| {} | {text} |\n", names.join(", ")));
    String::from("| column | meaning |\n|---|---|\n") + &lines.collect::<String>()
}
