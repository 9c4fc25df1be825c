use super::pool::{KEEP_CAPACITY_MAX, RUNS_MAX};
use super::*;

/// It is busy once `room` is used up.
struct Socket {
    room: usize,
    bytes: Vec<u8>,
    calls: usize,
}

impl Socket {
    fn with_room(room: usize) -> Self {
        Self { room, bytes: Vec::new(), calls: 0 }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.write(&bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn add_messages(outbound: &mut Outbound, bytes: usize) {
    outbound.tail.resize(outbound.tail.len() + bytes, b'm');
}

fn add_answers(outbound: &mut Outbound, bytes: usize) {
    let before = outbound.len();
    outbound.tail.resize(outbound.tail.len() + bytes, b'a');
    outbound.note_answers(before);
}

#[test]
fn written_answers_no_longer_count_while_messages_keep_the_buffer_long() {
    for websocket in [false, true] {
        let mut outbound = Outbound::default();
        add_messages(&mut outbound, 10_000);
        for _ in 0..1_000 {
            add_answers(&mut outbound, 100);
            add_messages(&mut outbound, 900);
            outbound.flush(&mut Socket::with_room(1_000), websocket, usize::MAX).unwrap();
            assert!(outbound.len() >= 10_000, "{}", outbound.len());
            // The buffer holds the answers of about ten turns, 1,000 bytes. They are counted in two groups, each rounded up.
            assert!((100..=3_000).contains(&outbound.answers()), "{}", outbound.answers());
        }
    }
}

#[test]
fn answers_count_until_the_last_byte_of_them_is_written() {
    for websocket in [false, true] {
        let mut outbound = Outbound::default();
        add_messages(&mut outbound, 1_000);
        add_answers(&mut outbound, 500);
        add_messages(&mut outbound, 1_000);
        add_answers(&mut outbound, 500);
        assert_eq!(outbound.answers(), 1_000);
        // The header of the WebSocket frame is written first.
        let header = if websocket { 4 } else { 0 };
        outbound.flush(&mut Socket::with_room(header + 1_499), websocket, usize::MAX).unwrap();
        assert_eq!(outbound.answers(), 1_000);
        outbound.flush(&mut Socket::with_room(1), websocket, usize::MAX).unwrap();
        assert_eq!(outbound.answers(), 500);
        outbound.flush(&mut Socket::with_room(1_499), websocket, usize::MAX).unwrap();
        assert_eq!(outbound.answers(), 500);
        outbound.flush(&mut Socket::with_room(1), websocket, usize::MAX).unwrap();
        assert_eq!((outbound.answers(), outbound.len()), (0, 0));
    }
}

#[test]
fn bytes_that_tls_holds_for_a_busy_socket_count() {
    let mut outbound = Outbound::default();
    add_messages(&mut outbound, 1_000);
    assert_eq!(outbound.room(60_000, 1_000_000, 1), OutboundRoom::Free);
    outbound.note_written(1, 64_000, 60_000, 1);
    assert_eq!((outbound.held(), outbound.room(60_000, 1_000_000, 1)), (65_000, OutboundRoom::Congested));
    assert_eq!(outbound.room(60_000, 1_000_000, 1 + GRACE_MS), OutboundRoom::Full);
    outbound.note_written(64_000, 0, 60_000, 2);
    assert_eq!(outbound.room(60_000, 1_000_000, 2), OutboundRoom::Free);
}

#[test]
fn a_run_uses_the_memory_of_one_that_its_receivers_have_written() {
    let mut pool = Pool::default();
    let first = pool.share(&[b'1'; 3_000]);
    let second = pool.share(&[b'2'; 3_000]);
    assert_ne!(first.as_ptr(), second.as_ptr());
    let memory = second.as_ptr();
    let mut outbound = Outbound::default();
    outbound.push_shared(&second);
    drop(second);
    let third = pool.share(&[b'3'; 3_000]);
    assert!(third.as_ptr() != memory, "a receiver has not written all of it");
    outbound.flush(&mut Socket::with_room(3_000), false, usize::MAX).unwrap();
    let fourth = pool.share(&[b'4'; 2_000]);
    assert_eq!((fourth.as_ptr(), &**fourth), (memory, &[b'4'; 2_000][..]));
    assert!(first.iter().all(|byte| *byte == b'1') && third.iter().all(|byte| *byte == b'3'));
    drop(fourth);
    let small = pool.share(&[b'5'; 1_000]);
    assert!(small.capacity() < 2_000, "a small run holds the memory of a large one");
    // Receivers that do not read hold all of them: the oldest makes room, and so does a large one.
    let held: Vec<_> = (0..RUNS_MAX).map(|_| pool.share(&[0; 3_000])).collect();
    drop((pool.share(&[0; KEEP_CAPACITY_MAX + 1]), held));
    assert!(pool.runs.len() == RUNS_MAX && pool.runs.iter().all(|run| run.capacity() < KEEP_CAPACITY_MAX));
}

#[test]
fn a_pool_keeps_no_buffer_that_has_grown() {
    let mut pool = Pool::default();
    let large = vec![0; KEEP_CAPACITY_MAX + 1];
    let grow: [fn(&mut Outbound, &[u8]); 2] =
        [|outbound, bytes| outbound.tail.extend_from_slice(bytes), Outbound::push_control];
    for grow in grow {
        let mut outbound = pool.take();
        grow(&mut outbound, &large);
        pool.give(outbound);
        assert_eq!(pool.buffers.len(), 0);
    }
}

#[test]
fn a_pool_frees_the_buffers_that_nobody_needs_any_more() {
    let mut pool = Pool::default();
    let taken: Vec<_> = (0..100).map(|_| pool.take()).collect();
    taken.into_iter().for_each(|outbound| pool.give(outbound));
    let mut kept = || {
        pool.shrink();
        pool.buffers.len()
    };
    // All were needed within the first second.
    assert_eq!([kept(), kept(), kept(), kept()], [100, 50, 25, 12]);
    drop(pool.take());
    pool.shrink();
    assert_eq!(pool.buffers.len(), 5);
}

#[test]
fn pongs_take_few_writes_and_chunks_also_when_each_ping_came_alone() {
    const PINGS: usize = 8_000;
    for answers in [0, 2] {
        let mut outbound = Outbound::default();
        for _ in 0..PINGS {
            add_answers(&mut outbound, answers);
            outbound.push_control(&[0x8A, 0]);
        }
        assert_eq!(outbound.len(), PINGS * (2 + answers));
        assert!(outbound.chunks.len() <= 2, "{} chunks", outbound.chunks.len());
        let mut socket = Socket::with_room(usize::MAX);
        outbound.flush(&mut socket, true, usize::MAX).unwrap();
        let header = if answers > 0 { 4 } else { 0 };
        assert_eq!((socket.bytes.len(), outbound.len()), (PINGS * (2 + answers) + header, 0));
        assert!(socket.calls <= 2, "{} system calls", socket.calls);
    }
}

#[test]
fn control_frames_leave_between_frames_and_a_close_is_the_last() {
    let mut outbound = Outbound::default();
    let mut socket = Socket::with_room(5);
    add_messages(&mut outbound, 10);
    outbound.flush(&mut socket, true, usize::MAX).unwrap();
    outbound.push_control(b"PONG");
    let seen = outbound.len_without_control();
    outbound.tail.extend_from_slice(b"new");
    outbound.push_control(b"pong");
    outbound.push_close(b"CLOSE".to_vec());
    let mut unseen = Vec::new();
    outbound.each_after(seen, |bytes| unseen.extend_from_slice(bytes));
    assert_eq!(unseen, b"new");
    socket.room = usize::MAX;
    outbound.flush(&mut socket, true, usize::MAX).unwrap();
    let expected = [&b"\x82\x0Ammmmmmmmmm"[..], b"PONGpong", b"\x82\x03new", b"CLOSE"].concat();
    assert_eq!((socket.bytes, socket.calls, outbound.len()), (expected, 3, 0));
}
