use super::*;
use crate::inspect::request::InspectRequest;
use crate::inspect::testing::{Asked, call, opened, subscribed};

fn list() -> InspectRequest {
    InspectRequest::ListSessions { broker: "default".into(), after: None, limit: 10 }
}

fn clients(folder: &Path) -> Result<Vec<String>, AnswerError> {
    let mut clients = Vec::new();
    ask(folder, &call(&list()), &mut |row| {
        if let InspectRow::Session(session) = row {
            clients.push(session.client_id);
        }
        Ok(())
    })?;
    Ok(clients)
}

fn open(folder: &Path) -> InspectSocket {
    let opened = opened(folder, None);
    subscribed(&opened.layers, "c\n1", "a");
    InspectSocket::open(folder, opened.embedded, Arc::new(Asked::default())).unwrap()
}

#[test]
fn a_server_answers_its_own_user_at_a_path_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["short".to_owned(), "long".repeat(60)] {
        let folder = folder.path().join(name);
        drop(opened(&folder, None));
        // The file that a killed server has left.
        for left in [folder.join(MAKING), folder.clone()] {
            fs::create_dir_all(&left).unwrap();
            drop(UnixListener::bind(reachable(&left, NAME).unwrap().0));
            assert!(left.join(NAME).exists());
        }
        let socket = open(&folder);
        let mode = fs::metadata(folder.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!folder.join(MAKING).exists());
        assert_eq!(clients(&folder).unwrap(), ["c\n1"]);
        drop(socket);
        assert!(!folder.join(NAME).exists());
        let Err(AnswerError::Failed(said)) = clients(&folder) else { panic!() };
        assert!(said.contains("in use by another process that does not answer"), "{said}");
    }
}

#[test]
fn what_is_no_request_is_answered_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let _socket = open(folder.path());
    for line in ["", "{}", "{\"ask\":\"dance\"}", "GET / HTTP/1.1"] {
        let stream = connect(folder.path()).unwrap();
        (&stream).write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"failed\":\"the server does not understand"), "{line}: {answer}");
    }
    assert_eq!(clients(folder.path()).unwrap().len(), 1);
}

#[test]
fn more_requests_than_the_server_takes_are_told_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let _socket = open(folder.path());
    let idle: Vec<_> = (0..REQUESTS_MAX).map(|_| connect(folder.path()).unwrap()).collect();
    let Err(AnswerError::Failed(said)) = clients(folder.path()) else { panic!() };
    assert!(said.contains("try again later"), "{said}");
    drop(idle);
    while clients(folder.path()).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn an_answer_that_was_cut_off_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let listener = bind(folder.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        });
        let Err(AnswerError::Failed(said)) = clients(folder.path()) else { panic!() };
        assert!(said.contains("before its answer was complete"), "{said}");
    });
}
