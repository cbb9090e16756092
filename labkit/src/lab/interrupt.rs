//! Takes the process's labs down when it is interrupted.

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use super::Inner;
use crate::error::{Error, Result};

/// Labs of this process that may be up.
static LABS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

pub(super) fn register(lab: &Arc<Inner>) {
    let mut labs = LABS.lock().unwrap_or_else(PoisonError::into_inner);
    labs.retain(|lab| lab.strong_count() > 0);
    labs.push(Arc::downgrade(lab));
}

/// From now on Ctrl-C and SIGTERM take down all labs of this process, those to be kept included, and end it with status
/// 128 + the signal's number. For `main` functions; calling it again does nothing.
pub fn clean_up_on_interrupt() -> Result<()> {
    static INSTALLED: Once = Once::new();
    let mut result = Ok(());
    INSTALLED.call_once(|| result = install());
    result
}

fn install() -> Result<()> {
    let failed = |e: std::io::Error| Error::system("watch for", "Ctrl-C and SIGTERM", e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    thread::Builder::new()
        .name("labkit interrupt".into())
        .spawn(move || {
            let status = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => 130,
                    _ = terminate.recv() => 143,
                }
            });
            let labs: Vec<_> = LABS.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
            for lab in labs.iter().filter_map(Weak::upgrade) {
                if let Err(error) = lab.take_down() {
                    tracing::error!(lab = lab.record.lab, %error, "lab could not be removed; try: labkit clean");
                }
            }
            std::process::exit(status);
        })
        .map_err(failed)?;
    Ok(())
}
