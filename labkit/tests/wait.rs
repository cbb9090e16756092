//! Each assertion over time, seen to hold and seen to fail, with the last mismatch in its message.

use std::time::Duration;

use labkit::wait::{check, eventually, eventually_async, never, never_async, steady, steady_async};

const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);

/// True from the n-th look on.
fn from_look(n: u32) -> impl FnMut() -> Result<u32, String> {
    let mut looks = 0;
    move || {
        looks += 1;
        if looks >= n { Ok(looks) } else { Err(format!("look {looks} saw nothing")) }
    }
}

#[test]
fn eventually_returns_what_it_found_or_the_last_mismatch() {
    assert_eq!(eventually("it", LONG, from_look(3)).unwrap(), 3);
    let error =
        eventually("the moon", SHORT, || check(false, || "only clouds".into())).unwrap_err().to_string();
    assert_eq!(error, "the moon: not within 60ms; last seen: only clouds");
}

#[test]
fn steady_holds_or_tells_the_first_mismatch() {
    steady("it", SHORT, || Ok::<_, String>(())).unwrap();
    let mut looks = 0;
    let error = steady("the light", LONG, || {
        looks += 1;
        check(looks < 4, || format!("dark at look {looks}"))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("hold the light: broke after") && error.ends_with("dark at look 4"), "{error}");
}

#[test]
fn never_holds_or_tells_what_happened() {
    never("rain", SHORT, || Err::<(), _>("dry")).unwrap();
    let error = never("rain", LONG, from_look(3)).unwrap_err().to_string();
    assert!(error.contains("never rain") && error.ends_with("it happened: 3"), "{error}");
}

#[tokio::test]
async fn the_async_ones_do_the_same() {
    let mut look = from_look(3);
    assert_eq!(eventually_async("it", LONG, async || look()).await.unwrap(), 3);
    let error = eventually_async("the moon", SHORT, async || check(false, || "only clouds".into())).await;
    assert_eq!(error.unwrap_err().to_string(), "the moon: not within 60ms; last seen: only clouds");
    let hangs =
        eventually_async("it", SHORT, async || std::future::pending::<Result<(), String>>().await).await;
    assert!(hangs.unwrap_err().to_string().contains("the first look did not end"));
    steady_async("it", SHORT, async || Ok::<_, String>(())).await.unwrap();
    let error = steady_async("the light", LONG, async || Err::<(), _>("dark")).await.unwrap_err().to_string();
    assert!(error.ends_with("dark"), "{error}");
    never_async("rain", SHORT, async || Err::<(), _>("dry")).await.unwrap();
    let mut look = from_look(2);
    assert!(never_async("rain", LONG, async || look()).await.is_err());
}
