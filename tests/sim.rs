//! A world in a seed: the program's relay, upstream client, sinks and hyper, unchanged, over a simulated network, store
//! and clock, with clients and backends that misbehave; an oracle holds what the wire contract promises.
//! Law: a failing seed fails again: `THROUGHLINE_SEED=N cargo test --test sim one_seed -- --nocapture` shows its history.
//! A long hunt: `THROUGHLINE_SEEDS=10000 cargo test --release --test sim a_hunt -- --nocapture`.
//! A crowd beyond any limit of file descriptors: `THROUGHLINE_CROWD=100000 cargo test --release --test sim a_crowd -- --nocapture`.
//! Next: `sim/run.rs`.

#[path = "sim/backend.rs"]
mod backend;
#[path = "sim/chance.rs"]
mod chance;
#[path = "sim/client.rs"]
mod client;
#[path = "sim/clock.rs"]
mod clock;
#[path = "sim/crowd.rs"]
mod crowd;
#[path = "sim/desk.rs"]
mod desk;
#[path = "sim/elder.rs"]
mod elder;
#[path = "sim/fleet.rs"]
mod fleet;
#[path = "sim/http.rs"]
mod http;
#[path = "sim/kept.rs"]
mod kept;
#[path = "sim/modern.rs"]
mod modern;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "sim/oracle.rs"]
mod oracle;
#[path = "sim/papers.rs"]
mod papers;
#[path = "sim/place.rs"]
mod place;
#[path = "sim/plant.rs"]
mod plant;
#[path = "sim/run.rs"]
mod run;
#[path = "sim/shelf.rs"]
mod shelf;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "sim/trail.rs"]
mod trail;
#[path = "sim/weather.rs"]
mod weather;
#[path = "sim/wires.rs"]
mod wires;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::oracle::Tally;
use crate::plant::Plant;
use crate::run::{Change, world, world_with};
use crate::weather::Weather;

/// Seeds that every run plays.
const FIXED: std::ops::Range<u64> = 0..60;

/// Seeds that found something once: a cursor that was answered from an epoch which began while it was on its way.
/// A batch's client that was cut between a priming event and the loss that stood behind it. A batch that broke half
/// answered, of which the window held the end. One whose errors, told by a proxy that did not know it, were positions of
/// the log of the one that did. Calls over HTTP+SSE whose POST was refused behind the end of their session, which had told
/// their outcome. A call whose error no log would keep. A listener who had nothing yet when its log was lost. A POST over
/// HTTP+SSE that its client left, of which nobody was told. And an answer whose gap was told in a head that had gone.
const FOUND: [u64; 10] = [
    674, 9_000_729, 9_001_354, 1_001_241, 1_008_387, 2_000_274, 5_000_195, 20_000_328, 20_002_642, 80_001_198,
];

/// Fresh seeds beside them.
const FRESH: u64 = 20;

/// Worlds with each store that fails always.
const STORES: u64 = 4;

/// Worlds with servers that say things again.
const ECHOES: u64 = 100;

/// Within so many seeds every planted fault is found.
const FOUND_WITHIN: u64 = 1_000;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// The weather of a seed as it is.
const UNCHANGED: Change = |_| {};

/// Plays these seeds with this change, says which of them violated what, and how to play one of them again.
fn play_with(seeds: impl Iterator<Item = u64>, change: Change, settings: &str) -> Tally {
    let mut tally = Tally::default();
    let (mut played, mut failed) = (0, Vec::new());
    for seed in seeds {
        let report = world_with(seed, Plant::None, change);
        tally.add(&report.tally);
        played += 1;
        if !report.violations.is_empty() {
            println!("{settings}THROUGHLINE_SEED={seed} cargo test --test sim one_seed -- --nocapture");
            for violation in &report.violations {
                println!("    {violation}");
            }
            failed.push(seed);
        }
    }
    println!("{played} worlds: {:?}", tally.0);
    assert!(failed.is_empty(), "seeds with violations: {failed:?}");
    tally
}

fn play(seeds: impl Iterator<Item = u64>) {
    let tally = play_with(seeds, UNCHANGED, "");
    assert!(
        ["results", "resumed", "reset", "cuts"]
            .iter()
            .all(|what| tally.0.contains_key(what)),
        "too little happened: {tally:?}"
    );
}

#[test]
fn fixed_seeds() {
    play(FIXED.chain(FOUND));
}

#[test]
fn fresh_seeds() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let first = now.as_nanos() as u64 >> 8;
    println!("fresh seeds from {first}");
    play((0..FRESH).map(|nth| first.wrapping_add(nth)));
}

#[test]
fn a_hunt() {
    let Some(count) = from_environment("THROUGHLINE_SEEDS") else {
        return;
    };
    let first = from_environment("THROUGHLINE_FIRST").unwrap_or(1_000_000);
    play(first..first + count);
}

/// Sessions of the crowd that every run plays; a long one is asked for.
const CROWD: u64 = 300;

#[test]
fn a_crowd_is_cut_and_comes_back() {
    let most = from_environment("THROUGHLINE_CROWD").unwrap_or(CROWD);
    println!("sessions  us to open  us an event  us a call  us to come back, clients and servers included");
    let sizes = [1_000, 10_000].into_iter().filter(|size| *size < most);
    for size in sizes.chain([most]) {
        let costs = crowd::play(usize::try_from(size).expect("a size"));
        let us = |ns: u64| ns as f64 / 1_000.0;
        println!(
            "{size:>8} {:>11.1} {:>12.2} {:>10.2} {:>16.1}",
            us(costs.open),
            us(costs.event),
            us(costs.call),
            us(costs.back)
        );
    }
}

#[test]
fn one_seed() {
    let Some(seed) = from_environment("THROUGHLINE_SEED") else {
        return;
    };
    let change: Change = match from_environment("THROUGHLINE_ECHO") {
        Some(_) => Weather::echo,
        None => UNCHANGED,
    };
    let report = world_with(seed, Plant::None, change);
    println!("{}\n{}", report.weather, report.history);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

#[test]
fn a_seed_is_a_world() {
    for seed in 0..10 {
        let [one, other] = [(); 2].map(|()| world(seed, Plant::None));
        if one.fingerprint != other.fingerprint {
            let differs = one
                .history
                .lines()
                .zip(other.history.lines())
                .find(|(one, other)| one != other);
            panic!("seed {seed} gave two histories, which part at {differs:?}");
        }
    }
}

/// While the storm lasts, nothing is kept, or no log can be had: whatever is lost is said, and nothing turns without an end.
#[test]
fn a_store_that_fails_always() {
    let ways: [(&str, Change); 3] = [
        ("keeps nothing", |weather| weather.store.appends = 1_000),
        ("opens nothing", |weather| weather.store.opens = 1_000),
        ("forgets half", |weather| weather.store.forgets = 500),
    ];
    for (what, change) in ways {
        for seed in 0..STORES {
            let report = world_with(seed, Plant::None, change);
            assert!(
                report.violations.is_empty(),
                "a store that {what}, seed {seed}: {:#?}",
                report.violations
            );
        }
    }
}

/// A server's word that comes again on a new stream, and a stream of which nothing comes, cost nobody anything in silence.
#[test]
fn servers_that_say_things_again() {
    let count = from_environment("THROUGHLINE_SEEDS").unwrap_or(ECHOES);
    let first = from_environment("THROUGHLINE_FIRST").unwrap_or(0);
    play_with(first..first + count, Weather::echo, "THROUGHLINE_ECHO=1 ");
}

#[test]
fn every_planted_fault_is_found() {
    for plant in Plant::ALL {
        let found = (0..FOUND_WITHIN).find(|seed| !world(*seed, plant).violations.is_empty());
        println!("{plant:?}: found by seed {found:?}");
        assert!(
            found.is_some(),
            "{plant:?} was not found within {FOUND_WITHIN} seeds"
        );
    }
}
