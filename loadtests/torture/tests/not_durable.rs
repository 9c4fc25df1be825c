//! The test must be able to fail: against a broker that acknowledges before it writes.

use std::process::Command;

/// mosquitto writes its sessions and messages when it ends in order, or every half hour: a SIGKILL
/// loses them.
#[test]
fn a_broker_that_loses_what_it_acknowledged_is_found_out() {
    let installed = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"];
    if !installed.iter().any(|path| std::path::Path::new(path).is_file()) {
        println!("SKIPPED: there is no mosquitto");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["--broker=mosquitto", "--kills=2", "--seed=1", "--patience-s=0"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["acknowledged message lost", "session gone", "kill 2/2", "kept: "] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
