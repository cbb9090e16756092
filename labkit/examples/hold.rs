//! Brings a small lab up, prints its name, and holds it until it is interrupted or killed.

use labkit::lab::clean_up_on_interrupt;
use labkit::{Lab, Topology};

fn main() -> anyhow::Result<()> {
    let topology = Topology::build("hold", |t| {
        t.node("a").address("eth0", "2001:db8::1/64");
        t.node("b").address("eth0", "2001:db8::2/64");
        t.link("a:eth0", "b:eth0", 1500);
    })?;
    clean_up_on_interrupt()?;
    let lab = Lab::up(&topology)?;
    let a = lab.node("a")?;
    let mut command = a.command("sleep");
    command.arg("100000");
    a.spawn_command("sleeper", command)?;
    println!("{}", lab.name());
    loop {
        std::thread::park();
    }
}
