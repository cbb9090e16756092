//! Expectations on a capture: a frame comes in time, or never comes, and if not, what came instead.
//!
//! An expectation looks at every frame since the last one that an expectation matched, so a frame that arrives
//! between the injection and the call is not missed. [`Capture::forget`] skips what is there.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::capture::{Capture, Frame};
use crate::error::Error;
use crate::packet::matcher::{Matcher, Seen};

/// How long an expectation waits unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Frames shown in an error.
const SHOWN: usize = 4;

/// An expectation that was not met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectError {
    /// Too few frames matched.
    #[error("expect on {capture}: {wanted}: {found} of {count} within {within:?}; {others}")]
    NotSeen {
        /// Namespace and interface.
        capture: String,
        /// The matcher in words.
        wanted: String,
        /// Frames that matched.
        found: usize,
        /// Frames that had to match.
        count: usize,
        /// How long was waited.
        within: Duration,
        /// What did not fit of the last other frames, and those frames decoded.
        others: String,
    },
    /// A frame matched that must not come.
    #[error("expect on {capture}: never {unwanted}: frame {number} is one:\n{decoded}")]
    Seen {
        /// Namespace and interface.
        capture: String,
        /// The matcher in words.
        unwanted: String,
        /// Its number in the capture.
        number: u64,
        /// The frame, decoded.
        decoded: String,
    },
    /// Nothing can be said, since frames were lost before anyone looked at them.
    #[error(
        "expect on {capture}: never {unwanted}: cannot tell, {lost} frames were lost unseen (capture fewer, or keep more)"
    )]
    Lost {
        /// Namespace and interface.
        capture: String,
        /// The matcher in words.
        unwanted: String,
        /// How many.
        lost: u64,
    },
    /// The capture itself failed.
    #[error(transparent)]
    Capture(#[from] Error),
}

/// An expectation under construction.
#[derive(Debug, Clone, Copy)]
#[must_use = "an expectation is checked by `packet`, `packets` or `never`"]
pub struct Expectation<'a> {
    capture: &'a Capture,
    within: Duration,
}

/// Starts an expectation on a capture; it waits five seconds unless [`Expectation::within`] says otherwise.
pub fn expect(capture: &Capture) -> Expectation<'_> {
    Expectation { capture, within: PATIENCE }
}

impl Expectation<'_> {
    /// How long to wait; for [`Expectation::never`], how long to watch.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// A frame that matches comes in time; it is returned, and later expectations look only at what follows it.
    pub fn packet(self, matcher: Matcher) -> Result<Arc<Frame>, ExpectError> {
        self.find(1, &matcher).map(|mut frames| frames.swap_remove(0))
    }

    /// `count` frames that match come in time.
    pub fn packets(self, count: usize, matcher: Matcher) -> Result<Vec<Arc<Frame>>, ExpectError> {
        self.find(count, &matcher)
    }

    /// No frame that matches comes, from the last match until the time is over. Frames lost unseen are an error.
    pub fn never(self, matcher: Matcher) -> Result<(), ExpectError> {
        let (capture, start) = (self.capture, self.capture.cursor());
        let deadline = Instant::now() + self.within;
        let mut next = start;
        loop {
            let more = capture.wait_for(next, deadline);
            if !more {
                // What came until now may still wait in the socket.
                capture.read_waiting()?;
            }
            for frame in capture.tap().since(next) {
                next = frame.number + 1;
                if matcher.check(&Seen::new(&frame.bytes)).is_ok() {
                    return Err(ExpectError::Seen {
                        capture: capture.name().into(),
                        unwanted: matcher.to_string(),
                        number: frame.number,
                        decoded: frame.layers().to_string(),
                    });
                }
            }
            if !more || Instant::now() >= deadline {
                break;
            }
        }
        match capture.tap().lost_since(start) {
            0 => {
                capture.set_cursor(next);
                Ok(())
            }
            lost => {
                Err(ExpectError::Lost { capture: capture.name().into(), unwanted: matcher.to_string(), lost })
            }
        }
    }

    fn find(self, count: usize, matcher: &Matcher) -> Result<Vec<Arc<Frame>>, ExpectError> {
        let (capture, start) = (self.capture, self.capture.cursor());
        let deadline = Instant::now() + self.within;
        let (mut next, mut found, mut others) = (start, Vec::new(), Vec::new());
        loop {
            let more = capture.wait_for(next, deadline);
            if !more {
                capture.read_waiting()?;
            }
            for frame in capture.tap().since(next) {
                if found.len() == count {
                    break;
                }
                next = frame.number + 1;
                match matcher.check(&Seen::new(&frame.bytes)) {
                    Ok(()) => found.push(frame),
                    Err(why) => others.push((frame, why)),
                }
            }
            if found.len() == count {
                capture.set_cursor(next);
                return Ok(found);
            }
            if !more {
                break;
            }
        }
        Err(ExpectError::NotSeen {
            capture: capture.name().into(),
            wanted: matcher.to_string(),
            found: found.len(),
            count,
            within: self.within,
            others: describe(&others, capture.tap().lost_since(start)),
        })
    }
}

/// The last mismatches, newest first, and how many more there were.
fn describe(others: &[(Arc<Frame>, String)], lost: u64) -> String {
    let mut text = match others.last() {
        None => "no other frame came".to_owned(),
        Some((_, why)) => format!("last mismatch: {why}"),
    };
    if lost > 0 {
        let _ = write!(text, " ({lost} frames were lost unseen)");
    }
    for (frame, why) in others.iter().rev().take(SHOWN) {
        let _ = write!(text, "\nframe {}: {why}\n{}", frame.number, frame.layers());
    }
    if others.len() > SHOWN {
        let _ = write!(text, "\nand {} frames before these", others.len() - SHOWN);
    }
    text
}
