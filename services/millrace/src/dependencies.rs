//! An empty program: to link it, cargo compiles the libraries of `millrace`.

fn main() {}
