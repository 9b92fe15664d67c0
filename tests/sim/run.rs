//! One world from one seed, from its beginning to the verdict.
//! Law: the same seed gives the same world, to the last line of its history.
//! Next: `../sim.rs`.

use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::Site;
use crate::chance::Chance;
use crate::client::{Calm, Person, Streets};
use crate::clock::pass;
use crate::elder::Elder;
use crate::fleet::Fleet;
use crate::modern::Modern;
use crate::oracle::{Oracle, Tally};
use crate::plant::Plant;
use crate::weather::{Struck, Weather};
use crate::wires::Wires;

/// Once nothing goes wrong any more, every client is done by then.
const ENDS_WITHIN: Duration = Duration::from_secs(6 * 60 * 60);

/// What became of a world.
pub(crate) struct Report {
    pub(crate) violations: Vec<String>,
    pub(crate) tally: Tally,
    pub(crate) history: String,
    pub(crate) fingerprint: u64,
    pub(crate) weather: String,
}

thread_local! {
    /// What panicked on this thread since the world began: a runtime swallows what becomes of a task.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on a panic is remembered by its thread.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            PANICS.with_borrow_mut(|panics| panics.push(what.to_string()));
            before(what);
        }));
    });
}

/// What is other than the seed has it.
pub(crate) type Change = fn(&mut Weather);

/// Plays one world. Real time passes only as it is computed.
pub(crate) fn world(seed: u64, plant: Plant) -> Report {
    world_with(seed, plant, |_| {})
}

/// The same, with another weather than the seed's own.
pub(crate) fn world_with(seed: u64, plant: Plant, change: Change) -> Report {
    remember_panics();
    PANICS.take();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(play(seed, plant, change))
}

async fn play(seed: u64, plant: Plant, change: Change) -> Report {
    let chance = Chance::new(seed);
    let mut weather = Weather::draw(&mut chance.fork("weather"));
    change(&mut weather);
    let oracle = Arc::new(Oracle::new());
    let net = Arc::new(Wires::new(chance.fork("wires"), weather.temper));
    let site = Site::open(
        (&net, &oracle),
        weather.backend,
        (weather.replicas, weather.proxies),
        chance.fork("site"),
    );
    tokio::task::yield_now().await;
    let calm = Arc::new(Calm::default());
    let fleet = Fleet::open((&net, &oracle, &calm), (&weather, plant), chance.fork("fleet"));
    tokio::task::yield_now().await;
    let streets = Streets {
        net: Arc::clone(&net),
        site: Arc::clone(&site),
        oracle: Arc::clone(&oracle),
        calm,
        loot: Arc::default(),
        ways: weather.client,
        proxies: weather.proxies,
        papers: weather.backend.papers,
        listening: weather.backend.listening,
        plant,
        wake: Arc::default(),
    };
    let mut people = JoinSet::new();
    for nth in 0..weather.clients {
        let label = format!("c{nth}");
        let own = chance.fork(&label);
        people.spawn(Person::live(streets.clone(), label, own));
    }
    for nth in 0..weather.moderns {
        let label = format!("m{nth}");
        let own = chance.fork(&label);
        people.spawn(Modern::live(streets.clone(), label, own));
    }
    for nth in 0..weather.elders {
        let label = format!("e{nth}");
        let own = chance.fork(&label);
        people.spawn(Elder::live(streets.clone(), label, own));
    }
    let struck = Struck {
        net: &net,
        site: &site,
        fleet: &fleet,
        oracle: &oracle,
    };
    weather.storm(&struck, chance.fork("storm")).await;
    streets.calm.comes();
    let all = async { while people.join_next().await.is_some() {} };
    if timeout(ENDS_WITHIN, all).await.is_err() {
        oracle.violated(format!("{} clients wait for ever", people.len()));
        people.shutdown().await;
    }
    oracle.judge();
    site.hush();
    // What only idle time brings to light: sessions expire after half an hour.
    if plant != Plant::KeepsWhatIsOver {
        pass(Duration::from_secs(45 * 60)).await;
    }
    fleet.judge();
    for panic in PANICS.take() {
        oracle.violated(panic);
    }
    Report {
        violations: oracle.violations(),
        tally: oracle.tally(),
        history: oracle.history(),
        fingerprint: oracle.fingerprint(),
        weather: format!("{weather:?}"),
    }
}
