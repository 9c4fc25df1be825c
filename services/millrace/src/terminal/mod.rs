//! Questions and tables at a terminal, for the commands.

pub(crate) mod confirm;
pub(crate) mod table;
