//! Finds the source files that may have citations.

use std::io;
use std::path::{Path, PathBuf};

/// Built or downloaded files.
const SKIPPED: [&str; 3] = ["target", "node_modules", "__pycache__"];

const ENDINGS: [&str; 7] = ["rs", "py", "mjs", "js", "ts", "go", "sh"];

/// Returns the files in order, without hidden folders and links.
pub(crate) fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                folders.push(entry.path());
            } else if kind.is_file() && name.rsplit_once('.').is_some_and(|(_, end)| ENDINGS.contains(&end)) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
