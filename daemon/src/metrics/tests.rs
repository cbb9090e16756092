//! Scrapes of made-up figures, as text and over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use super::{Format, Scrape, Sources, bind, serve, text};
use crate::inspect::fixture::{image, status};
use crate::inspect::{self, Counters, Image};
use crate::status::{NodeStatus, NotReady};

struct Fake(Option<Image>);

impl Counters for Fake {
    fn image(&self) -> Result<Image, inspect::Error> {
        self.0.clone().ok_or(inspect::Error::NoMaps { pins: "/none".into() })
    }
}

fn scrape() -> Scrape {
    let heartbeat_age = Some(Duration::from_millis(1500));
    Scrape { status: Arc::new(status()), image: Some(image()), heartbeat_age }
}

#[test]
fn prometheus_text() {
    insta::assert_snapshot!(text(scrape(), Format::Prometheus).unwrap());
}

#[test]
fn openmetrics_text_has_the_same_series_and_an_end() {
    let series = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(Into::into).collect()
    };
    let open = text(scrape(), Format::OpenMetrics).unwrap();
    assert_eq!(series(&open), series(&text(scrape(), Format::Prometheus).unwrap()));
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn no_series_comes_twice() {
    let mut scrape = scrape();
    let status = Arc::make_mut(&mut scrape.status);
    let reason = NotReady { id: "interface".into(), text: "eth1".into(), remedy: String::new() };
    status.reasons = vec![reason.clone(), NotReady { text: "eth2".into(), ..reason }];
    let text = text(scrape, Format::Prometheus).unwrap();
    let mut series: Vec<&str> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.rsplit_once(' '))
        .map(|l| l.0)
        .collect();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), all, "{text}");
    assert!(series.contains(&"weir_not_ready_reason{reason=\"interface\"}"), "{text}");
}

/// Serves and asks over TCP; gives the answer's status line, content type and body.
async fn get(sources: &Sources, path: &str, accept: &str) -> (String, String, String) {
    let listener = bind("[::1]:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, sources.clone(), std::future::pending()));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    server.abort();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    (head.lines().next().unwrap().into(), kind.into(), body.into())
}

fn sources(status: NodeStatus, image: Option<Image>) -> Sources {
    let now = Instant::now();
    let (counters, heartbeat) = (Arc::new(Fake(image)), Arc::new(move || Some(now)));
    Sources { status: watch::channel(Arc::new(status)).1, counters, heartbeat }
}

#[tokio::test]
async fn ready_is_200_and_not_ready_is_503_with_its_reasons() {
    let ready = NodeStatus { ready: true, reasons: Vec::new(), ..status() };
    let (line, _, body) = get(&sources(ready, None), "/readyz", "*/*").await;
    assert_eq!((line.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ready\n"));
    let (line, _, body) = get(&sources(status(), None), "/readyz", "*/*").await;
    assert_eq!(line, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(body, "not ready\nforwarding: eth2 does not forward; set net.ipv6.conf.eth2.forwarding=1\n");
    let (line, _, body) = get(&sources(status(), None), "/healthz", "*/*").await;
    assert_eq!((line.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
}

#[tokio::test]
async fn a_scrape_reads_the_counters_and_answers_in_the_form_asked_for() {
    let sources = sources(status(), Some(image()));
    let (line, kind, body) = get(&sources, "/metrics", "text/plain").await;
    assert_eq!((line.as_str(), kind.as_str()), ("HTTP/1.1 200 OK", Format::Prometheus.content_type()));
    assert!(body.contains("weir_maps_readable 1\n") && body.contains("weir_vip_packets_total{"), "{body}");
    assert!(body.contains("weir_heartbeat_age_seconds 0."), "{body}");
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let (_, kind, body) = get(&sources, "/metrics", accept).await;
    assert_eq!(kind, Format::OpenMetrics.content_type());
    assert!(body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn unreadable_maps_are_a_figure_and_hide_no_other() {
    let (line, _, body) = get(&sources(status(), None), "/metrics", "*/*").await;
    assert_eq!(line, "HTTP/1.1 200 OK");
    assert!(body.contains("weir_maps_readable 0\n") && body.contains("weir_ready 0\n"), "{body}");
    assert!(!body.contains("weir_vip_packets"), "{body}");
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = bind("[::1]:0".parse().unwrap()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("set `metrics`"), "{error}");
}
