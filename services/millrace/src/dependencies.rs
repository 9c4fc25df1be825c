//! An empty program. Building it compiles the libraries of `millrace`, so that `make run` can do
//! that while npm builds the console.

fn main() {}
