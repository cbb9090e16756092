//! Workers that run `weir worker`: their topology, objects and process.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use labkit::NodeHandle;
use labkit::process::ProcessHandle;
use labkit::topology::{Process, TopologyBuilder};
use labkit::wait::eventually;
use weir::worker::maps::{self, Maps};
use weir::worker::status::WorkerStatus;
use weir_bpf::worker_abi::Reason;

use super::{A, Live, Objects, PORT, Region, SOON, TENANTS, Tenant, endpoint, weir_binary};

/// Who takes packets out of their outer headers on the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerKind {
    /// The kernel's `End.DT6`, with addresses placed by the lab.
    #[default]
    Kernel,
    /// `weir worker`; replies go by the worker's own routes. Each worker has a second pod of tenant A, with a SID of its own.
    Direct,
    /// The same, and replies go over the first gateway.
    Edge,
}

impl Region {
    /// Node name of the second pod of tenant A on a worker.
    pub fn second_pod(&self, worker: u16) -> String {
        self.name(&format!("w{worker}-a2"))
    }
    /// Its private address.
    pub fn second_address(&self, worker: u16) -> String {
        format!("fd00:10::2:{worker:x}")
    }
    /// Its SID: function 0xD, decapsulate and cross-connect.
    pub fn second_sid(&self, worker: u16) -> String {
        format!("2001:db8:ff0{}:{:x}:d003::", self.number, 0x10 + worker)
    }
    /// SID at which a gateway takes replies.
    pub fn reply_sid(&self, gateway: u16) -> String {
        format!("2001:db8:ff0{}:{gateway:x}:c000::", self.number)
    }

    /// A worker whose packets `weir worker` takes: no SRv6 in the kernel, no VIP placed, no filter.
    pub(super) fn weir_worker(&self, t: &mut TopologyBuilder, n: u16) {
        let (spine, worker, net) = (self.name("spine"), self.name(&format!("w{n}")), self.net("3", n));
        let port = format!("eth{}", 10 + n);
        t.node(&spine)
            .address(&port, &format!("{net}:1/64"))
            .route(&format!("{} via {net}:2", self.worker_locator(n)));
        t.link(&format!("{spine}:{port}"), &format!("{worker}:eth0"), self.fabric_mtu).own_xdp(&worker);
        t.node(&worker)
            .forwarding()
            .address("eth0", &format!("{net}:2/64"))
            .route(&format!("default via {net}:1"))
            // What nobody takes must not go back where it came from.
            .route(&format!("unreachable {}", self.worker_locator(n)))
            .route(&format!("0.0.0.0/0 via inet6 {net}:1 dev eth0"));
        let mut pods: Vec<(String, String, String)> = TENANTS
            .iter()
            .map(|tenant| (tenant.letter.to_string(), self.pod(n, *tenant), self.pod_address(n)))
            .collect();
        pods.push(("a2".into(), self.second_pod(n), self.second_address(n)));
        for (name, pod, address) in pods {
            t.node(&worker).address(&format!("pod-{name}"), "fe80::1/64");
            t.node(&pod)
                .address("eth0", "fe80::2/64")
                .address("eth0", &format!("{address}/128"))
                .route("default via fe80::1 dev eth0");
            t.link(&format!("{worker}:pod-{name}"), &format!("{pod}:eth0"), 1500);
        }
    }

    fn worker_config(&self, n: u16, directory: &Path, pins: &Path) -> String {
        let gateways: Vec<String> =
            (1..=self.gateways).map(|g| format!("\"{}\"", self.gateway_locator(g))).collect();
        let reply = match self.worker_kind {
            WorkerKind::Edge => format!("replyPath: edge\nreplySID: \"{}\"\n", self.reply_sid(1)),
            WorkerKind::Direct | WorkerKind::Kernel => String::new(),
        };
        let dir = directory.display();
        format!(
            "node: w{n}\nregion: {}\nlocator: {{ prefix: \"{}\", nodeID: {} }}\nfabric: [eth0]\ngateways: [{}]\nobjects: {dir}/objects.d\n\
             pins: {}\nstatus: {dir}/worker.json\nlimits: {{ bindings: 64, endpoints: 16 }}\n{reply}",
            self.region(),
            self.block(),
            0x10 + n,
            gateways.join(", "),
            pins.display(),
        )
    }
}

/// A pod that a VIP is bound to.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Worker it is on.
    pub worker: u16,
    /// End of its interface's name, after `pod-`.
    pub name: String,
    /// Its private address.
    pub address: String,
    /// Its VPC.
    pub vpc: String,
    /// Its network namespace.
    pub netns: PathBuf,
}

impl Pod {
    /// A `ServiceVIPBinding` of a VIP to it: a file's text.
    pub fn binding(&self, name: &str, vip: &str, protocol: &str) -> String {
        let Self { worker, name: pod, address, vpc, netns } = self;
        format!(
            "apiVersion: network.datumapis.com/v1alpha1\nkind: ServiceVIPBinding\nmetadata:\n  namespace: platform\n  name: \
             {name}\nspec:\n  targetRef: {{ kind: Node, name: w{worker} }}\n  vipAddress: \"{vip}\"\n  port: {PORT}\n  protocol: \
             {protocol}\n  backendAddress: \"{address}\"\n  backendPort: {PORT}\n  egressKind: veth\n  vpcRef: {vpc}\n  interface: \
             pod-{pod}\n  networkNamespace: {}\n",
            netns.display()
        )
    }
}

/// The `VPCEndpoint` of a worker's second pod of tenant A.
pub fn second_endpoint(region: &Region, worker: u16) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata:\n  namespace: platform\n  name: a2-w{worker}\n\
         spec:\n  vpcRef: {}\n  vpcAttachmentRef: default\n  address: \"{}\"\n  nodeName: w{worker}\n  sid: \"{}\"\n",
        A.vpc(),
        region.second_address(worker),
        region.second_sid(worker),
    )
}

impl Live {
    /// A worker's node.
    ///
    /// # Errors
    /// When there is none.
    pub fn worker(&self, n: u16) -> anyhow::Result<NodeHandle> {
        self.node(&format!("w{n}"))
    }
    /// A worker's objects.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn worker_objects(&self, n: u16) -> anyhow::Result<Objects> {
        Ok(Objects::at(self.worker(n)?.dir().join("objects.d")))
    }

    /// Writes configuration and objects of a worker: its endpoints, and bindings of each tenant's VIPs to its pods.
    ///
    /// # Errors
    /// What could not be written.
    pub fn prepare_worker(&self, n: u16) -> anyhow::Result<()> {
        let node = self.worker(n)?;
        let pins = node.bpffs()?.join("weir");
        node.write_file("worker.yaml", self.region.worker_config(n, node.dir(), &pins))?;
        let objects = self.worker_objects(n)?;
        let region = &self.region;
        for tenant in TENANTS {
            objects.put(&format!("vpce-{}.yaml", tenant.letter), &endpoint(region, n, tenant))?;
            self.put_bindings(tenant, &self.pod(n, tenant)?)?;
        }
        objects.put("vpce-a2.yaml", &second_endpoint(region, n))?;
        self.put_bindings(A, &self.second(n)?)
    }

    /// A tenant's pod on a worker.
    ///
    /// # Errors
    /// When there is none.
    pub fn pod(&self, worker: u16, tenant: Tenant) -> anyhow::Result<Pod> {
        let netns = self.lab.node(&self.region.pod(worker, tenant))?.netns().path();
        let (name, address, vpc) = (tenant.letter.to_string(), self.region.pod_address(worker), tenant.vpc());
        Ok(Pod { worker, name, address, vpc, netns })
    }

    /// The second pod of tenant A on a worker.
    ///
    /// # Errors
    /// When there is none.
    pub fn second(&self, worker: u16) -> anyhow::Result<Pod> {
        let netns = self.lab.node(&self.region.second_pod(worker))?.netns().path();
        let (name, address, vpc) = ("a2".into(), self.region.second_address(worker), A.vpc());
        Ok(Pod { worker, name, address, vpc, netns })
    }

    fn put_bindings(&self, tenant: Tenant, pod: &Pod) -> anyhow::Result<()> {
        let objects = self.worker_objects(pod.worker)?;
        for protocol in ["tcp", "udp"] {
            for (family, vip) in [("6", self.region.vip(tenant)), ("4", self.region.vip4(tenant))] {
                let name = format!("{}-{protocol}{family}", pod.name);
                objects.put(&format!("bind-{name}.yaml"), &pod.binding(&name, &vip, protocol))?;
            }
        }
        Ok(())
    }

    /// Starts a worker as it is prepared.
    ///
    /// # Errors
    /// What could not be started.
    pub fn run_worker(&self, n: u16) -> anyhow::Result<ProcessHandle> {
        let process = Process {
            name: "weir-worker".into(),
            command: [&weir_binary(None)?.display().to_string(), "worker", "--config", "worker.yaml"]
                .map(Into::into)
                .into(),
            env: [("RUST_LOG".to_owned(), "info".to_owned())].into(),
            ready: None,
        };
        Ok(self.worker(n)?.spawn(&process)?)
    }

    /// The `weir` command in a worker's node, with the worker's configuration: its output.
    ///
    /// # Errors
    /// When it fails.
    pub fn weir_worker(&self, n: u16, arguments: &[&str]) -> anyhow::Result<String> {
        let binary = weir_binary(None)?.display().to_string();
        let line = std::iter::once(binary.as_str())
            .chain(arguments.iter().copied())
            .chain(["--config", "worker.yaml"]);
        Ok(self.worker(n)?.run(line)?)
    }

    /// Prepares and starts all workers, and waits until every binding is in effect.
    ///
    /// # Errors
    /// What did not come about.
    pub fn start_workers(&self) -> anyhow::Result<()> {
        for n in 1..=self.region.workers {
            self.prepare_worker(n)?;
            self.run_worker(n)?;
        }
        (1..=self.region.workers).try_for_each(|n| self.wait_worker_ready(n))
    }

    /// What a worker says of itself.
    ///
    /// # Errors
    /// When it has said nothing yet.
    pub fn worker_status(&self, n: u16) -> anyhow::Result<WorkerStatus> {
        let path = self.worker(n)?.dir().join("worker.json");
        WorkerStatus::read(&path).with_context(|| format!("read {}", path.display()))
    }

    /// Waits until a worker is ready and all its bindings are in effect.
    ///
    /// # Errors
    /// What is not in effect.
    pub fn wait_worker_ready(&self, n: u16) -> anyhow::Result<()> {
        eventually(&format!("worker {n} ready"), SOON, || {
            let status = self.worker_status(n).map_err(|e| e.to_string())?;
            let fine =
                status.ready && !status.bindings.is_empty() && status.bindings.values().all(|b| b.bound);
            if fine { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .map_err(|e| anyhow::anyhow!("{e}\n{}", self.worker_log(n)))
    }

    /// The end of a worker's log.
    pub fn worker_log(&self, n: u16) -> String {
        let process = self.worker(n).and_then(|node| Ok(node.process("weir-worker")?));
        process.map_or_else(|e| e.to_string(), |process| process.log_tail(30))
    }

    /// A worker's pinned maps.
    ///
    /// # Errors
    /// When none are pinned.
    pub fn worker_maps(&self, n: u16) -> anyhow::Result<Maps> {
        let pins = self.worker(n)?.bpffs()?.join("weir");
        let set = maps::sets(&pins)?.into_iter().next_back().context("no worker's maps are pinned")?;
        Ok(Maps::open_set(&set)?)
    }

    /// Packets that left a worker's programs for a reason.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn worker_total(&self, n: u16, reason: Reason) -> anyhow::Result<u64> {
        Ok(self.worker_maps(n)?.reason_total(reason))
    }

    /// Waits until a worker has counted this many packets more than before for a reason.
    ///
    /// # Errors
    /// What it counted instead.
    pub fn wait_worker_total(&self, n: u16, reason: Reason, wanted: u64) -> anyhow::Result<()> {
        Ok(eventually(&format!("worker {n} counts {wanted} {}", reason.name()), SOON, || {
            let now = self.worker_total(n, reason).map_err(|e| e.to_string())?;
            if now == wanted { Ok(()) } else { Err(format!("{now}; {}", self.worker_reasons(n))) }
        })?)
    }

    /// All that a worker has counted, for people.
    pub fn worker_reasons(&self, n: u16) -> String {
        let Ok(maps) = self.worker_maps(n) else { return "no maps".into() };
        let all = Reason::ALL.iter().map(|r| (r.name(), maps.reason_total(*r))).filter(|(_, n)| *n != 0);
        all.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
    }
}
