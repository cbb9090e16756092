/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The C half of the layout in bpf/src/worker_abi.rs. A test compares both through BTF: change them together. */
#pragma once
#include <linux/types.h>

#define WORKER_LAYOUT_VERSION 1
#define SLOT_WORKER 2
#define W_GATEWAYS 32
#define W_ENCAP_LEN 40
#define W_NAME_LEN 128
#define W_INTERFACE_LEN 16
/* In a frame's metadata: "the worker took this packet out of its outer header". */
#define W_MARK 0x57e17001
/* `pad` of the key in `w_sids` that says "this SID is ours", in the packet's byte order. */
#define W_OWN_SID 1
/* Value in `w_sources`: the endpoint's own address, not a VIP. */
#define W_OWN_ADDRESS 0xffffffff

struct w_sid_key {
	__u8 vip[16];
	__u8 sid[2];
	__u8 pad[2];
};
struct w_source_key {
	__u8 addr[16];
	__u32 endpoint;
};
struct w_port_key {
	__u32 endpoint;
	__u8 port[2];
	__u8 proto;
	__u8 family;
};
struct w_binding {
	__u8 vip[16];
	__u8 backend[16];
	__u32 endpoint;
	__u8 sid[2];
	__u8 flags;
	__u8 pad;
};
struct w_endpoint {
	__u8 next_hop[16];
	__u32 ifindex;
	__u32 kind;
};
struct w_mark {
	__u32 mark;
	__u32 endpoint;
};
struct w_prefix {
	__u64 hi;
	__u64 mask;
};
struct w_params {
	struct w_prefix gateways[W_GATEWAYS];
	__u8 reply_sid[16];
	__u32 reply;
	__u32 fabric_ifindex;
	__u32 fabric_mtu;
	__u32 to_pod_max;
	__u32 from_pod_max;
	__u32 icmp_rate;
};
struct w_counter {
	__u64 packets;
	__u64 bytes;
};
struct w_bucket {
	__u64 last_ns;
	__u64 tokens;
};
struct w_meta {
	__u8 vpc[W_NAME_LEN];
	__u8 attachment[W_NAME_LEN];
	__u8 netns[W_NAME_LEN];
	__u8 interface[W_INTERFACE_LEN];
	__u8 vip[16];
	__u8 backend[16];
	__u8 sid[2];
	__u8 used;
	__u8 placed;
	__u32 endpoint;
};
struct w_config {
	__u8 source[16];
	__u64 locator_hi;
	__u64 build;
};
enum w_kind { W_KIND_VETH = 0, W_KIND_TAP = 1 };
enum w_reply { W_REPLY_DIRECT = 0, W_REPLY_EDGE = 1 };
enum w_flag { W_FLAG_NONE = 0, W_FLAG_TRANSLATE = 1 };
enum w_reason {
	WR_DECAPSULATED = 0,
	WR_NOT_IP,
	WR_NOT_FOR_HOST,
	WR_MALFORMED,
	WR_NOT_SID,
	WR_UNKNOWN_SID,
	WR_FOREIGN_SOURCE,
	WR_ROUTING_HEADER,
	WR_NOT_ENCAPSULATED,
	WR_TRUNCATED,
	WR_BAD_INNER,
	WR_MAPPED_ADDRESS,
	WR_NOT_BOUND,
	WR_CONGESTION,
	WR_NO_ENDPOINT,
	WR_NO_METADATA,
	WR_UNTRANSLATABLE,
	WR_DELIVERED,
	WR_REPLY_DIRECT,
	WR_REPLY_EDGE,
	WR_REPLY_OWN,
	WR_REPLY_LOCAL,
	WR_REPLY_NOT_IP,
	WR_REPLY_TRUNCATED,
	WR_SPOOFED_SOURCE,
	WR_INTO_BLOCK,
	WR_PACKET_TOO_BIG,
	WR_FRAGMENTATION_NEEDED,
	WR_TOO_BIG_SILENT,
	WR_RATE_LIMITED,
	WR_INTERNAL,
	WR_COUNT
};
