/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The C half of the layout in bpf/src/abi.rs. A test compares both through BTF: change them together. */
#pragma once
#include <linux/types.h>

#ifdef WEIR_NEXT_LAYOUT
#define LAYOUT_VERSION 0xffff
#else
#define LAYOUT_VERSION 2
#endif
#define ROOT_SLOTS 8
#define SLOT_LB 0
#define SLOT_EGRESS 1
#define SLOTS_PER_BLOCK 16
#define NAME_LEN 256
#define ROLE_UPLINK 1
#define ROLE_FABRIC 2
#define ENCAP_LEN 40
#define LEARNED_ENTRIES 1024
#define MIN_FABRIC_MTU (1280 + ENCAP_LEN)
/* "weirtrac" in memory: marks the metadata of a frame that `weir trace` runs. */
#define TRACE_MAGIC 0x6361727472696577ULL
#define DROP_BYTES 128
#define EVENT_RING (256 * 1024)
#define CAPTURE_BYTES 9216
#define CAPTURE_RECEIVED 0
#define CAPTURE_SENT 1
#define CAPTURE_ENDED 2

struct vip_key {
	__u8 addr[16];
	__u8 port[2];
	__u8 proto;
	__u8 pad;
};
struct sid {
	__u8 bytes[16];
};
struct ring_block {
	__u32 slot[SLOTS_PER_BLOCK];
} __attribute__((aligned(64)));
struct backend {
	__u8 sid[16];
	__u32 nh;
	__u32 pmtu;
	__u32 flags;
	__u32 pad;
};
struct next_hop {
	__u8 macs[12];
	__u32 ifindex;
	__u32 mtu;
	__u32 flags;
} __attribute__((aligned(8)));
struct counter {
	__u64 packets;
	__u64 bytes;
};
struct vip_meta {
	struct vip_key key;
	__u32 pad;
	__u64 rule;
};
struct ring_meta {
	__u8 ring_key[16];
	__u8 digest[16];
};
struct backend_meta {
	__u8 addr[16];
	__u64 vpc;
	__u64 attachment;
	__u64 node;
};
struct name {
	__u8 text[NAME_LEN];
};
struct config {
	__u32 nh[12];
	__u64 fin;
	__u64 src_hi;
	__u64 src_lo;
	__u64 selftest_lo;
	__u32 role;
	__u32 icmp_rate;
	__u32 heartbeat_jiffies;
	__u32 build;
};
struct shared {
	__u64 heartbeat;
	__u64 selftest_seen;
};
struct bucket {
	__u64 last_ns;
	__u64 tokens;
};
struct watch {
	__u32 drop_samples;
	__u32 pad;
};
struct trace {
	__u64 magic;
	__u32 reason;
	__u32 vip;
	__u32 slot;
	__u32 backend;
	__u32 ifindex;
	__u32 mtu;
};
struct sampler {
	struct bucket bucket;
	__u64 unsampled;
	__u64 lost;
};
struct drop_event {
	__u64 at_ns;
	__u32 reason;
	__u32 ifindex;
	__u32 length;
	__u32 unsampled;
	__u8 bytes[DROP_BYTES];
};
struct capture_filter {
	__u8 addr[16];
	__u64 until_ns;
	__u8 port[2];
	__u8 pad[6];
};
struct capture_head {
	__u64 at_ns;
	__u64 id;
	__u32 ifindex;
	__u32 length;
	__u32 captured;
	__u16 kind;
	__u16 reason;
};
struct capture_cpu {
	__u64 lost;
	__u32 redirect;
	__u32 pad;
};
struct fragment_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 id;
	__u32 proto;
};
struct fragment {
	__u32 ports;
	__u32 proto;
};
struct learned {
	__u64 at_ns;
	__u32 mtu;
	__u32 pad;
};
enum affinity { AFFINITY_NONE = 0, AFFINITY_CLIENT_IP = 1, AFFINITY_CLIENT_IP_AND_PROTOCOL = 2 };
enum reason {
	R_FORWARDED = 0,
	R_ICMP_STEERED,
	R_ECHO_REPLY,
	R_PACKET_TOO_BIG,
	R_NOT_IP,
	R_IP_OPTIONS,
	R_NOT_FOR_HOST,
	R_MALFORMED,
	R_NOT_VIP,
	R_SELF_TEST,
	R_MAPPED_ADDRESS,
	R_SRV6_BLOCK,
	R_NO_RULE,
	R_UNSUPPORTED_PROTOCOL,
	R_TRUNCATED,
	R_EXTENSION_HEADERS,
	R_FRAGMENT,
	R_NOT_LOADED,
	R_NO_BACKEND,
	R_NO_NEXT_HOP,
	R_FABRIC_MTU,
	R_TOO_BIG_SILENT,
	R_RATE_LIMITED,
	R_ICMP_UNHANDLED,
	R_ICMP_BAD_QUOTE,
	R_NO_HEADROOM,
	R_INTERNAL,
	R_TOO_BIG_NO_DF,
	R_FRAGMENT_UNKNOWN,
	R_FABRIC_PTB,
	R_REPLY_FORWARDED,
	R_REPLY_REFUSED,
	R_REPLY_NO_ROUTE,
	R_COUNT
};
