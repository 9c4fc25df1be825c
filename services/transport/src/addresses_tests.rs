//! Addresses that count as one, refusals, and the removal of entries.

use super::*;

fn addresses(connections_max: u32, cost_per_second_max: u32, burst: u32) -> Addresses {
    Addresses::new(AddressLimits { connections_max, cost_per_second_max, burst }, Networks::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_ipv6_network_of_64_bits_counts_as_one_and_an_ipv4_address_as_itself() {
    let same = [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
    ];
    let different = [("192.0.2.1", "192.0.2.2"), ("2001:db8:1:2::1", "2001:db8:1:3::1")];
    for (first, second) in same {
        let table = addresses(1, 0, 0);
        table.admit(ip(first), 1, 0).unwrap();
        assert_eq!(table.admit(ip(second), 1, 0), Err(AddressRefusal::Connections), "{first} {second}");
    }
    for (first, second) in different {
        let table = addresses(1, 0, 0);
        table.admit(ip(first), 1, 0).unwrap();
        assert!(table.admit(ip(second), 1, 0).is_ok(), "{first} {second}");
    }
}

#[test]
fn the_networks_of_an_ipv6_line_have_eight_times_the_limit_of_one_together() {
    let admitted = |table: &Addresses| {
        let of = |number: u32| ip(&format!("2001:db8:1:{number:x}::1"));
        (0..256).filter_map(|number| table.admit(of(number), 1, 0).ok()).collect::<Vec<_>>()
    };
    let table = addresses(2, 0, 0);
    let all = admitted(&table);
    assert_eq!(all.len(), 16);
    assert!(table.admit(ip("2001:db8:2::1"), 1, 0).is_ok(), "another line");
    all.into_iter().for_each(|one| table.release(one));
    assert_eq!(admitted(&table).len(), 16);
    assert_eq!(admitted(&addresses(u32::MAX, 10, 5)).len(), 40);
}

#[test]
fn a_connection_that_ended_makes_room_for_another_one() {
    let table = addresses(2, 0, 0);
    let address = ip("198.51.100.7");
    let first = table.admit(address, 1, 0).unwrap();
    table.admit(address, 1, 0).unwrap();
    assert_eq!(table.admit(address, 1, 0), Err(AddressRefusal::Connections));
    table.release(first);
    assert!(table.admit(address, 1, 0).is_ok());
}

#[test]
fn a_burst_is_taken_and_then_the_rate() {
    let table = addresses(u32::MAX, 10, 5);
    let (address, other) = (ip("198.51.100.7"), ip("198.51.100.8"));
    let admitted = |address, now| (0..100).take_while(|_| table.admit(address, 1, now).is_ok()).count();
    assert_eq!(admitted(address, 0), 5);
    assert_eq!(admitted(other, 0), 5, "an address pays for itself alone");
    assert_eq!(admitted(address, 99), 0);
    assert_eq!(admitted(address, 300), 3);
    assert_eq!(admitted(address, 100_000), 5, "a long quiet time is worth one burst");
    assert_eq!(table.admit(other, 4, 400), Ok(Address::of(other)));
    assert_eq!(
        table.admit(other, 4, 400),
        Err(AddressRefusal::Rate),
        "a costly connection counts as several"
    );
}

#[test]
fn this_machine_is_not_limited() {
    let table = addresses(0, 1, 1);
    for address in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(table.admit(ip(address), 1, 0), Ok(Address::NONE), "{address}");
    }
    assert!(table.admit(ip("::2"), 1, 0).is_err());
}

#[test]
fn an_address_that_left_takes_no_memory_for_long() {
    let table = addresses(10, 1000, 10);
    for number in 0..1_000_000_u32 {
        let now = u64::from(number / 1000);
        let address = table.admit(IpAddr::from((0x0A00_0000 + number).to_be_bytes()), 1, now).unwrap();
        table.release(address);
    }
    let entries: usize = table.shards.iter().map(|shard| shard.lock().unwrap().entries.len()).sum();
    assert!(entries <= 4 * SHARDS * SWEEP_LEN_MIN, "{entries}");
}
