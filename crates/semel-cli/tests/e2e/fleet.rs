//! Real services from the outside: proven, a ledger carried to them and back, cut off in the middle of a run, and crowded.

use std::time::{Duration, Instant};

use semel::store::Settings;
use semel_testkit::{Etcd, Moto, NatsVersion, PgServer, Proxy, Redis, nats};

use crate::support::{Home, Running, SOON, Said, until, until_gone};

/// A service, for as long as it is needed, and the address of a ledger in it.
struct Service {
    name: &'static str,
    url: String,
    variables: Vec<(&'static str, &'static str)>,
    _server: Box<dyn std::any::Any>,
}

fn service<S: 'static>(name: &'static str, server: S, url: String) -> Service {
    Service { name, url, variables: Vec::new(), _server: Box::new(server) }
}

/// One of each kind, started when it is its turn.
fn services() -> impl Iterator<Item = Service> {
    let starts: [fn() -> Service; 5] = [
        || {
            let server = PgServer::start();
            let url = server.url();
            service("postgres", server, url)
        },
        || {
            let server = Redis::start();
            let url = server.url();
            service("redis", server, url)
        },
        || {
            let server = Etcd::start();
            let url = server.url("p");
            service("etcd", server, url)
        },
        || {
            let server = nats(NatsVersion::Recent, "");
            let url = format!("nats://{}/ledger", server.address(0));
            service("nats", server, url)
        },
        || {
            let server = Moto::start();
            let url = server.url("ledger");
            Service { variables: Moto::VARIABLES.to_vec(), ..service("s3", server, url) }
        },
    ];
    starts.into_iter().map(|start| start())
}

impl Service {
    fn ask(&self, home: &Home, args: &[&str]) -> Said {
        let mut command = home.semel(args);
        command.env("SEMEL_STORE", &self.url).envs(self.variables.iter().copied());
        home.launch(&mut command).end_within(Duration::from_secs(120))
    }
}

fn once(job: &str) -> [&str; 8] {
    ["run", "--job", job, "--once", "--", "sh", "-c", "echo x >> effects"]
}

#[test]
fn doctor_proves_every_service() {
    let home = Home::new();
    for service in services() {
        let said = service.ask(&home, &["doctor"]);
        let text = said.text();
        let proven = text.contains("200 conditional writes, none was lost")
            && text.contains("a short lease lapsed by the store's clock")
            && text.contains("a durable commit takes");
        assert!(proven, "{}: {text} {}", service.name, said.err);
        // what it says of itself comes before that
        assert!(text.lines().count() > 8, "{}: {text}", service.name);
        assert!(!text.contains('✗'), "{}: {text}", service.name);
        said.exits(0);
    }
}

#[test]
fn a_ledger_is_carried_to_every_service_and_back() {
    let home = Home::new();
    let from = format!("sqlite:{}", home.path("l.db").display());
    for job in ["a", "b", "c"] {
        home.launch(home.semel(once(job)).env("SEMEL_STORE", &from)).end().exits(0);
    }
    for service in services() {
        let name = service.name;
        let there = service.ask(&home, &["store", "copy", &from, &service.url, "--json"]).exits(0).json();
        for job in ["a", "b", "c"] {
            service.ask(&home, &once(job)).exits(0);
        }
        assert_eq!(home.lines("effects").len(), 3, "{name}: nothing ran again");
        // skips are noted in the journal there: the way back carries those too
        let back = format!("sqlite:{}", home.path(&format!("{name}.db")).display());
        let here = service.ask(&home, &["store", "copy", &service.url, &back, "--json"]).exits(0).json();
        assert!(here["compared"].as_u64() >= there["compared"].as_u64(), "{name}: {there} {here}");
        for job in ["a", "b", "c"] {
            home.launch(home.semel(once(job)).env("SEMEL_STORE", &back)).end().exits(0);
        }
        assert_eq!(home.lines("effects").len(), 3, "{name}: nothing ran again");
    }
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    let home = Home::new();
    let from = format!("sqlite:{}", home.path("l.db").display());
    let items: String = (0..700).map(|i| format!("{{\"id\":{i}}}\n")).collect();
    home.write("items", items);
    let batch = ["batch", "items", "--job", "many", "--key", "id", "-j", "8", "--", "true"];
    home.launch(home.semel(batch).env("SEMEL_STORE", &from)).end_within(Duration::from_secs(300)).exits(0);
    let server = Redis::start();
    let proxy = Proxy::before(server.address());
    let slow = format!("redis://{}", proxy.address());
    let carried = || {
        let many = server.ask("ZLEXCOUNT {semel}:i [item/ [item0");
        many.trim_start_matches(':').parse::<u64>().unwrap()
    };
    // slow enough to be met in the middle
    proxy.delay(Duration::from_millis(30));
    for _ in 0..3 {
        let before = carried();
        let mut copying = home.launch(&mut home.semel(["store", "copy", &from, &slow]));
        until("some of it was carried", SOON, || copying.has_ended() || carried() > before);
        copying.kill_9();
        assert!(carried() < 700, "it was done before it could be killed");
    }
    proxy.pass();
    let direct = server.url();
    let copied =
        home.launch(&mut home.semel(["store", "copy", &from, &direct, "--json"])).end().exits(0).json();
    let (written, there) = (copied["written"].as_u64().unwrap(), copied["there"].as_u64().unwrap());
    assert!(there > 0 && written + there >= 700, "{copied}");
    // all of them are done there, and done is done
    let again = ["batch", "items", "--job", "many", "--key", "id", "--", "sh", "-c", "echo x >> effects"];
    home.launch(home.semel(again).env("SEMEL_STORE", &direct)).end_within(Duration::from_secs(120)).exits(0);
    assert_eq!(home.lines("effects").len(), 0);
    // nothing is left of the copy itself
    assert_eq!(server.ask("ZLEXCOUNT {semel}:i [copy/ [copy0"), ":0");
}

/// A run on a ledger behind a proxy, which tells its pid and goes on until a minute has passed or `go` comes.
fn behind(home: &Home, url: &str, job: &str) -> Running {
    let script = format!(
        "echo $$ >> {job}.pids; sleep 60 & echo $! >> {job}.pids; read go < {job}.go; kill $!; echo x >> {job}.done"
    );
    let args = ["run", "--job", job, "--once", "--ttl", "9s", "--", "sh", "-c", &script];
    home.launch(home.semel(args).env("SEMEL_STORE", url))
}

fn cut_off(direct: &str, proxied: &str, proxy: &Proxy) {
    let home = Home::new();
    let left_ms = |job: &str| {
        let args = ["lease", "show", job, "--json"];
        home.launch(home.semel(args).env("SEMEL_STORE", direct)).end().json()["left_ms"].as_u64()
    };
    // a short cut: connections break, none can be made for a while, and the run goes on
    let mut gate = home.gate("short.go");
    let running = behind(&home, proxied, "short");
    home.wait_lines("short.pids", 2);
    proxy.cut();
    std::thread::sleep(Duration::from_secs(2));
    proxy.pass();
    // its lease is renewed again
    until("it is renewed", SOON, || left_ms("short").is_some_and(|left| left > 7_000));
    gate.open(1);
    running.end().exits(0);
    assert_eq!(home.lines("short.done").len(), 1);

    // a long one: it is stopped, with its tree, before anybody else could have its lease
    let _gate = home.gate("long.go");
    let running = behind(&home, proxied, "long");
    home.wait_lines("long.pids", 2);
    let pids = home.numbers("long.pids");
    proxy.cut();
    let left = left_ms("long").expect("it is held");
    let lapses = Instant::now() + Duration::from_millis(left);
    until_gone(&pids, SOON);
    assert!(Instant::now() < lapses, "its tree outlived its lease");
    running.end().exits(75);
    assert_eq!(home.lines("long.done").len(), 0);
    proxy.pass();
}

#[test]
fn a_run_survives_a_short_cut_and_a_long_one_ends_it_in_time_on_postgres() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    cut_off(&server.url(), &server.url_at(proxy.port()), &proxy);
}

#[test]
fn a_run_survives_a_short_cut_and_a_long_one_ends_it_in_time_on_redis() {
    let server = Redis::start();
    let proxy = Proxy::before(server.address());
    cut_off(&server.url(), &format!("redis://{}", proxy.address()), &proxy);
}

impl Service {
    /// How many notes its journal has.
    fn notes(&self) -> usize {
        let variables = self.variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings { variables: variables.collect(), ..Settings::default() };
        let store = semel::store::open(&self.url, &settings).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store.scan("journal/", None, 1000)).unwrap().len()
    }
}

#[test]
fn every_skip_is_noted_although_its_process_does_not_wait_for_the_answer() {
    let home = Home::new();
    for service in services() {
        let job = format!("of-{}", service.name);
        service.ask(&home, &once(&job)).exits(0);
        for _ in 0..12 {
            service.ask(&home, &once(&job)).exits(0);
        }
        let at_once: Vec<Running> = (0..12)
            .map(|_| {
                let mut command = home.semel(once(&job));
                command.env("SEMEL_STORE", &service.url).envs(service.variables.iter().copied());
                home.launch(&mut command)
            })
            .collect();
        for skips in at_once {
            skips.end_within(Duration::from_secs(120)).exits(0);
        }
        let begun = Instant::now();
        while service.notes() < 24 && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(service.notes(), 24, "{}", service.name);
    }
    assert_eq!(home.lines("effects").len(), 5, "each ran once");
}

/// So many processes wait for one resource; `SEMEL_ROUNDS` says another number.
const CROWD: u64 = 40;

#[test]
fn a_crowd_of_processes_on_one_postgres_is_served_within_its_wait() {
    let crowd = usize::try_from(semel_testkit::rounds(CROWD)).unwrap();
    let server = PgServer::start_with(&["max_connections=500"]);
    let home = Home::new();
    let (url, begun) = (server.url(), Instant::now());
    let start = |i: usize| {
        let (job, script) = (format!("job-{i}"), "echo $SEMEL_TOKEN >> effects");
        let args = ["run", "--job", &job, "--once", "--resource", "hot", "--if-busy", "wait=280s", "--"];
        let mut command = home.semel(args);
        command.args(["sh", "-c", script]).env("SEMEL_STORE", &url);
        home.launch(&mut command)
    };
    let connections = || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'";
        server.psql(sql).parse::<usize>().unwrap()
    };
    let mut running: Vec<Running> = Vec::new();
    let mut most = 0;
    while running.len() < crowd || running.iter_mut().any(|run| !run.has_ended()) {
        let now = connections();
        most = most.max(now);
        // one machine plays many: no more than some of them are on their way to the server at once
        let ended = running.iter_mut().map(|run| usize::from(run.has_ended())).sum::<usize>();
        let more = (ended + now.max(1) + 20).min(crowd);
        running.extend((running.len()..more.max(running.len())).map(start));
        assert!(begun.elapsed() < Duration::from_secs(400), "some wait for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = begun.elapsed();
    for run in running {
        run.end().exits(0);
    }
    let mut tokens = home.numbers("effects");
    assert_eq!(tokens.len(), crowd, "each had its effect");
    assert!(tokens.is_sorted(), "and in the order of their tokens: {tokens:?}");
    tokens.dedup();
    assert_eq!(tokens.len(), crowd, "each had a token of its own");
    println!("{crowd} processes on one resource: {took:?}, at most {most} connections");
    assert!(most <= 2 * crowd, "{most} connections of {crowd} processes");
}
