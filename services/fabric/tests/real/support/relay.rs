//! A TCP relay that can break connections, or hold everything back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

pub(crate) struct Relay {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    streams: Vec<TcpStream>,
    is_paused: bool,
    refuses: bool,
    is_over: bool,
}

impl Relay {
    pub(crate) fn start(to_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut state = shared.0.lock().unwrap();
                if state.is_over {
                    return;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
                if state.refuses {
                    continue;
                }
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                state.streams.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (up, down) = (shared.clone(), shared.clone());
                std::thread::spawn(move || pump(near, far_too, &up));
                std::thread::spawn(move || pump(far, near_too, &down));
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Breaks all connections; what is on its way is lost.
    pub(crate) fn cut(&self) {
        for stream in self.state.0.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Breaks all connections, and each new one.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.0.lock().unwrap().refuses = refuses;
        if refuses {
            self.cut();
        }
    }

    /// Holds everything back, in both directions.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.state.0.lock().unwrap().is_paused = is_paused;
        self.state.1.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.0.lock().unwrap().is_over = true;
        self.pause(false);
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &(Mutex<State>, Condvar)) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let paused = state.0.lock().unwrap();
        drop(state.1.wait_while(paused, |state| state.is_paused).unwrap());
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
