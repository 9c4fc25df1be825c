use super::*;

const CORES: u64 = 2;
const HOME: u16 = 0;
/// Hashes of client ids; the upper half names the loop.
const AT_ONE: u64 = 1 << 32;
const AT_ZERO: u64 = 1 << 33;

fn unsettled() -> Arc<Home> {
    Home::new(1, "b")
}

fn settled(clients_max: usize) -> Arc<Home> {
    let home = unsettled();
    home.settle(HOME, clients_max, &Arc::default());
    home
}

#[test]
fn clients_are_at_home_until_one_more_comes_than_fit() {
    let home = settled(2);
    let [one, two] = [1, 2].map(|number| home.owner(AT_ONE + number, CORES));
    assert_eq!((one.core(), two.core()), (HOME, HOME));
    assert_eq!(home.core(), Some(HOME));
    let three = home.owner(AT_ONE + 3, CORES);
    assert!(matches!(three, Owner::Hashed { core: 1, may_have_moved: true }), "{three:?}");
    assert_eq!(home.core(), None);
    // A client id with a claim stays, and may come back as long as there is one.
    let again = home.owner(AT_ONE + 1, CORES);
    drop(one);
    assert_eq!(home.owner(AT_ONE + 1, CORES).core(), HOME);
    drop(again);
    assert_eq!(home.owner(AT_ONE + 1, CORES).core(), 1);
    assert_eq!(home.claimed(), 1);
    drop(two);
    assert!(home.is_left.load(Ordering::Relaxed));
    assert!(home.owner(AT_ZERO, CORES).may_have_moved());
}

#[test]
fn one_loop_and_brokers_without_a_home_need_no_claims() {
    for (home, cores) in [(settled(9), 1), (unsettled(), CORES)] {
        let owner = home.owner(AT_ONE, cores);
        assert!(matches!(owner, Owner::Hashed { may_have_moved: false, .. }), "{owner:?}");
        assert_eq!(u64::from(owner.core()), cores - 1);
        assert_eq!(home.claimed(), 0);
    }
}

#[test]
fn a_claim_is_counted_through_a_session_and_its_copies() {
    let home = settled(2);
    let claim = home.owner(AT_ONE, CORES).into_claim().unwrap();
    let copy = claim.clone();
    claim.leave_to_session();
    home.spread();
    drop(copy);
    assert_eq!(home.owner(AT_ONE, CORES).core(), HOME);
    drop(HomeClaim::of_session(home.clone(), AT_ONE));
    assert_eq!(home.owner(AT_ONE, CORES).core(), 1);
}

#[test]
fn a_broker_that_has_spread_counts_no_more_for_its_loop() {
    let loads = Loads::new(2, 9);
    let homes = [unsettled(), unsettled(), unsettled()];
    homes.iter().for_each(|home| loads.settle(home));
    assert_eq!(homes.each_ref().map(|home| home.core()), [Some(0), Some(1), Some(0)]);
    // The second spread of a broker takes away nothing more.
    (0..2).for_each(|_| homes[2].spread());
    homes[0].spread();
    let next = [unsettled(), unsettled(), unsettled()];
    next.iter().for_each(|home| loads.settle(home));
    assert_eq!(next.each_ref().map(|home| home.core()), [Some(0), Some(0), Some(1)]);
}

#[test]
fn a_new_broker_settles_where_the_least_is_done() {
    let loads = Loads::new(3, 9);
    let mut open = Vec::new();
    let mut settle = || {
        let home = unsettled();
        loads.settle(&home);
        open.push(home.clone());
        home.core()
    };
    assert_eq!([settle(), settle(), settle(), settle()], [Some(0), Some(1), Some(2), Some(0)]);
    loads.note(1, 30);
    assert_eq!([settle(), settle(), settle()], [Some(2), Some(0), Some(2)]);
    loads.note(0, 90);
    assert_eq!([0, 1, 2].map(|core| loads.is_outgrown(core)), [true, false, false]);
    [1, 2].iter().for_each(|core| loads.note(*core, 60));
    assert!(!loads.is_outgrown(0));
    for without in [Loads::new(3, 0), Loads::new(1, 9)] {
        let home = unsettled();
        without.settle(&home);
        assert_eq!(home.core(), None);
    }
}

/// One client id, of which several connections come at the same time, while the broker spreads. Every step below is one critical
/// section or touches one loop alone, so all orders of steps are all that threads can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A connection asks who owns its client id, and goes there.
    Ask(usize),
    /// The owner serves the connection, which takes over the session that is there.
    Serve(usize),
    /// The session of this connection ends, if it has not been taken over.
    End(usize),
    /// The jobs and messages of the session have left the home loop.
    Leave(usize),
    Spread,
}

struct Model {
    home: Arc<Home>,
    owners: [Option<Owner>; CONNECTIONS],
    /// The connection with a session, by loop, and its claim.
    live: [Option<(usize, Option<HomeClaim>)>; CORES as usize],
    ended: [Option<HomeClaim>; CONNECTIONS],
}

const CONNECTIONS: usize = 3;

impl Model {
    fn new() -> Self {
        Self {
            home: settled(9),
            owners: Default::default(),
            live: Default::default(),
            ended: Default::default(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Spread => self.home.spread(),
            Step::Ask(number) => {
                self.owners[number] = Some(self.home.owner(AT_ONE, CORES));
            }
            Step::Serve(number) => {
                let owner = self.owners[number].take().unwrap();
                let core = usize::from(owner.core());
                if let Some((other, claim)) = self.live[core].take() {
                    self.ended[other] = claim;
                }
                self.live[core] = Some((number, owner.into_claim()));
            }
            Step::End(number) => {
                for live in &mut self.live {
                    if let Some((_, claim)) = live.take_if(|(of, _)| *of == number) {
                        self.ended[number] = claim;
                    }
                }
            }
            Step::Leave(number) => self.ended[number] = None,
        }
        let on = self.live.iter().filter(|live| live.is_some()).count();
        assert!(on <= 1, "two live connections of one client id");
    }
}

#[test]
fn in_no_order_of_steps_has_a_client_id_two_owners() {
    // The next step of each connection; the last one is whether the broker has spread.
    fn explore(taken: &mut Vec<Step>, at: [usize; CONNECTIONS], has_spread: bool, orders: &mut usize) {
        let mut is_over = has_spread;
        for number in 0..CONNECTIONS {
            let steps = [Step::Ask(number), Step::Serve(number), Step::End(number), Step::Leave(number)];
            if let Some(step) = steps.get(at[number]) {
                is_over = false;
                // All connections do the same, so they are numbered in the order in which they come.
                if at[number] == 0 && at[..number].contains(&0) {
                    continue;
                }
                let mut next = at;
                next[number] += 1;
                taken.push(*step);
                explore(taken, next, has_spread, orders);
                taken.pop();
            }
        }
        if !has_spread {
            taken.push(Step::Spread);
            explore(taken, at, true, orders);
            taken.pop();
        }
        if is_over {
            *orders += 1;
            let mut model = Model::new();
            taken.iter().for_each(|step| model.take(*step));
            assert_eq!(model.home.claimed(), 0, "{taken:?}");
            assert!(model.home.is_left.load(Ordering::Relaxed));
        }
    }
    let mut orders = 0;
    explore(&mut Vec::new(), [0; CONNECTIONS], false, &mut orders);
    // Twelve steps of three connections, four each, and the spread anywhere between them.
    assert_eq!(orders, 34_650 / 6 * 13);
}
