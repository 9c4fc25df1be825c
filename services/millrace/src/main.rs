//! The Millrace program: a server made of settings, an edge and HTTP ports, and commands that look
//! into a store or use a service's API. It knows nothing of MQTT itself.

mod args;
mod cli;
mod clock;
mod cluster_copy;
mod console;
mod control;
mod dev_certs;
mod failure;
mod freed_memory;
mod http;
mod inspect;
mod install;
mod limits;
mod listeners;
mod logs;
mod migrate;
mod named_files;
mod nats;
mod outgoing;
mod panics;
mod passwd;
mod permissions;
mod pods;
mod process_metrics;
#[cfg(test)]
mod readme;
mod remote;
mod running;
mod serve;
mod service_manager;
mod settings;
mod store;
mod telemetry;
mod terminal;
mod text;
mod tls;
mod user;
mod values;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
